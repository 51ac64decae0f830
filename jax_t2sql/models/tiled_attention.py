"""Exact attention in tiles of queries and keys, with its own backward pass, in plain XLA.

FlashAttention (arXiv 2205.14135, 2307.08691): a running maximum and sum make the softmax exact
while only one tile of scores exists, small enough to stay in the processor's cache. The backward
pass recomputes the tile from the saved log-sum-exp. The loops skip tiles that nothing is seen in.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

# Queries and keys a tile: smaller ones cost more loop steps, larger ones fall out of the cache.
_TILE = 256
# Finite, so that a query that sees nothing (padding) gives numbers instead of NaN.
_MASKED = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sight:
    """Who sees whom: query i sees key j if their ids are equal and positive (and j <= i if causal).

    Attributes:
      query_ids_BT, key_ids_BS: int32; T and S are multiples of the tiles' sides.
      first_I, stop_I: int32, key tiles [first, stop) hold all that query tile i sees, in any row.
      query_tile, key_tile: the sides of a tile.
      causal: whether later keys are hidden; only where queries and keys are the same tokens.
    """

    query_ids_BT: jax.Array
    key_ids_BS: jax.Array
    first_I: jax.Array
    stop_I: jax.Array
    query_tile: int = dataclasses.field(metadata={"static": True})
    key_tile: int = dataclasses.field(metadata={"static": True})
    causal: bool = dataclasses.field(metadata={"static": True})


def tile_side(length: int) -> int:
    """The side of equal tiles over `length` tokens that leaves little padding in the last one."""
    even = math.ceil(length / math.ceil(length / _TILE))
    return math.ceil(even / 8) * 8


def pad_to_tiles(array: jax.Array, axis: int) -> jax.Array:
    """Zeros at the end of an axis, up to a multiple of its tiles' side."""
    missing = -array.shape[axis] % tile_side(array.shape[axis])
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return jnp.pad(array, widths) if missing else array


def sight(query_ids_BT: jax.Array, key_ids_BS: jax.Array, *, causal: bool) -> Sight:
    """Finds the tiles in which anything is seen. The same for all layers, so made once."""
    query_tile, key_tile = tile_side(query_ids_BT.shape[1]), tile_side(key_ids_BS.shape[1])
    query_ids_BT, key_ids_BS = pad_to_tiles(query_ids_BT, 1), pad_to_tiles(key_ids_BS, 1)

    def span(ids_BN, side):
        """Least and greatest positive id of every tile."""
        ids_BIn = ids_BN.reshape(ids_BN.shape[0], -1, side)
        low_BI = jnp.min(jnp.where(ids_BIn > 0, ids_BIn, jnp.iinfo(ids_BN.dtype).max), axis=-1)
        return low_BI, jnp.max(ids_BIn, axis=-1)

    query_low_BI, query_high_BI = span(query_ids_BT, query_tile)
    key_low_BJ, key_high_BJ = span(key_ids_BS, key_tile)
    seen_BIJ = query_low_BI[:, :, None] <= key_high_BJ[:, None]
    seen_BIJ &= key_low_BJ[:, None] <= query_high_BI[:, :, None]
    seen_IJ = jnp.any(seen_BIJ, axis=0)
    tiles_J = jnp.arange(seen_IJ.shape[1])
    if causal:
        last_I = (jnp.arange(1, seen_IJ.shape[0] + 1) * query_tile - 1) // key_tile
        seen_IJ &= tiles_J <= last_I[:, None]
    first_I = jnp.min(jnp.where(seen_IJ, tiles_J, tiles_J.size), axis=1)
    stop_I = jnp.max(jnp.where(seen_IJ, tiles_J + 1, 0), axis=1)
    return Sight(query_ids_BT, key_ids_BS, first_I, stop_I, query_tile, key_tile, causal)


def _visible(seen: Sight, i: jax.Array, j: jax.Array) -> jax.Array:
    """[B, queries, keys] of tile (i, j)."""
    own_BQ = _take(seen.query_ids_BT, i, 1, seen.query_tile)
    theirs_BS = _take(seen.key_ids_BS, j, 1, seen.key_tile)
    visible_BQS = (own_BQ[:, :, None] == theirs_BS[:, None]) & (theirs_BS[:, None] > 0)
    if seen.causal:
        own_Q = i * seen.query_tile + jnp.arange(seen.query_tile)
        theirs_S = j * seen.key_tile + jnp.arange(seen.key_tile)
        visible_BQS &= own_Q[:, None] >= theirs_S
    return visible_BQS


