"""Every fault of the input is told at once, and nothing is written."""

import json
import sqlite3

import pytest

from jax_t2sql.config import (
    AdapterConfig,
    DataConfig,
    FleetConfig,
    HintsConfig,
    RLConfig,
    TrainConfig,
)
from jax_t2sql.config_loading import resolve
from jax_t2sql.errors import UserError
from jax_t2sql.preflight import check_all, check_questions, check_run_bus, check_training


@pytest.fixture
def data(tmp_path):
    """A question file over one database that is there and one that is not."""
    sqlite3.connect(tmp_path / "shop.sqlite").executescript("CREATE TABLE t (a)").connection.close()
    rows = [{"db_id": db_id, "question": "?", "SQL": "SELECT 1"} for db_id in ("gone", "shop")]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_all_faults_in_one_message(tmp_path, data):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").write_text("keep me")
    files = DataConfig(train=str(tmp_path / "none.jsonl"), databases=str(tmp_path), eval=str(data))
    hints = HintsConfig(file=str(tmp_path / "hints.jsonl"))
    config = resolve(TrainConfig(model="no/such/model", data=files, hints=hints))
    with pytest.raises(UserError) as caught:
        check_training(config, tmp_path / "used")
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 faults of the input:"
    names = ("holds no run", "hints.jsonl", "no/such/model", "none.jsonl")
    for line, name in zip(lines[1:], names, strict=True):
        assert name in line
    assert not (tmp_path / "used" / "config.json").exists()


def test_one_fault_is_told_as_it_is():
    def fail():
        raise UserError("the one fault")

    with pytest.raises(UserError, match=r"\Athe one fault\Z"):
        check_all([lambda: None, fail])


def test_one_database_is_enough(tmp_path, data):
    check_questions(data, tmp_path)
    (tmp_path / "shop.sqlite").unlink()
    with pytest.raises(UserError, match="database 'gone'"):
        check_questions(data, tmp_path)


def test_a_missing_folder_is_told_beside_a_broken_file(tmp_path, data):
    data.write_text("{")
    files = DataConfig(train=str(data), databases=str(tmp_path / "nowhere"))
    config = resolve(TrainConfig(model=str(data), data=files))
    with pytest.raises(UserError, match=r"(?s)3 faults.*GGUF.*nowhere: no such.*:1: not JSON"):
        check_training(config, tmp_path / "new")


def test_the_built_in_world_needs_nothing(tmp_path):
    check_training(resolve(TrainConfig()), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04", "is not a GGUF file"),
        (
            b"GGUF\3\0\0\0" + bytes(8) + b"\1" + bytes(7)
            # the key, its type (8: text), the value
            + b"\x14" + bytes(7) + b"general.architecture" + b"\x08\0\0\0"
            + b"\x05" + bytes(7) + b"mamba" + bytes(200),
            "mamba",
        ),
    ],
)  # fmt: skip
def test_a_model_file_is_judged_by_its_first_bytes(tmp_path, data, content, says):
    (tmp_path / "model.gguf").write_bytes(content)
    files = DataConfig(train=str(data), databases=str(tmp_path))
    config = resolve(TrainConfig(model=str(tmp_path / "model.gguf"), data=files))
    with pytest.raises(UserError, match=says):
        check_training(config, tmp_path / "new")


def fleet(**changes):
    return resolve(
        TrainConfig(
            adapter=AdapterConfig(kind="lora"),
            rl=RLConfig(groups=4, max_staleness=1),
            fleet=FleetConfig(**{"workers": 2, "groups_in_flight": 4} | changes),
        )
    )


def test_a_window_below_the_fleet_is_refused_with_the_options_to_change(tmp_path):
    check_training(fleet(), tmp_path / "new")
    with pytest.raises(UserError, match=r"work on 10 groups, but only .* = 8 .*--rl.max-staleness"):
        check_training(fleet(groups_in_flight=5), tmp_path / "new")


def test_several_hosts_do_not_sample_by_themselves(tmp_path):
    check_training(fleet(), tmp_path / "new", hosts=2)
    with pytest.raises(UserError, match=r"--fleet.workers is 0, but 2 hosts train together"):
        check_training(fleet(workers=0), tmp_path / "new", hosts=2)


def test_a_bus_of_several_processes_is_not_in_memory(tmp_path):
    assert check_run_bus(fleet(workers=0), "memory:///") == []
    assert check_run_bus(fleet(), str(tmp_path / "bus")) == []
    for config, hosts in ((fleet(), 1), (fleet(workers=0), 3)):
        with pytest.raises(UserError, match="lives in one process, but 2 sampler processes"):
            check_run_bus(config, "memory:///", hosts=hosts)
