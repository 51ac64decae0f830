"""Log-probs of scored tokens, and the loss and its gradient, a few positions at a time.

Logits are by far the largest array of a language model, [tokens, vocabulary] in float32. Here they
exist for one chunk of scored positions only. The loss pass takes the gradient of a chunk while its
logits are at hand, so that nothing is kept or computed twice for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .arrays import Tree
from .losses import LossFn

Unembed = Callable[[Tree, jax.Array], jax.Array]
"""(trainable, hidden_ND) -> logits_NV."""
Totals = dict[str, jax.Array]

# Below this many positions a matrix product with the unembedding is bound by memory, not compute.
_MIN_POSITIONS = 128


class Slots(NamedTuple):
    """The scored slots of B rows, N each; `weight_BN` is mask / Σ mask of the whole batch."""

    hidden_BND: jax.Array
    targets_BN: jax.Array
    weight_BN: jax.Array
    advantages_BN: jax.Array
    sampler_logprobs_BN: jax.Array


def token_logprobs(logits_NV: jax.Array, targets_N: jax.Array) -> jax.Array:
    """log softmax(logits)[target] in float32, in nats.

    >>> token_logprobs(jnp.zeros((1, 4)), jnp.array([2])).tolist()  # -log 4
    [-1.3862943649291992]
    """
    logits_NV = logits_NV.astype(jnp.float32)
    # A masked sum rather than a gather: its transpose is elementwise too, and both fuse.
    is_target_NV = targets_N[:, None] == jnp.arange(logits_NV.shape[-1])
    target_logits_N = jnp.sum(jnp.where(is_target_NV, logits_NV, 0.0), axis=-1)
    return target_logits_N - jax.nn.logsumexp(logits_NV, axis=-1)


def gather_scored(hidden_BTD: jax.Array, scored_BN: jax.Array) -> jax.Array:
    """Hidden states at the scored positions, [B, N, D]."""
    return jnp.take_along_axis(hidden_BTD, scored_BN[..., None], axis=1)


def used_prefix(mask: jax.Array) -> jax.Array:
    """Length of the shortest prefix along the last axis that holds every non-zero entry."""
    used = jnp.any(mask > 0, axis=tuple(range(mask.ndim - 1)))
    return jnp.max(jnp.where(used, jnp.arange(1, mask.shape[-1] + 1), 0))


def slots_per_chunk(vocab_size: int, *, rows: int, slots: int, max_logits: int) -> int:
    """How many slots of every row to score at once so that about `max_logits` logits exist."""
    positions = max(max_logits // vocab_size, _MIN_POSITIONS)
    return min(max(positions // rows, 1), slots)


def scored_logprobs(
    unembed: Unembed, trainable: Tree, hidden_BND: jax.Array, targets_BN: jax.Array, *, chunk: int
) -> jax.Array:
    """Log-probs [B, N] of the targets, `chunk` slots of every row at a time."""
    B, N, D = hidden_BND.shape
    padded = _pad((hidden_BND, targets_BN), chunk)

    def score(index, logprobs_BN):
        hidden_BnD, targets_Bn = _slice(padded, index, chunk)
        logits_NV = unembed(trainable, hidden_BnD.reshape(-1, D))
        logprobs_Bn = token_logprobs(logits_NV, targets_Bn.reshape(-1)).reshape(B, chunk)
        return jax.lax.dynamic_update_slice_in_dim(logprobs_BN, logprobs_Bn, index * chunk, axis=1)

    out_BN = jnp.zeros(padded[1].shape, jnp.float32)
    return jax.lax.fori_loop(0, math.ceil(N / chunk), score, out_BN)[:, :N]


def loss_and_gradients(
    unembed: Unembed,
    loss: LossFn,
    trainable: Tree,
    slots: Slots,
    gradient: Tree,
    totals: Totals,
    *,
    chunk: int,
) -> tuple[Tree, Totals, jax.Array]:
    """Adds the weighted loss of B rows to running totals.

    Args:
      gradient: like `trainable`; d loss / d trainable *through the unembedding alone* is added.
      totals: from `zero_totals`; "loss" and the loss's own measurements are added.
      chunk: slots of every row that are scored at a time.

    Returns:
      gradient, totals, and d loss / d hidden_BND for the backward pass of the rest of the model.
    """
    B, N, D = slots.hidden_BND.shape
    padded = _pad(slots, chunk)

    def chunk_loss(trainable, hidden_BnD, part):
        logits_NV = unembed(trainable, hidden_BnD.reshape(-1, D))
        logprobs_N = token_logprobs(logits_NV, part.targets_BN.reshape(-1))
        loss_N, measured = loss(
            logprobs_N, part.sampler_logprobs_BN.reshape(-1), part.advantages_BN.reshape(-1)
        )
        weight_N = part.weight_BN.reshape(-1)
        value = jnp.sum(jnp.where(weight_N > 0, loss_N * weight_N, 0.0))
        return value, _reduce(measured, weight_N) | {"loss": value}

    def accumulate(index, carry):
        gradient, totals, d_hidden_BND = carry
        part = _slice(padded, index, chunk)
        gradient_of = jax.grad(chunk_loss, argnums=(0, 1), has_aux=True)
        (d_trainable, d_hidden_BnD), new = gradient_of(trainable, part.hidden_BND, part)
        # Leaves the unembedding does not use have a constant zero here, which XLA folds away.
        gradient = jax.tree.map(jnp.add, gradient, d_trainable)
        d_hidden_BND = jax.lax.dynamic_update_slice_in_dim(
            d_hidden_BND, d_hidden_BnD, index * chunk, axis=1
        )
        return gradient, add_totals(totals, new), d_hidden_BND

    used = used_prefix(slots.weight_BN)
    chunks = (used + chunk - 1) // chunk
    carry = gradient, totals, jnp.zeros_like(padded.hidden_BND)
    gradient, totals, d_hidden_BND = jax.lax.fori_loop(0, chunks, accumulate, carry)
    return gradient, totals, d_hidden_BND[:, :N]


def zero_totals(loss: LossFn) -> Totals:
    """The neutral element of `add_totals` for the measurements of this loss."""
    one = jax.ShapeDtypeStruct((1,), jnp.float32)
    _, measured = jax.eval_shape(loss, one, one, one)
    start = {name: -jnp.inf if name.endswith("_max") else 0.0 for name in measured}
    return {name: jnp.float32(value) for name, value in (start | {"loss": 0.0}).items()}


def add_totals(left: Totals, right: Totals) -> Totals:
    """Sums by name; names that end in "_max" take the larger."""
    return {
        name: (jnp.maximum if name.endswith("_max") else jnp.add)(left[name], right[name])
        for name in left
    }


def _reduce(measured: dict[str, jax.Array], weight_N: jax.Array) -> Totals:
    def reduce(name, values_N):
        if name.endswith("_max"):
            return jnp.max(jnp.where(weight_N > 0, values_N, -jnp.inf))
        return jnp.sum(jnp.where(weight_N > 0, values_N * weight_N, 0.0))

    return {name: reduce(name, values_N) for name, values_N in measured.items()}


def _pad(arrays: Any, chunk: int) -> Any:
    """Fills axis 1 with zeros up to a multiple of the chunk."""

    def pad(array):
        missing = -array.shape[1] % chunk
        return jnp.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2))

    return jax.tree.map(pad, arrays)


def _slice(arrays: Any, index: jax.Array, chunk: int) -> Any:
    return jax.tree.map(
        lambda array: jax.lax.dynamic_slice_in_dim(array, index * chunk, chunk, axis=1), arrays
    )
