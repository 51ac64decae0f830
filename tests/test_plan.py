"""The planner: exact where it says so, near where it estimates, and clear about bad input."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.learner import LearnerBatch, LoraSpec, cispo, make_learner
from jax_t2sql.models import (
    ModelConfig,
    Quantization,
    describe_params,
    hidden_fn,
    tiny_config,
    unembed_fn,
)
from jax_t2sql.models.memory import active_params, plan_memory
from jax_t2sql.plan import DEVICES, PlanArgs, main, parse_mesh, plan

PUBLISHED = Path(__file__).parent / "models" / "published"
SPEC = LoraSpec(rank=4, alpha=4)
ALONE = {"data": 1, "fsdp": 1, "tensor": 1, "expert": 1}


def published(name: str) -> ModelConfig:
    return ModelConfig.from_hf(json.loads((PUBLISHED / f"{name}.json").read_text()))


def size_of(tree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def test_state_on_one_device_is_what_the_learner_makes():
    config = tiny_config(512)
    learner = make_learner(
        hidden_fn(config),
        unembed_fn(config),
        adapter=SPEC,
        loss=cispo(low=0.0, high=4.0),
        optimizer=optax.adamw(1e-3),
    )
    base = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, jnp.bfloat16), describe_params(config)
    )
    state = learner.abstract_state(base)
    memory = plan_memory(config, ALONE, adapter=SPEC, rows=1, length=16)
    assert memory.weights == size_of(base)
    assert memory.adapter == size_of(state.trainable)
    assert memory.optimizer == size_of(state.opt_state) - 4  # AdamW's counter


def test_kimi_in_four_bits_on_a_mesh():
    config = published("kimi_k2")
    quantization = Quantization(bits=4, group=32, targets="expert_")
    mesh = {"data": 1, "fsdp": 16, "tensor": 1, "expert": 8}
    memory = plan_memory(
        config, mesh, adapter=SPEC, rows=16, length=4096, quantization=quantization
    )
    experts = 60 * 384 * 3 * 7168 * 2048
    # Half a byte a number and two for 32 of them, all of it split over 128 devices.
    in_experts = (experts // 2 + 2 * experts // 32) // 128
    rest = memory.weights - in_experts
    assert 0 < rest < 2.5e9
    whole = plan_memory(config, ALONE, adapter=SPEC, rows=1, length=4096)
    assert whole.weights == 2 * 1_026_408_232_448 + 2 * 60 * 384  # float32 routing biases


def test_parameters_of_a_token():
    assert active_params(published("kimi_k2")) == pytest.approx(32e9, rel=0.02)
    assert active_params(published("qwen3_235b_a22b")) == pytest.approx(22e9, rel=0.03)
    dense = tiny_config(512)
    assert active_params(dense) == size_of(describe_params_arrays(dense)) // 4


def describe_params_arrays(config):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), describe_params(config)
    )


def test_activations_are_near_what_the_compiler_reserves():
    config = tiny_config(512, hidden=128, layers=6)
    rows, length = 4, 256
    learner = make_learner(
        hidden_fn(config),
        unembed_fn(config),
        adapter=SPEC,
        loss=cispo(low=0.0, high=4.0),
        optimizer=optax.adamw(1e-3),
        max_logits=1 << 16,
    )
    base = describe_params_arrays(config)
    ints, floats = np.zeros((1, rows, length), np.int32), np.zeros((1, rows, 64), np.float32)
    slots = np.zeros((1, rows, 64), np.int32)
    batch = LearnerBatch(ints, ints, ints, slots, slots, floats, floats, floats)
    compiled = learner.update.lower(base, learner.abstract_state(base), batch).compile()
    reserved = compiled.memory_analysis().temp_size_in_bytes
    memory = plan_memory(
        config, ALONE, adapter=SPEC, rows=rows, length=length, dtype="float32", max_logits=1 << 16
    )
    assert 0.5 < (memory.activations + memory.gradients) / reserved < 2, (memory, reserved)


def test_the_program_prints_what_fits(tmp_path, capsys):
    shutil.copy(PUBLISHED / "qwen3_30b_a3b.json", tmp_path / "config.json")
    options = ["--model", str(tmp_path), "--mesh", "fsdp=8", "--length", "2048"]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert "30.53 billion parameters" in printed and "8 devices" in printed
    assert "TPU v5e       16.0 GiB  too small" in printed
    assert "H100 80GB     79.6 GiB  fits" in printed
    assert main([*options, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    sizes = facts["bytes_per_device"]
    parts = ("weights", "adapter", "gradients", "optimizer", "activations")
    assert sizes["total"] == sum(sizes[part] for part in parts)
    assert facts["rows"] == 8 and set(facts["fits"]) == set(DEVICES)


def test_meshes_are_read():
    assert parse_mesh("fsdp=8, expert=4") == {**ALONE, "fsdp": 8, "expert": 4}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mesh": "model=2"}, "'model=2' is no axis"),
        ({"mesh": "fsdp=0"}, "'fsdp=0' is no axis"),
        ({"mesh": "fsdp=2,fsdp=2"}, "each once"),
        ({"mesh": ""}, "'' is no axis"),
        ({"mesh": "fsdp=3"}, "not a multiple of the 3 shards"),
        ({"mesh": "fsdp=8", "rows": 4}, "4 rows cannot be split over the 8 shards"),
        ({"rows": 0}, "--rows is 0"),
        ({"length": 0}, "--length is 0"),
        ({"rank": 0}, "rank of an adapter must be at least 1"),
        ({"targets": ("nothing",)}, "'nothing' match nothing"),
        ({"targets": ("(",)}, "unterminated subpattern|missing \\)"),
        ({"bits": 4, "group": 100}, "groups of 100 do not divide"),
        ({"bits": 4, "quantize": "("}, "unterminated subpattern|missing \\)"),
        ({"model": Path("no-such-file.json")}, "cannot read no-such-file.json"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(UserError, match=words):
        plan(PlanArgs(**{"model": PUBLISHED / "qwen3_30b_a3b.json", **options}))


def test_a_fault_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "jax_t2sql.plan", "--model", "nowhere"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: cannot read nowhere") and done.stderr.count("\n") == 1
