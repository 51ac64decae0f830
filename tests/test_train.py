"""How `train` ends where nobody can mend the input: statuses that launchers tell apart."""

import pytest

import jax_t2sql.training
from jax_t2sql import train
from jax_t2sql.bus import LostLeadership
from jax_t2sql.errors import StoreAway, UserError
from jax_t2sql.programs import run_program


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (LostLeadership("log/7"), 3, "another process has taken over the run in w"),
        (StoreAway("the store is away"), 75, "error: the store is away"),
    ],
)
def test_each_end_has_a_status_of_its_own(monkeypatch, capsys, error, status, says):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(jax_t2sql.training, "run_training", fail)
    options = ["--config", "configs/quickstart.py", "--workdir", "w"]
    with pytest.raises(SystemExit) as ended:
        run_program(lambda: train.main(options))
    assert ended.value.code == status
    assert says in capsys.readouterr().err


def test_half_of_the_hosts_environment_is_refused_before_anything_loads(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    with pytest.raises(UserError, match="but not JAX_COORDINATOR_ADDRESS, JAX_PROCESS_ID"):
        train.main(["--config", "configs/quickstart.py"])


def test_the_bus_and_the_parent_reach_the_run(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        jax_t2sql.training, "run_training", lambda config, workdir, **options: seen.update(options)
    )
    options = "--bus s3://b/run --fork-from old --fleet.workers 0".split()
    assert train.main(["--config", "configs/quickstart.py", *options]) == 0
    assert (seen["bus"], str(seen["fork_from"]), seen["hosts"].count) == ("s3://b/run", "old", 1)
