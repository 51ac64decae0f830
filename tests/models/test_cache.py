"""Prefill, continuation and decoding with the cache give what reading everything at once gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import cache as cache_module
from jax_t2sql.models import cached_attention, extend_fn, hidden_fn, init_cache

SLOTS = 20


@pytest.fixture(scope="module", params=["unrolled", "scanned"])
def model(request, make_config, make_params, make_adapter):
    """For both ways through the layers:

    (config, params, adapter, jitted extend, reference hidden states of 16 tokens, tokens)."""
    config = make_config("qwen3")
    params = make_params(config)
    adapter = make_adapter(config, LoraSpec(targets=("q_proj", "up_proj"), rank=2))
    tokens = np.random.default_rng(1).integers(0, 320, (2, 16)).astype(np.int32)
    positions = np.broadcast_to(np.arange(16, dtype=np.int32), (2, 16))
    full = jax.jit(hidden_fn(config))(params, adapter, tokens, positions, np.ones_like(tokens))
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "scanned":
            patch.setattr(cache_module, "_MAX_UNROLLED", 1)
        yield config, params, adapter, jax.jit(extend_fn(config)), np.asarray(full), tokens


# Few chunk lengths in many orders: every length is a compilation.
@pytest.mark.parametrize("lengths", [(16,), (5, 6, 5), (1,) * 16, (1, 5, 1, 1, 6, 1, 1)])
def test_any_division_into_chunks_equals_the_whole(model, lengths):
    config, params, adapter, extend, full, tokens = model
    cache = init_cache(config, 2, SLOTS)
    valid = jnp.broadcast_to(jnp.arange(SLOTS) < 16, (2, SLOTS))
    stop, parts = 0, []
    for length in lengths:
        start, stop = stop, stop + length
        positions = np.broadcast_to(np.arange(start, stop, dtype=np.int32), (2, stop - start))
        part, cache = extend(
            params, adapter, tokens[:, start:stop], positions, valid, cache, jnp.int32(start)
        )
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), full, atol=2e-5)


def test_left_padding_and_gaps_do_not_matter(model):
    """Row 0 is padded on the left, row 1 has a gap; what lies there is never seen."""
    config, params, adapter, extend, full, tokens = model
    slots_of = [list(range(4, 20)), [*range(0, 7), *range(11, 20)]]
    laid = np.random.default_rng(2).integers(0, 320, (2, SLOTS)).astype(np.int32)
    positions, valid = np.zeros((2, SLOTS), np.int32), np.zeros((2, SLOTS), bool)
    for i, slots in enumerate(slots_of):
        laid[i, slots], positions[i, slots] = tokens[i], np.arange(16)
        valid[i, slots] = True
    cache = init_cache(config, 2, SLOTS)
    head, cache = extend(
        params, adapter, laid[:, :12], positions[:, :12], valid, cache, jnp.int32(0)
    )
    hidden = [head]
    for slot in range(12, SLOTS):
        at = slice(slot, slot + 1)
        part, cache = extend(
            params, adapter, laid[:, at], positions[:, at], valid, cache, jnp.int32(slot)
        )
        hidden.append(part)
    hidden = np.concatenate(hidden, axis=1)
    for i, slots in enumerate(slots_of):
        np.testing.assert_allclose(hidden[i, slots], full[i], atol=2e-5)


def test_a_long_prefill_in_blocks_equals_the_whole(model, monkeypatch):
    config, params, adapter, _, full, tokens = model
    monkeypatch.setattr(cached_attention, "_SCORE_BUDGET", 1)
    # Three does not divide sixteen; blocks are powers of two: 2, with eight of them.
    monkeypatch.setattr(cached_attention, "_MIN_BLOCK", 3)
    positions = np.broadcast_to(np.arange(15, dtype=np.int32), (2, 15))
    valid = np.broadcast_to(np.arange(SLOTS) < 15, (2, SLOTS))
    part, _ = jax.jit(extend_fn(config))(
        params, adapter, tokens[:, :15], positions, valid, init_cache(config, 2, SLOTS), 0
    )
    np.testing.assert_allclose(part, full[:, :15], atol=2e-5)


def test_rows_and_slots_are_the_same_axes_of_every_array(model):
    """What a sampler does to spread prompts over the rows that continue them."""
    config, params, adapter, extend, full, tokens = model
    positions = np.broadcast_to(np.arange(16, dtype=np.int32), (2, 16))
    valid = np.arange(SLOTS)[None] < 16
    narrow = init_cache(config, 2, 15)
    _, narrow = extend(
        params, adapter, tokens[:, :15], positions[:, :15], valid.repeat(2, 0)[:, :15], narrow, 0
    )
    rows = np.array([1, 0, 1])

    def spread(x):
        pad = [(0, 0)] * x.ndim
        pad[2] = (0, SLOTS - 15)
        return jnp.pad(x[:, rows], pad)

    last, _ = extend(
        params,
        adapter,
        tokens[rows, 15:],
        positions[rows, 15:],
        valid.repeat(3, 0),
        jax.tree.map(spread, narrow),
        15,
    )
    np.testing.assert_allclose(last[:, 0], full[rows, 15], atol=2e-5)


def test_the_cache_keeps_its_dtypes_and_shapes(model):
    config, params, adapter, _, _, tokens = model
    cache = init_cache(config, 2, SLOTS, jnp.bfloat16)
    assert sum(x.size for x in jax.tree.leaves(cache)) == 2 * 2 * 2 * SLOTS * 2 * 32
    valid = np.ones((2, SLOTS), bool)
    _, after = jax.eval_shape(
        extend_fn(config), params, adapter, tokens, tokens, valid, cache, jnp.int32(0)
    )
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), cache
    )
