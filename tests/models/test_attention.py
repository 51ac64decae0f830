"""Every implementation of `row_attention` against the plain formula, values and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.learner import ShardingRules, make_mesh
from jax_t2sql.models.attention import masked_attention, row_attention, row_layout
from jax_t2sql.models.experts import ExpertMesh
from jax_t2sql.models.splash_attention import splash_attention

SIZE, GROUPS, HEADS = 8, 2, 4


def masked_call(q, k, v, layout, prefix):
    return masked_attention(q, k, v, layout, prefix, implementation="xla")


def splash(q, k, v, layout, prefix):
    assert prefix is None
    return splash_attention(q, k, v, layout.segments_BT, interpret=True)


def splash_on_a_mesh(q, k, v, layout, prefix):
    mesh = ExpertMesh(make_mesh(devices=jax.devices()[:1]), ShardingRules())
    return splash_attention(q, k, v, layout.segments_BT, mesh, interpret=True)


WAYS = {
    "xla": functools.partial(row_attention, implementation="xla"),
    "masked": masked_call,
    "splash": splash,
    "splash on a mesh": splash_on_a_mesh,
}


def plain(q_BTHK, k_BTGK, v_BTGK, mask_BTS):
    """softmax(q kᵀ / √K) v, written out."""
    k_BSHK, v_BSHK = (jnp.repeat(x, HEADS // GROUPS, axis=2) for x in (k_BTGK, v_BTGK))
    scores_BHTS = jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / SIZE**0.5
    weights = jax.nn.softmax(jnp.where(mask_BTS[:, None], scores_BHTS, -1e9), axis=-1)
    return jnp.einsum("bhts,bshk->bthk", weights, v_BSHK)


def random_segments(rng, rows, length):
    """Segments 1, 2, … in order, then padding."""
    segments = np.zeros((rows, length), np.int32)
    for row in segments:
        cuts = np.sort(rng.integers(0, length + 1, 3))
        for number, (start, stop) in enumerate(zip([0, *cuts[:-1]], cuts, strict=True), start=1):
            row[start:stop] = number
    return segments


def random_arrays(rng, rows, length, prefix_rows=0, prefix_length=0):
    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    keys = rows, length, GROUPS, SIZE
    arrays = normal(rows, length, HEADS, SIZE), normal(*keys), normal(*keys)
    if not prefix_rows:
        return arrays, None
    shared = prefix_rows, prefix_length, GROUPS, SIZE
    return arrays, (normal(*shared), normal(*shared))


def value_and_gradients(attention, arrays, prefix, weights_BTHK):
    def total(arrays, prefix):
        return jnp.sum(attention(*arrays, prefix) * weights_BTHK)

    return jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(arrays, prefix)


def check(way, arrays, prefix, layout, mask_BTS, rng):
    real_BT = np.asarray(layout.segments_BT) > 0
    weights_BTHK = jnp.asarray(rng.normal(size=arrays[0].shape) * real_BT[..., None, None])

    def reference(q, k, v, prefix):
        if prefix is not None:
            rows = q.shape[0] // prefix[0].shape[0]
            k, v = (jnp.concatenate([jnp.repeat(p, rows, axis=0), x], axis=1)
                    for p, x in zip(prefix, (k, v), strict=True))  # fmt: skip
        return plain(q, k, v, mask_BTS)

    def ours(q, k, v, prefix):
        return way(q, k, v, layout, prefix)

    got, want = (value_and_gradients(f, arrays, prefix, weights_BTHK) for f in (ours, reference))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5), got, want)


def own_mask(segments):
    causal = np.tril(np.ones((segments.shape[1],) * 2, bool))
    return (segments[:, :, None] == segments[:, None]) & (segments[:, None] > 0) & causal


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [5, 300], ids=["one tile", "several tiles"])
def test_packed_rows(way, length):
    rng = np.random.default_rng(length)
    arrays, _ = random_arrays(rng, 2, length)
    segments = random_segments(rng, 2, length)
    check(WAYS[way], arrays, None, row_layout(segments), own_mask(segments), rng)


@pytest.mark.parametrize("way", ["xla", "masked"])
@pytest.mark.parametrize("length, prefix_length", [(6, 9), (70, 300)])
def test_rows_with_prefixes(way, length, prefix_length):
    rng = np.random.default_rng(length)
    arrays, prefix = random_arrays(rng, 4, length, 2, prefix_length)
    segments = random_segments(rng, 4, length)
    prefix_segments = random_segments(rng, 2, prefix_length)
    prefixes = np.where(segments > 0, rng.integers(0, 4, (4, 1)), 0).astype(np.int32)
    prefixes[0] = segments[0] % 3  # several prefixes in one row, and none
    layout = row_layout(segments, prefixes, prefix_segments)
    shared = np.repeat(prefix_segments, 2, axis=0)
    seen = (prefixes[:, :, None] == shared[:, None]) & (shared[:, None] > 0)
    mask = np.concatenate([seen, own_mask(segments)], axis=2)
    check(WAYS[way], arrays, prefix, layout, mask, rng)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_segments_in_any_order(seed):
    """Tiles are skipped by the range of their segments: interleaved ones must not be lost."""
    rng = np.random.default_rng(seed)
    arrays, _ = random_arrays(rng, 2, 300)
    segments = rng.integers(0, 4, (2, 300)).astype(np.int32)
    check(WAYS["xla"], arrays, None, row_layout(segments), own_mask(segments), rng)


def test_bfloat16_stays_near_float32():
    rng = np.random.default_rng(0)
    arrays, _ = random_arrays(rng, 2, 40)
    segments = np.ones((2, 40), np.int32)
    low = WAYS["xla"](*(x.astype(jnp.bfloat16) for x in arrays), row_layout(segments), None)
    assert low.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        low.astype(jnp.float32), plain(*arrays, own_mask(segments)), atol=0.03
    )


def test_unsuitable_implementations_are_refused():
    rng = np.random.default_rng(0)
    arrays, prefix = random_arrays(rng, 1, 4, 1, 4)
    ones = np.ones((1, 4), np.int32)
    layout = row_layout(ones, ones, ones)
    with pytest.raises(ValueError, match="splash attention has no prefix part"):
        row_attention(*arrays, layout, prefix, implementation="splash")
    with pytest.raises(ValueError, match="'flash' is unknown: use 'xla'"):
        row_attention(*arrays, layout, prefix, implementation="flash")
