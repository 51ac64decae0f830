"""Every device gets its own part of the weights, and no process reads or holds more."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.models.safetensors_files import save_safetensors

HERE = Path(__file__).parent

EIGHT = """
import dataclasses
import jax, numpy as np
from jax.sharding import AxisType
from conftest import CORPUS, random_params, tiny_sparse
from jax_t2sql.learner import LoraSpec, ShardingRules, shardings
from jax_t2sql.models.memory import plan_memory
from jax_t2sql.models import (LoadedModel, Quantization, describe_params, load_model, save_hf,
                              train_tokenizer)

mesh = jax.make_mesh((1, 2, 2, 2), ("data", "fsdp", "tensor", "expert"),
                     axis_types=(AxisType.Auto,) * 4)
config = tiny_sparse("deepseek_v3", hidden_size=32)
tokenizer = train_tokenizer(CORPUS * 4, vocab_size=320)
save_hf(LoadedModel(config, random_params(config), tokenizer, "memory", "0" * 64), DIRECTORY)
for quantization in (None, Quantization(bits=4, group=2)):
    whole = load_model(DIRECTORY, quantization=quantization).params
    parts = load_model(DIRECTORY, quantization=quantization, mesh=mesh).params
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y), parts, whole)
    if quantization is None:
        held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(parts))
        plan = plan_memory(config, mesh.shape, adapter=LoraSpec(), rows=2, length=8,
                           dtype="float32")
        assert plan.weights == held, (plan.weights, held)
    want = shardings(describe_params(config, quantization=quantization), mesh, ShardingRules())
    assert jax.tree.map(lambda x: x.sharding, parts) == want
try:
    load_model(DIRECTORY, quantization=Quantization(bits=8, group=4, targets="expert_down"),
               mesh=mesh)
except ValueError as error:
    print("refused:", error)
"""

TWO = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType
jax.distributed.initialize(f"localhost:{sys.argv[2]}", 2, int(sys.argv[1]))
from jax_t2sql.models import ModelConfig
from jax_t2sql.models.files import read_json
from jax_t2sql.models.assemble import Layout
from jax_t2sql.models.safetensors_files import load_safetensors
from pathlib import Path

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

mesh = jax.make_mesh((1, 2, 1, 1), ("data", "fsdp", "tensor", "expert"),
                     axis_types=(AxisType.Auto,) * 4)
directory = Path(sys.argv[3])
config = ModelConfig.from_hf(read_json(directory / "config.json"))
jax.device_put(np.zeros(1)).block_until_ready()
before = memory("VmRSS")
params = load_safetensors(directory, config, Layout(dtype=jnp.bfloat16, mesh=mesh))
peak = memory("VmHWM") - before
local = sum(s.data.nbytes for x in jax.tree.leaves(params) for s in x.addressable_shards)
total = sum(x.nbytes for x in jax.tree.leaves(params))
print(json.dumps({"peak": peak, "local": local, "total": total}))
"""


def environment(devices: int) -> dict[str, str]:
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }


@pytest.mark.multi_device
def test_parts_on_eight_devices_are_the_whole(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"DIRECTORY = {str(tmp_path)!r}\n{EIGHT}"],
        capture_output=True,
        text=True,
        env=environment(8),
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert "refused: axis 'mlp'" in done.stdout and "(2, 8, 7, 32)" in done.stdout


@pytest.fixture
def large_model(tmp_path, make_sparse, make_params):
    """A directory with 90 MB of weights; the test's own process writes them."""
    moe = make_sparse("qwen3_moe").moe
    config = make_sparse(
        "qwen3_moe",
        hidden_size=512,
        num_layers=6,
        vocab_size=4096,
        moe=dataclasses.replace(moe, expert_size=512),
    )
    params = jax.tree.map(lambda x: np.asarray(x, jnp.bfloat16), make_params(config))
    save_safetensors(tmp_path, config, params)
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    return tmp_path


@pytest.mark.multi_device
def test_a_process_holds_its_own_part_and_little_more(large_model):
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = str(listener.getsockname()[1])
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(process), port, str(large_model)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(1),
        )
        for process in range(2)
    ]
    try:
        outputs = [program.communicate(timeout=3600) for program in programs]
    finally:
        for program in programs:
            program.kill()
    for program, (out, err) in zip(programs, outputs, strict=True):
        assert program.returncode == 0, err
        seen = json.loads(out.splitlines()[-1])
        assert seen["local"] < 0.52 * seen["total"]
        assert seen["total"] > 80e6
        assert seen["peak"] <= 1.3 * seen["local"], seen
