"""The training forward: masks, packing, blocks, adapters, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.learner import LoraSpec, abstract_arrays, merge_lora
from jax_t2sql.models import describe_params, hidden_fn, unembed_fn

FAMILIES = ("llama", "qwen2", "qwen3")


def row(*lengths: int, total: int):
    """Positions and segments of one row that holds sequences of these lengths, then padding."""
    positions = [np.arange(n) for n in lengths]
    segments = [np.full(n, i + 1) for i, n in enumerate(lengths)]
    rest = total - sum(lengths)
    return (
        np.concatenate([*positions, np.zeros(rest, int)])[None].astype(np.int32),
        np.concatenate([*segments, np.zeros(rest, int)])[None].astype(np.int32),
    )


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(0).integers(0, 320, (1, 24)).astype(np.int32)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_sequences_equal_sequences_alone(family, make_config, make_params, tokens):
    config = make_config(family)
    params, hidden = make_params(config), jax.jit(hidden_fn(config))
    packed = hidden(params, None, tokens, *row(10, 9, total=24))
    first = hidden(params, None, tokens, *row(10, total=24))
    shifted = np.roll(tokens, -10, axis=1)
    second = hidden(params, None, shifted, *row(9, total=24))
    np.testing.assert_allclose(packed[:, :10], first[:, :10], atol=2e-5)
    np.testing.assert_allclose(packed[:, 10:19], second[:, :9], atol=2e-5)


def test_no_token_sees_another_segment_a_later_token_or_padding(make_config, make_params, tokens):
    config = make_config("qwen3")
    params, hidden = make_params(config), jax.jit(hidden_fn(config))
    positions, segments = row(10, 9, total=24)
    before = np.asarray(hidden(params, None, tokens, positions, segments))
    for changed, affected in ((3, range(3, 10)), (12, range(12, 19)), (21, ())):
        other = tokens.copy()
        other[0, changed] = (other[0, changed] + 1) % 320
        after = np.asarray(hidden(params, None, other, positions, segments))
        moved = np.flatnonzero(np.abs(after - before)[:, :19].max(axis=(0, 2)) > 0)
        assert list(moved) == list(affected)


def test_padding_gives_finite_numbers(make_config, make_params, tokens):
    config = make_config("llama")
    nothing = np.zeros_like(tokens)
    out = jax.jit(hidden_fn(config))(make_params(config), None, tokens, nothing, nothing)
    assert np.isfinite(out).all()


def test_what_is_kept_for_the_backward_pass_changes_neither_values_nor_gradients(
    make_config, make_params, tokens
):
    config = make_config("qwen2")
    params = make_params(config)
    positions, segments = row(13, 9, total=24)

    def loss(params, remat):
        out = hidden_fn(config, remat=remat)(params, None, tokens, positions, segments)
        return jnp.sum(jnp.sin(out) * (segments > 0)[..., None])

    run = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    value, gradient = run(params, "none")
    for remat in ("dots", "layer", "auto"):
        other, other_gradient = run(params, remat)
        np.testing.assert_allclose(other, value, rtol=1e-5)
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
            other_gradient,
            gradient,
        )
    with pytest.raises(ValueError, match="remat 'some' is unknown"):
        run(params, "some")


@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "down_proj"), ("lm_head",)])
def test_an_adapter_acts_like_merged_weights(
    targets, make_config, make_params, make_adapter, tokens
):
    config = make_config("llama")
    params = make_params(config)
    adapter = make_adapter(config, LoraSpec(targets=targets, rank=4, alpha=8))
    positions, segments = row(24, total=24)

    def logits(params, adapter):
        hidden = hidden_fn(config)(params, adapter, tokens, positions, segments)
        return unembed_fn(config)(params, adapter, hidden)

    logits = jax.jit(logits)
    plain, adapted = logits(params, None), logits(params, adapter)
    merged = logits(merge_lora(params, adapter), None)
    np.testing.assert_allclose(adapted, merged, atol=5e-4)
    assert np.abs(adapted - plain).max() > 0.1


def test_bfloat16_parameters_give_bfloat16_hidden_states_and_float32_logits(make_config, tokens):
    config = make_config("qwen2")
    params = abstract_arrays(describe_params(config, jnp.bfloat16))
    adapter = abstract_arrays(LoraSpec(rank=2).describe(describe_params(config)))
    out = jax.eval_shape(hidden_fn(config), params, adapter, tokens, *row(24, total=24))
    assert out.dtype == jnp.bfloat16
    logits = jax.eval_shape(unembed_fn(config), params, None, out)
    assert logits.dtype == jnp.float32
