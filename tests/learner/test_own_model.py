import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.multi_device
def test_a_users_own_module_and_functions_learn_on_eight_devices():
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "PYTHONPATH": str(HERE.parents[1]),
    }
    done = subprocess.run(
        [sys.executable, HERE / "own_model_program.py"],
        capture_output=True,
        text=True,
        env=env,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    rewards = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in
               done.stdout.splitlines()}  # fmt: skip
    assert set(rewards) == {"module", "functions"}
    for before, after in rewards.values():
        assert before < 0.4 and after > 0.8