def forward(
    q_GBRTK: jax.Array, k_GBSK: jax.Array, v_GBSK: jax.Array, seen: Sight
) -> tuple[jax.Array, jax.Array]:
    """Attention output [G, B, R, T, K] and log-sum-exp of the scores [G, B, R, T], in float32.

    The R query heads of a key/value head are rows of one matrix product; queries come scaled. A
    query that sees nothing gets a log-sum-exp near the least finite score.
    """
    groups, batch, shared, _, size = q_GBRTK.shape
    tile = groups, batch, shared, seen.query_tile

    def query_tile(i, carry):
        out_GBRTK, lse_GBRT = carry
        q_GBQK = _rows(q_GBRTK, i, seen.query_tile)

        def key_tile(j, running):
            highest_GBQ, sum_GBQ, out_GBQK = running
            k_GBsK, v_GBsK = (_take(x, j, 2, seen.key_tile) for x in (k_GBSK, v_GBSK))
            scores = _scores(q_GBQK, k_GBsK).reshape(*tile, -1)
            scores = jnp.where(_visible(seen, i, j)[None, :, None], scores, _MASKED)
            scores = scores.reshape(*q_GBQK.shape[:3], -1)
            new_GBQ = jnp.maximum(highest_GBQ, jnp.max(scores, axis=-1))
            # The barrier keeps XLA from computing the exponential once for each of its two uses.
            weights = jax.lax.optimization_barrier(jnp.exp(scores - new_GBQ[..., None]))
            decay_GBQ = jnp.exp(highest_GBQ - new_GBQ)
            part_GBQK = jnp.einsum(
                "gbqs,gbsk->gbqk",
                weights.astype(v_GBsK.dtype),
                v_GBsK,
                preferred_element_type=jnp.float32,
            )
            return (
                new_GBQ,
                sum_GBQ * decay_GBQ + jnp.sum(weights, axis=-1),
                out_GBQK * decay_GBQ[..., None] + part_GBQK,
            )

        start = (
            jnp.full(q_GBQK.shape[:3], _MASKED, jnp.float32),
            jnp.zeros(q_GBQK.shape[:3], jnp.float32),
            jnp.zeros(q_GBQK.shape, jnp.float32),
        )
        highest_GBQ, sum_GBQ, out_GBQK = jax.lax.fori_loop(
            seen.first_I[i], seen.stop_I[i], key_tile, start
        )
        sum_GBQ = jnp.maximum(sum_GBQ, 1e-30)
        out_GBQK /= sum_GBQ[..., None]
        lse_GBQ = highest_GBQ + jnp.log(sum_GBQ)
        return (
            _put(out_GBRTK, out_GBQK.reshape(*tile, size), i, seen.query_tile),
            _put(lse_GBRT, lse_GBQ.reshape(tile), i, seen.query_tile),
        )

    start = jnp.zeros(q_GBRTK.shape, jnp.float32), jnp.zeros(q_GBRTK.shape[:4], jnp.float32)
    return jax.lax.fori_loop(0, seen.first_I.shape[0], query_tile, start)


def backward(
    q_GBRTK: jax.Array,
    k_GBSK: jax.Array,
    v_GBSK: jax.Array,
    seen: Sight,
    lse_GBRT: jax.Array,
    delta_GBRT: jax.Array,
    d_out_GBRTK: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q, k and v in float32.

    `lse_GBRT` may be that of more keys than these: the weights are then those of a softmax over
    all. `delta_GBRT` is Σ_k output · d output (FlashAttention-2, §3.1).
    """
    groups, batch, shared, _, _ = q_GBRTK.shape
    tile = groups, batch, shared, seen.query_tile

    def query_tile(i, carry):
        dq_GBRTK, dk_GBSK, dv_GBSK = carry
        q_GBQK, d_out_GBQK, lse_GBQ, delta_GBQ = (
            _rows(x, i, seen.query_tile) for x in (q_GBRTK, d_out_GBRTK, lse_GBRT, delta_GBRT)
        )

        def key_tile(j, running):
            dq_GBQK, dk_GBSK, dv_GBSK = running
            k_GBsK, v_GBsK = (_take(x, j, 2, seen.key_tile) for x in (k_GBSK, v_GBSK))
            weights = jnp.exp(_scores(q_GBQK, k_GBsK) - lse_GBQ[..., None]).reshape(*tile, -1)
            weights = jnp.where(_visible(seen, i, j)[None, :, None], weights, 0.0)
            weights = jax.lax.optimization_barrier(weights.reshape(*q_GBQK.shape[:3], -1))
            d_scores = weights * (_scores(d_out_GBQK, v_GBsK) - delta_GBQ[..., None])
            weights, d_scores = weights.astype(q_GBQK.dtype), d_scores.astype(q_GBQK.dtype)
            return (
                dq_GBQK + _product("gbqs,gbsk->gbqk", d_scores, k_GBsK),
                _add(dk_GBSK, _product("gbqs,gbqk->gbsk", d_scores, q_GBQK), j, seen.key_tile),
                _add(dv_GBSK, _product("gbqs,gbqk->gbsk", weights, d_out_GBQK), j, seen.key_tile),
            )

        start = jnp.zeros(q_GBQK.shape, jnp.float32), dk_GBSK, dv_GBSK
        dq_GBQK, dk_GBSK, dv_GBSK = jax.lax.fori_loop(
            seen.first_I[i], seen.stop_I[i], key_tile, start
        )
        dq_GBRTK = _put(dq_GBRTK, dq_GBQK.reshape(*tile, -1), i, seen.query_tile)
        return dq_GBRTK, dk_GBSK, dv_GBSK

    start = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q_GBRTK, k_GBSK, v_GBSK))
    return jax.lax.fori_loop(0, seen.first_I.shape[0], query_tile, start)


def _product(pattern: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.einsum(pattern, left, right, preferred_element_type=jnp.float32)


def _scores(q_GBQK: jax.Array, k_GBSK: jax.Array) -> jax.Array:
    return _product("gbqk,gbsk->gbqs", q_GBQK, k_GBSK)


def _take(array: jax.Array, index: jax.Array, axis: int, side: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, index * side, side, axis)


def _rows(array: jax.Array, index: jax.Array, side: int) -> jax.Array:
    """[G, B, R, T, ...] -> [G, B, R · side, ...], the rows of one tile of queries."""
    part = _take(array, index, 3, side)
    return part.reshape(*part.shape[:2], -1, *part.shape[4:])


def _put(array: jax.Array, part: jax.Array, index: jax.Array, side: int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(array, part, index * side, 3)


def _add(array: jax.Array, part: jax.Array, index: jax.Array, side: int) -> jax.Array:
    part = part + _take(array, index, 2, side)
    return jax.lax.dynamic_update_slice_in_dim(array, part, index * side, 2)
