"""Attention over a key/value cache, blocked over queries so that long prompts fit in memory."""

import math

import jax
import jax.numpy as jnp
import numpy as np

# Score elements alive at once (float32): 2**25 is 128 MiB.
_SCORE_BUDGET = 2**25
_MIN_BLOCK = 32
_MAX_BLOCK = 256
# Finite, so that a row that may see nothing (padding) gives numbers instead of NaN.
_MASKED = -1e30


def cached_attention(
    q_BTHK: jax.Array, k_GBSK: jax.Array, v_GBSK: jax.Array, valid_BS: jax.Array, slot: jax.Array
) -> jax.Array:
    """Attention over a cache: query t stands at slot `slot + t` and sees valid slots up to it."""
    batch, length, heads, size = q_BTHK.shape
    slots = valid_BS.shape[1]
    block = _query_block(batch, length, heads, slots)

    def run(q_BQHK: jax.Array, start: jax.Array) -> jax.Array:
        own_Q = slot + start + jnp.arange(q_BQHK.shape[1])
        mask_BQS = valid_BS[:, None, :] & (jnp.arange(slots) <= own_Q[:, None])
        return _attend(q_BQHK, k_GBSK, v_GBSK, mask_BQS)

    if block == length:
        return run(q_BTHK, 0)
    count = -(-length // block)
    padded = jnp.pad(q_BTHK, ((0, 0), (0, count * block - length), (0, 0), (0, 0)))
    q_NBQHK = padded.reshape(batch, count, block, heads, size).swapaxes(0, 1)
    out_NBQHK = jax.lax.map(lambda x: run(*x), (q_NBQHK, jnp.arange(count) * block))
    return out_NBQHK.swapaxes(0, 1).reshape(batch, -1, heads, size)[:, :length]


def _attend(q_BTHK: jax.Array, k_GBSK: jax.Array, v_GBSK: jax.Array, mask_BTS: jax.Array):
    """softmax(q kᵀ / √K) v, where `mask_BTS` is True; softmax in float32.

    G key/value heads serve H = G·R query heads, consecutive ones sharing (GQA, arXiv:2305.13245).
    Keys and values have their matrix dimensions last: any other order makes XLA copy them.
    Returns [B, T, H, K].
    """
    batch, length, heads, size = q_BTHK.shape
    groups = k_GBSK.shape[0]
    shared = heads // groups
    q_BTGRK = q_BTHK.reshape(batch, length, groups, shared, size)
    # The R·T queries of a group are rows of one matrix product.
    q_GBQK = q_BTGRK.transpose(2, 0, 3, 1, 4).reshape(groups, batch, shared * length, size)
    q_GBQK = q_GBQK * np.asarray(1 / math.sqrt(size), q_GBQK.dtype)
    scores_GBQS = jnp.einsum("gbqk,gbsk->gbqs", q_GBQK, k_GBSK, preferred_element_type=jnp.float32)
    scores_GBRTS = scores_GBQS.reshape(groups, batch, shared, length, -1)
    scores_GBRTS = jnp.where(mask_BTS[None, :, None], scores_GBRTS, _MASKED)
    weights_GBRTS = jax.nn.softmax(scores_GBRTS, axis=-1).astype(v_GBSK.dtype)
    out_GBQK = jnp.einsum("gbqs,gbsk->gbqk", weights_GBRTS.reshape(scores_GBQS.shape), v_GBSK)
    out_GBRTK = out_GBQK.reshape(groups, batch, shared, length, size)
    return out_GBRTK.transpose(1, 3, 0, 2, 4).reshape(batch, length, heads, size)


def _query_block(batch: int, length: int, heads: int, slots: int) -> int:
    """Queries a block: a power of two that keeps the scores of a block within the budget."""
    fitting = max(_SCORE_BUDGET // (batch * heads * slots), _MIN_BLOCK)
    return min(length, _MAX_BLOCK, 2 ** int(math.log2(fitting)))
