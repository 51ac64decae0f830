"""Mixtures of experts and latent attention in training: packing, adapters, replay, meshes."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_t2sql.learner import (
    LoraSpec,
    Trajectory,
    abstract_arrays,
    cispo,
    make_learner,
    merge_lora,
    pack,
    pack_shared,
)
from jax_t2sql.models import describe_params, hidden_fn, prefix_fn, routing_fn, unembed_fn
from jax_t2sql.models.experts import grouped_linear
from jax_t2sql.models.routing import route

LENGTH = 20


@pytest.fixture(scope="module")
def row():
    """Tokens, positions and segments of one row: sequences of 8 and 9 tokens, then padding."""
    tokens = np.random.default_rng(0).integers(0, 320, (1, LENGTH)).astype(np.int32)
    positions = np.concatenate([np.arange(8), np.arange(9), np.zeros(3)])[None].astype(np.int32)
    segments = np.repeat([1, 2, 0], [8, 9, 3])[None].astype(np.int32)
    return tokens, positions, segments


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
def test_packed_sequences_equal_sequences_alone(family, make_sparse, make_params, row):
    config = make_sparse(family)
    params, hidden = make_params(config), jax.jit(hidden_fn(config))
    tokens, positions, segments = row
    packed = hidden(params, None, *row)
    second = np.roll(segments == 2, -8).astype(np.int32)
    alone = hidden(params, None, np.roll(tokens, -8), np.roll(positions, -8), second)
    np.testing.assert_allclose(packed[:, 8:17], alone[:, :9], atol=5e-5)


def test_an_adapter_of_every_module_acts_like_merged_weights(
    make_sparse, make_params, make_adapter, row
):
    config = make_sparse("deepseek_v3")
    params, spec = make_params(config), LoraSpec(rank=3, alpha=6)
    adapter = make_adapter(config, spec)
    experts = {"expert_gate_proj", "expert_up_proj", "expert_down_proj"}
    latent = {"q_a_proj", "q_b_proj", "kv_a_proj", "kv_b_proj", "o_proj"}
    shared = {"shared_gate_proj", "shared_up_proj", "shared_down_proj"}
    assert {*adapter["layers"]} == experts | latent | shared
    hidden = jax.jit(hidden_fn(config))
    merged = merge_lora(params, adapter)
    nothing = jax.tree.map(jnp.zeros_like, adapter)  # of the same structure: compiled once
    adapted, plain = hidden(params, adapter, *row), hidden(params, nothing, *row)
    np.testing.assert_allclose(adapted, hidden(merged, nothing, *row), atol=1e-3)
    assert np.abs(adapted - plain).max() > 0.1


def test_gradients_reach_every_factor(make_sparse, make_params, make_adapter, row):
    config = make_sparse("deepseek_v3")
    params = make_params(config)
    adapter = make_adapter(config, LoraSpec(rank=2, alpha=2))

    def loss(adapter):
        out = hidden_fn(config)(params, adapter, *row)
        return jnp.sum(jnp.sin(out) * (row[2] > 0)[..., None])

    for gradient in jax.tree.leaves(jax.jit(jax.grad(loss))(adapter)):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_bfloat16_is_kept(make_sparse, row):
    config = make_sparse("deepseek_v3")
    params = abstract_arrays(describe_params(config, jnp.bfloat16))
    adapter = abstract_arrays(LoraSpec(rank=2).describe(describe_params(config)))
    out = jax.eval_shape(hidden_fn(config), params, adapter, *row)
    assert out.dtype == jnp.bfloat16
    assert params["layers"]["router"]["bias"].dtype == jnp.float32


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
def test_replayed_experts_are_used(family, make_sparse, make_params, row):
    config = make_sparse(family, num_layers=2)
    params = make_params(config)
    hidden, routing = jax.jit(hidden_fn(config)), jax.jit(routing_fn(config))
    own_LBTK = np.asarray(routing(params, None, *row))
    sparse = config.num_layers - config.moe.dense_layers
    assert own_LBTK.shape == (sparse, 1, LENGTH, config.moe.experts_per_token)
    plain = hidden(params, None, *row)
    np.testing.assert_allclose(hidden(params, None, *row, own_LBTK), plain, atol=1e-5)

    other_LBTK = (own_LBTK + 1) % config.moe.num_experts
    replayed = hidden(params, None, *row, other_LBTK)
    assert np.abs(replayed - plain).max() > 0.05
    np.testing.assert_array_equal(routing(params, None, *row, other_LBTK), other_LBTK)
    # A token without a record chooses for itself.
    nothing = np.full_like(own_LBTK, -1)
    np.testing.assert_allclose(hidden(params, None, *row, nothing), plain, atol=1e-5)
    partly = np.where(np.arange(LENGTH)[None, None, :, None] < 8, -1, other_LBTK)
    mixed = hidden(params, None, *row, partly)
    np.testing.assert_allclose(mixed[:, :8], plain[:, :8], atol=1e-5)
    np.testing.assert_allclose(mixed[:, 8:17], replayed[:, 8:17], atol=1e-5)


def test_the_learner_replays_what_trajectories_recorded(make_sparse, make_params):
    config = make_sparse("qwen3_moe", num_layers=1)
    params = make_params(config)
    generator = np.random.default_rng(6)
    prompt = generator.integers(0, 320, 6)
    learner = make_learner(
        hidden_fn(config),
        unembed_fn(config),
        prefix_fn=prefix_fn(config),
        adapter=LoraSpec(rank=1, alpha=1),
        loss=cispo(low=0.0, high=4.0),
        optimizer=optax.sgd(0.1),
    )
    state = learner.init(params, jax.random.key(0))

    def trajectory(recorded):
        ids = np.concatenate([prompt, generator.integers(0, 320, 4)])
        experts = generator.integers(0, 6, (10, 1, 1)) + np.arange(3)
        replay = experts if recorded else None
        return Trajectory(ids, np.arange(10) >= 6, np.zeros(10), 1.0, replay_TLE=replay)

    group = [trajectory(True), trajectory(False)]
    # Of one prompt the experts are the same.
    group[1] = dataclasses.replace(group[1], replay_TLE=group[0].replay_TLE.copy())
    group[1].replay_TLE[6:] = -1
    batch = pack(group, row_length=10, rows_per_microbatch=2)
    np.testing.assert_array_equal(batch.replay_MBTLE[0, 0], group[0].replay_TLE)
    found = np.asarray(learner.logprobs(params, state, batch))[0, :, :4]

    row = (batch.tokens_MBT[0], batch.positions_MBT[0], batch.segments_MBT[0])
    replay_LBTE = np.moveaxis(batch.replay_MBTLE[0], 2, 0)
    hidden = hidden_fn(config)(params, None, *row, replay_LBTE)
    logits = jax.nn.log_softmax(unembed_fn(config)(params, None, hidden))
    want = [[logits[b, t - 1, t_id] for t, t_id in enumerate(ids) if t >= 6]
            for b, ids in enumerate(np.asarray(row[0]))]  # fmt: skip
    np.testing.assert_allclose(found, want, atol=1e-4)

    shared = pack_shared(group, prefix_length=8, row_length=8, rows_per_microbatch=2)
    assert (shared.prefix.replay_KCPLE[0, 0, :5] == group[0].replay_TLE[:5]).all()
    again = np.asarray(learner.logprobs(params, state, shared))
    np.testing.assert_allclose(np.sort(again[again != 0]), np.sort(found.ravel()), atol=1e-4)

    plain = [dataclasses.replace(x, replay_TLE=None) for x in group]
    assert pack(plain, row_length=10, rows_per_microbatch=2).replay_MBTLE is None


def test_records_that_do_not_fit_are_refused():
    ids, mask = np.arange(4), np.arange(4) > 1
    with pytest.raises(ValueError, match=r"4 tokens .* got shape \(3, 2, 1\)"):
        Trajectory(ids, mask, np.zeros(4), replay_TLE=np.zeros((3, 2, 1)))
    two = [
        Trajectory(ids, mask, np.zeros(4), replay_TLE=np.zeros((4, layers, 1))) for layers in (1, 2)
    ]
    with pytest.raises(ValueError, match="different layers and counts"):
        pack(two, row_length=4, rows_per_microbatch=1)


def test_weights_of_replayed_experts_follow_the_scores_of_now(make_sparse):
    moe = make_sparse("deepseek_v3").moe
    generator = np.random.default_rng(3)
    router = {
        "embedding": jnp.asarray(generator.standard_normal((8, 6)), jnp.float32),
        "bias": jnp.zeros(8),
    }
    x_ND = jnp.asarray(generator.standard_normal((5, 6)), jnp.float32)
    recorded = jnp.broadcast_to(jnp.array([1, 4, 6]), (5, 3))
    experts_NK, weights_NK = route(moe, router, x_ND, recorded)
    np.testing.assert_array_equal(experts_NK, recorded)
    scores = 1 / (1 + np.exp(-np.asarray(x_ND @ router["embedding"].T)))[:, [1, 4, 6]]
    expected = moe.scale * scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights_NK, expected, rtol=1e-5)
    slope = jax.grad(lambda x: route(moe, router, x, recorded)[1][0, 0])(x_ND)
    assert np.abs(slope[0]).max() > 0


def test_grouped_products_use_each_rows_own_kernel():
    generator = np.random.default_rng(5)
    x_MI, kernel_EIO = generator.standard_normal((9, 4)), generator.standard_normal((3, 4, 5))
    out = grouped_linear(
        jnp.asarray(x_MI, jnp.float32),
        jnp.asarray(kernel_EIO, jnp.float32),
        None,
        jnp.array([4, 0, 5]),
    )
    expert_M = [0] * 4 + [2] * 5
    np.testing.assert_allclose(out, np.einsum("mi,mio->mo", x_MI, kernel_EIO[expert_M]), atol=1e-5)


MESH = """
import re
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from conftest import random_adapter, random_params, tiny_sparse
from jax_t2sql.learner import LoraSpec, ShardingRules, shardings
from jax_t2sql.models import describe_params, hidden_fn

