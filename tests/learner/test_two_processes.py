"""Two processes of two devices each train one model, save it together and resume elsewhere."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import tiny_transformer as tiny

from jax_t2sql.learner import LoraSpec, cispo, make_learner, pack

HERE = Path(__file__).parent


def run_both(phase, directory):
    """Standard output of both processes of a phase."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }
    running = [
        subprocess.Popen(
            [sys.executable, HERE / "two_process_program.py", str(port), str(i), phase, directory],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for i in range(2)
    ]
    try:
        results = [process.communicate(timeout=3600) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, results, strict=True):
        assert process.returncode == 0, errors
    return [out for out, _ in results]


def losses_of(out):
    line = next(line for line in out.splitlines() if line.startswith("LOSSES"))
    return json.loads(line.removeprefix("LOSSES"))


@pytest.mark.multi_device
def test_two_processes_train_save_and_resume_on_another_mesh(tmp_path):
    started, resumed = (run_both(phase, str(tmp_path)) for phase in ("start", "resume"))
    assert losses_of(started[0]) == losses_of(started[1])
    learner = make_learner(
        tiny.hidden_fn,
        tiny.unembed_fn,
        adapter=LoraSpec(rank=2),
        loss=cispo(low=0.2, high=3.0),
        optimizer=optax.adam(1e-2),
    )
    base = tiny.init_base()
    batch = pack(tiny.trajectories((9, 3, 12, 5, 7, 12, 2, 6)), row_length=12,
                 rows_per_microbatch=4)  # fmt: skip
    state, expected = learner.init(base, jax.random.key(0)), []
    for _ in range(3):
        state, metrics = learner.update(base, state, batch)
        expected.append(float(metrics["loss"]))
    together = losses_of(started[0]) + losses_of(resumed[1])
    np.testing.assert_allclose(together, expected, rtol=1e-5, atol=1e-5)
    for out in resumed:
        assert "host 1: holds another batch than host 0" in out
        assert "host 1: its disk is gone" in out and "host 0:" not in out
