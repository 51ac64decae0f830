"""The option --mesh, and what `train` puts together on eight virtual devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.meshes import open_mesh, parse_mesh
from jax_t2sql.train import main, parse

HERE = Path(__file__).parent


@pytest.mark.parametrize("text", ["", "fsdp", "fsdp=0", "rows=2", "fsdp=2,fsdp=2", "tensor=-1"])
def test_what_is_no_mesh_is_refused(text):
    with pytest.raises(UserError, match="write for example fsdp=8,tensor=2"):
        parse_mesh(text)


def test_a_mesh_must_fit_the_devices():
    assert open_mesh(None) is None
    assert open_mesh("data=1").shape["data"] == 1
    with pytest.raises(UserError, match="--mesh fsdp=3: a mesh of .* does not fit 1 devices"):
        open_mesh("fsdp=3")


def test_train_takes_the_option(capsys):
    quickstart = str(HERE.parent / "configs" / "quickstart.py")
    assert main(["--config", quickstart, "--mesh", "fsdp=4", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["mesh"] == "fsdp=4"
    assert parse(["--config", quickstart]).run.mesh is None
    with pytest.raises(UserError, match="--mesh 'fsdp=x'"):
        main(["--config", quickstart, "--mesh", "fsdp=x", "--dry-run"])


@pytest.mark.multi_device
def test_a_mesh_samples_and_learns_what_one_device_does_and_resumes_on_another(tmp_path):
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        # Level 0 halves the time to compile, which is most of this test.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "PYTHONPATH": str(HERE.parent),
    }
    done = subprocess.run(
        [sys.executable, HERE / "mesh_run_program.py", tmp_path],
        capture_output=True,
        text=True,
        env=env,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert "Involuntary full rematerialization" not in done.stderr
    one, spread, resumed = (json.loads(line) for line in done.stdout.splitlines())
    assert one["share"] == 1 and spread["share"] == 1 / 4, "each device holds its part"
    assert spread["ids"] == one["ids"]
    for own, other in zip(spread["logprobs"], one["logprobs"], strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)
    for step in ("first", "second"):
        assert spread[step] == pytest.approx(one[step], rel=1e-4, abs=1e-5)
    assert resumed["second"] == pytest.approx(spread["second"], rel=1e-4, abs=1e-5)
    assert one["first"] != one["second"]