spec, rules = LoraSpec(rank=2, alpha=2), ShardingRules()
tokens = np.random.default_rng(0).integers(0, 320, (8, 6)).astype(np.int32)
positions = np.broadcast_to(np.arange(6, dtype=np.int32), tokens.shape)
for config, shape in ((tiny_sparse("deepseek_v3"), (1, 2, 2, 2)),
                      (tiny_sparse("qwen3_moe", num_layers=2), (2, 2, 2, 1))):
    params, adapter = random_params(config), random_adapter(config, spec)

    def loss_of(hidden):
        return lambda adapter, params, *row: (hidden(params, adapter, *row) ** 2).mean()

    row = (tokens, positions, np.ones_like(tokens))
    want = jax.jit(jax.value_and_grad(loss_of(hidden_fn(config))))(adapter, params, *row)
    mesh = jax.make_mesh(shape, ("data", "fsdp", "tensor", "expert"),
                         axis_types=(AxisType.Auto,) * 4)
    place = lambda tree, descs: jax.device_put(tree, shardings(descs, mesh, rules))
    descs = describe_params(config)
    rows = NamedSharding(mesh, P(("data", "fsdp")))
    arguments = (place(adapter, spec.describe(descs)), place(params, descs),
                 *(jax.device_put(x, rows) for x in row))
    run = jax.jit(jax.value_and_grad(loss_of(hidden_fn(config, mesh=mesh))))
    compiled = run.lower(*arguments).compile()
    got = compiled(*arguments)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), got, want)
    # Experts are gathered a layer at a time, and never along their own axis.
    text = compiled.as_text()
    gathered = {tuple(map(int, shape.split(",")))
                for shape in re.findall(r"all-gather\\S* = f32\\[([\\d,]+)\\]", text)}
    layers = {x[1:] if x[:1] == (1,) else x for x in gathered}
    held = 8 // shape[-1]
    assert (held, 64, 14) in layers, layers
    assert not [x for x in layers if len(x) == 4 and x[2:] in ((64, 14), (64, 28))], layers
    assert shape[-1] == 1 or not [x for x in layers if x[:2] == (8, 64) and len(x) == 3], layers
    print(config.architecture, shape, float(got[0]))
"""


@pytest.mark.multi_device
def test_eight_devices_compute_what_one_does():
    here = Path(__file__).parent
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])]),
    }
    done = subprocess.run(
        [sys.executable, "-c", MESH], capture_output=True, text=True, env=env, timeout=3600
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
