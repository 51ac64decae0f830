import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_transformer as tiny

from jax_t2sql.learner import Checkpointer, LoraSpec, cispo, make_learner, make_optimizer, pack

ROOT = Path(__file__).parents[2]
STATE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.int32(4)}

CHILD = """
import os, resource, signal, sys
import numpy as np
from jax_t2sql.learner import Checkpointer

def state(step):  # noise, for Orbax compresses what it writes
    return {"w": np.random.default_rng(step).random(1 << 20, np.float32)}

directory, fault = sys.argv[1:]
checkpointer = Checkpointer(directory)
checkpointer.save(1, state(1), {"cursor": 1})

if fault == "full":
    # Writes beyond 64 KiB fail with an error of the system, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
    try:
        checkpointer.save(2, state(2), {"cursor": 2})
    except OSError as error:
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    restored, meta = checkpointer.restore(state(0))
    assert (restored["w"] == state(1)["w"]).all() and meta == {"cursor": 1}
    checkpointer.save(2, state(2), {"cursor": 2})
    print("recovered:", checkpointer.latest())
else:
    def die(event, arguments):
        path = {"os.mkdir": 0, "os.rename": 1}.get(event)  # which argument is the new path
        if event == fault and os.path.basename(arguments[path]).split(".")[0] == "2":
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(die)  # the interpreter reports every rename and mkdir before it happens
    checkpointer.save(2, state(2), {"cursor": 2})
    print("saved")
"""


def run_child(directory: Path, fault: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CHILD, str(directory), fault]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=3600)


@pytest.mark.parametrize("moment", ["os.mkdir", "os.rename"])
def test_a_process_killed_in_mid_save_leaves_the_last_complete_checkpoint(tmp_path, moment):
    """Killed when the save has just begun, and when all is written but not yet committed."""
    child = run_child(tmp_path, moment)
    assert child.returncode == -signal.SIGKILL, child.stdout + child.stderr
    assert any("tmp" in path.name for path in tmp_path.iterdir()) == (moment == "os.rename")
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest() == 1
        like = {"w": np.zeros(1 << 20, np.float32)}
        state, meta = checkpointer.restore(like)
        expected = np.random.default_rng(1).random(1 << 20, np.float32)
        np.testing.assert_array_equal(state["w"], expected)
        assert meta == {"cursor": 1}
        with pytest.raises(FileNotFoundError, match="no complete checkpoint of step 2"):
            checkpointer.restore(like, step=2)
        checkpointer.save(2, like, {})  # waits for the sweep of what was left
        assert checkpointer.latest() == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_full_disk_raises_oserror_and_the_run_can_go_on(tmp_path):
    child = run_child(tmp_path, "full")
    assert child.returncode == 0, child.stdout + child.stderr
    assert "checkpoint 2 was not written" in child.stdout and "free some space" in child.stdout
    assert "recovered: 2" in child.stdout


@pytest.fixture(scope="module")
def training():
    learner = make_learner(
        tiny.hidden_fn,
        tiny.unembed_fn,
        adapter=LoraSpec(rank=2),
        loss=cispo(low=0.0, high=4.0),
        optimizer=make_optimizer(peak_lr=1e-2, warmup_steps=2, total_steps=9),
    )
    base = tiny.init_base()
    batches = [
        pack(tiny.trajectories((9, 5, 8), seed=seed), row_length=16, rows_per_microbatch=1)
        for seed in range(6)
    ]

    def train(state, steps):
        for step in steps:
            state, _ = learner.update(base, state, batches[step])
        return state

    return learner, base, train


def test_training_resumes_exactly(tmp_path, training):
    learner, base, train = training
    whole = train(learner.init(base, jax.random.key(0)), range(6))
    first = train(learner.init(base, jax.random.key(0)), range(3))
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(3, first, {"cursor": [3, "three"]})
    with Checkpointer(tmp_path) as checkpointer:
        state, meta = checkpointer.restore(learner.abstract_state(base))
    assert meta == {"cursor": [3, "three"]} and state.step == 3
    resumed = train(state, range(3, 6))
    assert jax.tree.structure(resumed) == jax.tree.structure(whole)
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    assert {(x.dtype, x.weak_type) for x in jax.tree.leaves(resumed)} == {
        (x.dtype, x.weak_type) for x in jax.tree.leaves(whole)
    }


def test_a_checkpoint_of_another_shape_names_path_and_both_shapes(tmp_path, training):
    learner, base, _ = training
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, learner.init(base, jax.random.key(0)), {})
        other = make_learner(
            tiny.hidden_fn,
            tiny.unembed_fn,
            adapter=LoraSpec(rank=5),
            loss=cispo(),
            optimizer=make_optimizer(peak_lr=1e-2, warmup_steps=2, total_steps=9),
        )
        with pytest.raises(
            ValueError,
            match=r"trainable/layers/mix/a has shape \(2, 16, 2\), expected \(2, 16, 5\)",
        ):
            checkpointer.restore(other.abstract_state(base))


def test_a_checkpoint_of_another_structure_or_dtype_is_refused(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, STATE, {})
        with pytest.raises(ValueError, match="v is missing; n is not part of this state"):
            checkpointer.restore({"w": STATE["w"], "v": STATE["n"]})
        with pytest.raises(ValueError, match="w has dtype float32, expected bfloat16"):
            checkpointer.restore({**STATE, "w": STATE["w"].astype(jnp.bfloat16)})


def test_only_the_last_checkpoints_are_kept_and_any_of_them_can_be_restored(tmp_path):
    with Checkpointer(tmp_path / "new" / "folder", keep=2) as checkpointer:
        assert checkpointer.latest() is None
        for step in (1, 5, 9):
            checkpointer.save(step, {"n": np.int32(step)}, {"step": step})
        assert checkpointer.latest() == 9
        state, meta = checkpointer.restore({"n": np.int32(0)}, step=5)
        assert state["n"] == 5 and meta == {"step": 5}
        with pytest.raises(FileNotFoundError, match="no complete checkpoint of step 1"):
            checkpointer.restore({"n": np.int32(0)}, step=1)
        with pytest.raises(ValueError, match="cannot save step 9 .* already holds step 9"):
            checkpointer.save(9, STATE, {})


def test_an_empty_directory_and_bad_arguments_are_named(tmp_path):
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(FileNotFoundError, match=f"no complete checkpoint in {tmp_path}"):
            checkpointer.restore(STATE)
        with pytest.raises(ValueError, match="same path"):
            checkpointer.save(1, {"a/b": np.ones(1), "a": {"b": np.ones(1)}}, {})
    with pytest.raises(ValueError, match="keep=0"):
        Checkpointer(tmp_path, keep=0)
