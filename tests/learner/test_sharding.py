"""Real model families on eight devices against one, and what the compiled update does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(*arguments):
    """The reports that `mesh_program.py` prints."""
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        # Level 0 halves the time to compile, which is most of these tests.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "PYTHONPATH": str(HERE.parents[1]),
    }
    done = subprocess.run(
        [sys.executable, HERE / "mesh_program.py", *arguments],
        capture_output=True,
        text=True,
        env=env,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    # What XLA says of an array that it makes whole on every device, to cut it in another way.
    assert "Involuntary full rematerialization" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.multi_device
@pytest.mark.parametrize("model", ["dense", "sparse"])
def test_every_mesh_learns_what_one_device_does(model):
    """Loss, gradient (the state of the test's optimizer), updated adapter and ratios by source, in
    float32."""
    reports = run("equal", model)
    assert [tuple(r["mesh"]) for r in reports if r["kind"] == "whole"] == [
        (8, 1, 1, 1), (1, 8, 1, 1), (2, 2, 2, 1), (1, 2, 2, 2),
    ]  # fmt: skip
    assert any(r["kind"] == "shared" for r in reports)
    for report in reports:
        assert report["gradient"] > 1e-3
        for part in ("loss", "trainable", "opt_state", "sources"):
            assert report[part] < 1e-5, report
        assert report["base_share"] == 1 / _shards(report["mesh"], model)


def _shards(mesh, model):
    """Ways in which the most divided array of the base is split."""
    _, fsdp, tensor, expert = mesh
    return fsdp * tensor * (expert if model == "sparse" else 1)


@pytest.mark.multi_device
def test_base_weights_are_gathered_layer_by_layer_and_the_state_is_donated():
    (report,) = run("inspect", "dense")
    shapes = [[side for side in shape if side > 1] for shape in report["gathered"]]
    for kernel in ([64, 256], [256, 64], [64, 32], [32, 64], [64, 16]):
        assert kernel in shapes, f"{kernel} is not gathered: {shapes}"
    for shape in shapes:
        assert 160 not in shape, f"activations of all rows are gathered: {shape}"
        # The stack of all six layers' kernels would be six times this.
        size = 1
        for side in shape:
            size *= side
        assert size <= report["largest_kernel"], shape
    # What a device is given is its eighth of the base, its eighth of the state, and the batch.
    assert report["argument_bytes"] < (report["base_bytes"] + report["state_bytes"]) / 4
    assert report["aliased_bytes"] >= report["state_bytes"] / 8


@pytest.mark.multi_device
def test_experts_are_gathered_layer_by_layer_too():
    """Their kernels whole along fsdp, for the experts of one layer; scores and tokens stay."""
    (report,) = run("inspect", "sparse")
    shapes = [[side for side in shape if side > 1] for shape in report["gathered"]]
    for kernel in ([4, 64, 8], [4, 8, 64]):  # half of an expert's width of 16 each
        assert kernel in shapes, f"{kernel} is not gathered: {shapes}"
    for shape in shapes:
        assert 160 not in shape, f"scores or activations of all rows are gathered: {shape}"
        size = 1
        for side in shape:
            size *= side
        assert size <= report["largest_kernel"], shape
