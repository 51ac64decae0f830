"""The folder of a run: whose it is, and when it may be taken."""

import json

import pytest

from jax_t2sql.config import CheckpointConfig, EvalConfig, TrainConfig, resolve
from jax_t2sql.errors import UserError
from jax_t2sql.rundir import check_workdir, open_workdir

CONFIG = resolve(TrainConfig())
OTHER = resolve(TrainConfig(seed=4))


def kept(workdir):
    return json.loads((workdir / "config.json").read_text())


def test_a_run_keeps_its_configuration(tmp_path):
    open_workdir(CONFIG, tmp_path / "run")
    (tmp_path / "run" / "bus").mkdir()
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


def test_a_torn_configuration_is_named(tmp_path):
    (tmp_path / "bus").mkdir()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json is not valid JSON"):
        check_workdir(CONFIG, tmp_path)


def test_checking_writes_nothing(tmp_path):
    check_workdir(CONFIG, tmp_path / "new")
    assert not (tmp_path / "new").exists()
