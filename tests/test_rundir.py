"""The folder of a run: whose it is, and when it may be taken."""

import json
from pathlib import Path

import pytest

from jax_t2sql.config import CheckpointConfig, EvalConfig, TrainConfig
from jax_t2sql.config_loading import resolve
from jax_t2sql.errors import UserError
from jax_t2sql.rundir import check_workdir, open_workdir

CONFIG = resolve(TrainConfig())
OTHER = resolve(TrainConfig(seed=4))


def kept(workdir):
    return json.loads((workdir / "config.json").read_text())


def test_a_run_keeps_its_configuration(tmp_path):
    open_workdir(CONFIG, tmp_path / "run")
    (tmp_path / "run" / "checkpoints").mkdir()
    with pytest.raises(UserError, match="seed was 0, now 4.*another --workdir"):
        open_workdir(OTHER, tmp_path / "run")
    assert kept(tmp_path / "run")["seed"] == 0


def test_what_is_only_watched_may_change_and_is_written(tmp_path):
    open_workdir(CONFIG, tmp_path)
    (tmp_path / "bus").mkdir()
    changed = resolve(TrainConfig(eval=EvalConfig(every=7), checkpoint=CheckpointConfig(keep=5)))
    open_workdir(changed, tmp_path)
    assert kept(tmp_path)["eval"]["every"] == 7 and kept(tmp_path)["checkpoint"]["keep"] == 5


def test_a_run_refused_before_it_began_leaves_the_folder_free(tmp_path):
    open_workdir(CONFIG, tmp_path)
    open_workdir(OTHER, tmp_path)
    assert kept(tmp_path)["seed"] == 4


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "config.json is not valid JSON"),
        ("[" * 100_000, "config.json is not valid JSON"),
        ("[1]", "not the configuration of a run"),
        ('{"model_type": "qwen3", "vocab_size": 700}', "not the configuration of a run"),
    ],
)
def test_a_config_that_is_not_ours_is_left_alone(tmp_path, content, says):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=says):
        open_workdir(CONFIG, tmp_path)
    assert (tmp_path / "config.json").read_text() == content


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UserError, match="--workdir .*name another folder"):
            open_workdir(CONFIG, place)


def test_an_address_is_no_folder():
    for place in ("gs://bucket/run", "s3://bucket"):
        with pytest.raises(UserError, match="--workdir .* is no folder.* --bus gs://"):
            check_workdir(CONFIG, Path(place))


def test_checking_writes_nothing(tmp_path):
    check_workdir(CONFIG, tmp_path / "new")
    assert not (tmp_path / "new").exists()
