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

SOURCE_TOTALS = ("source_tokens", "source_ratio", "source_log_ratio")
"""What is measured by source; see `make_learner`."""

# Below this many positions a matrix product with the unembedding is bound by memory, not compute.
_MIN_POSITIONS = 128


class Slots(NamedTuple):
    """The scored slots of B rows, N each.

    `weight_BN` is the weight of a token's loss, `share_BN` its weight in averages over tokens; both
    know the whole batch and are 0 in empty slots.
    """

    hidden_BND: jax.Array
    targets_BN: jax.Array
    weight_BN: jax.Array
    share_BN: jax.Array
    advantages_BN: jax.Array
    sampler_logprobs_BN: jax.Array
    reference_logprobs_BN: jax.Array | None
    sources_BN: jax.Array | None


def token_logprobs(logits_NV: jax.Array, targets_N: jax.Array) -> jax.Array:
    """log softmax(logits)[target] in float32, in nats.

    >>> token_logprobs(jnp.zeros((1, 4)), jnp.array([2])).tolist()  # -log 4
    [-1.3862943649291992]
    """
    return logprobs_and_entropy(logits_NV, targets_N)[0]


@jax.custom_vjp
def logprobs_and_entropy(logits_NV: jax.Array, targets_N: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`token_logprobs`, and the entropy of the distributions in nats, as a measurement.

    No gradient flows through the entropy.

    >>> logprobs_N, entropy_N = logprobs_and_entropy(jnp.zeros((1, 4)), jnp.array([2]))
    >>> entropy_N.tolist()  # log 4
    [1.3862943649291992]
    """
    return _score(logits_NV, targets_N)[0]


def _score(logits_NV, targets_N):
    wide_NV = logits_NV.astype(jnp.float32)
    highest_N = jnp.max(wide_NV, axis=-1)
    # The barrier keeps XLA from computing the exponential again for each of its uses.
    shifted_NV = wide_NV - highest_N[:, None]
    exp_NV = jax.lax.optimization_barrier(jnp.exp(shifted_NV))
    sum_N = jnp.sum(exp_NV, axis=-1)
    log_sum_N = jnp.log(sum_N)
    # A masked sum rather than a gather, which would collect a vocabulary split over devices.
    is_target_NV = targets_N[:, None] == jnp.arange(wide_NV.shape[-1])
    target_logits_N = jnp.sum(jnp.where(is_target_NV, shifted_NV, 0.0), axis=-1)
    entropy_N = log_sum_N - jnp.sum(exp_NV * shifted_NV, axis=-1) / sum_N
    return (target_logits_N - log_sum_N, entropy_N), (exp_NV, sum_N, targets_N, logits_NV[:0])


def _score_backward(saved, cotangents):
    """d log π / d logits = [is target] − π, from the exponentials of the forward pass."""
    exp_NV, sum_N, targets_N, like = saved
    d_logprobs_N = cotangents[0]
    is_target_NV = targets_N[:, None] == jnp.arange(exp_NV.shape[-1])
    d_logits_NV = jnp.where(is_target_NV, d_logprobs_N[:, None], 0.0)
    d_logits_NV -= exp_NV * (d_logprobs_N / sum_N)[:, None]
    return d_logits_NV.astype(like.dtype), None


logprobs_and_entropy.defvjp(_score, _score_backward)


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
    sources: int = 0,
) -> tuple[Tree, Totals, jax.Array]:
    """Adds the weighted loss of B rows to running totals.

    Args:
      gradient: like `trainable`; d loss / d trainable *through the unembedding alone* is added.
      totals: from `zero_totals`; "loss" and the loss's own measurements are added.
      chunk: slots of every row that are scored at a time.
      sources: how many there may be, of which the ratios are added up apart.

    Returns:
      gradient, totals, and d loss / d hidden_BND for the backward pass of the rest of the model.
    """
    B, N, D = slots.hidden_BND.shape
    padded = _pad(slots, chunk)

    def chunk_loss(trainable, hidden_BnD, part):
        logits_NV = unembed(trainable, hidden_BnD.reshape(-1, D))
        flat = jax.tree.map(lambda x: x.reshape(-1), part._replace(hidden_BND=None))
        logprobs_N, entropy_N = logprobs_and_entropy(logits_NV, flat.targets_BN)
        inputs = logprobs_N, flat.sampler_logprobs_BN, flat.advantages_BN
        if flat.reference_logprobs_BN is not None:
            inputs += (flat.reference_logprobs_BN,)
        loss_N, measured = loss(*inputs)
        used_N, weight_N = flat.share_BN > 0, flat.weight_BN
        value = jnp.sum(jnp.where(used_N, loss_N * weight_N, 0.0))
        measured = measured | {"entropy": entropy_N}
        totals = _reduce(measured, flat.share_BN) | {"loss": value}
        if flat.sources_BN is not None and sources:
            log_ratio_N = logprobs_N - flat.sampler_logprobs_BN
            of_N = jnp.where(used_N, flat.sources_BN, 0)
            totals |= jax.lax.stop_gradient(_by_source(log_ratio_N, of_N, sources))
        return value, totals

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

    used = used_prefix(slots.share_BN)
    chunks = (used + chunk - 1) // chunk
    carry = gradient, totals, jnp.zeros_like(padded.hidden_BND)
    gradient, totals, d_hidden_BND = jax.lax.fori_loop(0, chunks, accumulate, carry)
    return gradient, totals, d_hidden_BND[:, :N]


def zero_totals(loss: LossFn, *, with_reference: bool = False, sources: int = 0) -> Totals:
    """The neutral element of `add_totals` for the measurements of this loss."""
    one = jax.ShapeDtypeStruct((1,), jnp.float32)
    _, measured = jax.eval_shape(loss, *[one] * (4 if with_reference else 3))
    start = {name: -jnp.inf if name.endswith("_max") else 0.0 for name in measured}
    start |= {"loss": 0.0, "entropy": 0.0}
    totals = {name: jnp.float32(value) for name, value in start.items()}
    if sources:
        totals |= dict.fromkeys(SOURCE_TOTALS, jnp.zeros(sources, jnp.float32))
    return totals


def finish_totals(totals: Totals) -> Totals:
    """Replaces what only sums could carry: the effective sample size, (Σ r)² / (n Σ r²)."""
    if "ratio_square" not in totals:
        return totals
    totals = dict(totals)
    square = totals.pop("ratio_square")
    return totals | {"ess": totals["ratio_mean"] ** 2 / jnp.maximum(square, 1e-30)}


def add_totals(left: Totals, right: Totals) -> Totals:
    """Sums by name; names that end in "_max" take the larger."""
    return {
        name: (jnp.maximum if name.endswith("_max") else jnp.add)(left[name], right[name])
        for name in left
    }


def _reduce(measured: dict[str, jax.Array], share_N: jax.Array) -> Totals:
    def reduce(name, values_N):
        if name.endswith("_max"):
            return jnp.max(jnp.where(share_N > 0, values_N, -jnp.inf))
        return jnp.sum(jnp.where(share_N > 0, values_N * share_N, 0.0))

    return {name: reduce(name, values_N) for name, values_N in measured.items()}


def _by_source(log_ratio_N: jax.Array, sources_N: jax.Array, sources: int) -> Totals:
    """Tokens, ratios and their logarithms of each source, summed: S numbers each."""
    member_SN = sources_N == jnp.arange(1, sources + 1)[:, None]
    values = jnp.ones_like(log_ratio_N), jnp.exp(log_ratio_N), log_ratio_N
    # A masked sum: one source that is not finite must not reach the others.
    sums = [jnp.sum(jnp.where(member_SN, value_N, 0.0), axis=-1) for value_N in values]
    return dict(zip(SOURCE_TOTALS, sums, strict=True))


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
