"""The gradient of a whole batch, one micro-batch in memory at a time, prompts computed once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from . import logprobs as lp
from .arrays import Tree
from .batch import LearnerBatch, SharedPrefix
from .losses import LossFn
from .normalize import Normalize, slot_weights
from .trainables import TrainableSpec


@dataclasses.dataclass(frozen=True)
class Model:
    """The functions of a model and what of it is trained; see `make_learner` for each."""

    hidden_fn: Callable[..., jax.Array]
    unembed_fn: Callable[..., jax.Array]
    prefix_fn: Callable[..., Tree] | None
    adapter: TrainableSpec
    max_logits: int

    def prefix(self, base: Tree, batch: LearnerBatch, block: jax.Array):
        """The prefixes of one block as a function of the trainables; None without prefixes."""
        if batch.prefix is None:
            return lambda trainable: None
        rows = batch.prefix
        arrays = _take((rows.tokens_KCP, rows.positions_KCP, rows.segments_KCP), block)
        more = _replay(rows.replay_KCPLE, block)
        return lambda trainable: self.prefix_fn(
            *self.adapter.bind(base, trainable), *arrays, **more
        )

    def hidden(self, base: Tree, batch: LearnerBatch, block: jax.Array, index: jax.Array):
        """Hidden states [B, N, D] at the scored positions of one micro-batch.

        A function of the trainables and of the state that `prefix` gave.
        """
        inputs = batch.tokens_MBT, batch.positions_MBT, batch.segments_MBT
        inputs, scored_BN = _take((inputs, batch.scored_MBN), index)

        def run(trainable, state):
            more = _replay(batch.replay_MBTLE, index)
            if batch.prefix is not None:
                rows = batch.prefix
                segments_CP, prefixes_BT = _take(rows.segments_KCP, block), _take(
                    rows.prefixes_MBT, index
                )  # fmt: skip
                more["prefix"] = SharedPrefix(state, segments_CP, prefixes_BT)
            bound = self.adapter.bind(base, trainable)
            return lp.gather_scored(self.hidden_fn(*bound, *inputs, **more), scored_BN)

        return run

    def unembed(self, base: Tree):
        return lambda trainable, hidden_ND: self.unembed_fn(
            *self.adapter.bind(base, trainable), hidden_ND
        )

    def chunk(self, unembed, trainable: Tree, hidden_BND: jax.Array) -> int:
        """Slots of every row to score at a time."""
        rows, slots, width = hidden_BND.shape
        one_1D = jax.ShapeDtypeStruct((1, width), hidden_BND.dtype)
        vocab_size = jax.eval_shape(unembed, trainable, one_1D).shape[-1]
        return lp.slots_per_chunk(vocab_size, rows=rows, slots=slots, max_logits=self.max_logits)


def batch_gradient(
    model: Model,
    loss: LossFn,
    normalize: Normalize,
    base: Tree,
    trainable: Tree,
    batch: LearnerBatch,
    constrain: Callable[[Tree], Tree],
    sources: int = 0,
) -> tuple[Tree, lp.Totals]:
    """Gradient and metrics of Σ weight · loss over the whole batch.

    The prompts of a block are run once and kept as a function to be pulled back. Its micro-batches
    add up what they want of the prompts' state, and one backward pass sends that on.

    Args:
      constrain: says where a gradient lives on a mesh.
      sources: how many the batch may name.
    """
    weights = slot_weights(batch, normalize)
    zeros = constrain(jax.tree.map(jnp.zeros_like, trainable))
    first_K, stop_K = _blocks(batch)
    unembed = model.unembed(base)

    def block(k, carry):
        gradient, totals = carry
        prefix_state, pull_prefix = jax.vjp(model.prefix(base, batch, k), trainable)

        def micro_batch(index, carry):
            gradient, d_state, totals = carry
            hidden_BND, pull_back = jax.vjp(
                model.hidden(base, batch, k, index), trainable, prefix_state
            )
            slots = _take(
                lp.Slots(
                    None,
                    batch.targets_MBN,
                    *weights,
                    batch.advantages_MBN,
                    batch.sampler_logprobs_MBN,
                    batch.reference_logprobs_MBN,
                    batch.sources_MBN,
                ),
                index,
            )._replace(hidden_BND=hidden_BND)
            chunk = model.chunk(unembed, trainable, hidden_BND)
            gradient, totals, d_hidden_BND = lp.loss_and_gradients(
                unembed, loss, trainable, slots, gradient, totals, chunk=chunk, sources=sources
            )
            through_hidden, into_prefix = pull_back(d_hidden_BND)
            d_state = jax.tree.map(lambda a, b: a + b.astype(a.dtype), d_state, into_prefix)
            return constrain(jax.tree.map(jnp.add, gradient, through_hidden)), d_state, totals

        # Many micro-batches add to the state's gradient: float32, whatever the state is in.
        d_state = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), prefix_state)
        carry = gradient, d_state, totals
        gradient, d_state, totals = jax.lax.fori_loop(first_K[k], stop_K[k], micro_batch, carry)
        d_state = jax.tree.map(lambda d, x: d.astype(x.dtype), d_state, prefix_state)
        (through_prefix,) = pull_prefix(d_state)
        return constrain(jax.tree.map(jnp.add, gradient, through_prefix)), totals

    sources = 0 if batch.sources_MBN is None else sources
    with_reference = batch.reference_logprobs_MBN is not None
    start = zeros, lp.zero_totals(loss, with_reference=with_reference, sources=sources)
    used = lp.used_prefix(stop_K - first_K)
    gradient, totals = jax.lax.fori_loop(0, used, block, start)
    return gradient, lp.finish_totals(totals) | _counts(batch, first_K, stop_K)


def batch_logprobs(model: Model, base: Tree, trainable: Tree, batch: LearnerBatch) -> jax.Array:
    """Log-probs of all targets, 0 in empty slots."""
    first_K, stop_K = _blocks(batch)
    unembed = model.unembed(base)

    def block(k, out_MBN):
        state = model.prefix(base, batch, k)(trainable)

        def micro_batch(index, out_MBN):
            targets_BN, mask_BN = _take((batch.targets_MBN, batch.mask_MBN), index)
            hidden_BND = model.hidden(base, batch, k, index)(trainable, state)
            chunk = model.chunk(unembed, trainable, hidden_BND)
            logprobs_BN = lp.scored_logprobs(
                unembed, trainable, hidden_BND, targets_BN, chunk=chunk
            )
            logprobs_BN = jnp.where(mask_BN > 0, logprobs_BN, 0.0)
            return jax.lax.dynamic_update_index_in_dim(out_MBN, logprobs_BN, index, axis=0)

        return jax.lax.fori_loop(first_K[k], stop_K[k], micro_batch, out_MBN)

    out_MBN = jnp.zeros(batch.mask_MBN.shape, jnp.float32)
    return jax.lax.fori_loop(0, lp.used_prefix(stop_K - first_K), block, out_MBN)


def _blocks(batch: LearnerBatch) -> tuple[jax.Array, jax.Array]:
    """First and stop of each block's micro-batches; the last is one that holds a scored token."""
    index_M = jnp.arange(batch.mask_MBN.shape[0])
    if batch.prefix is None:
        first_K, stop_K = jnp.zeros(1, jnp.int32), jnp.full(1, index_M.size)
    else:
        stop_K = jnp.max(batch.prefix.stop_KC, axis=1)
        first_K = jnp.concatenate([jnp.zeros(1, stop_K.dtype), stop_K[:-1]])
    used_M = jnp.any(batch.mask_MBN > 0, axis=(1, 2))
    inside_KM = (index_M >= first_K[:, None]) & (index_M < stop_K[:, None])
    return first_K, jnp.max(jnp.where(inside_KM & used_M, index_M + 1, first_K[:, None]), axis=1)


def _counts(batch: LearnerBatch, first_K: jax.Array, stop_K: jax.Array) -> lp.Totals:
    """Sampled tokens, and the share of the computed positions that is padding."""
    M, B, T = batch.segments_MBT.shape
    index_M = jnp.arange(M)
    used_M = jnp.any((index_M >= first_K[:, None]) & (index_M < stop_K[:, None]), axis=0)
    real = jnp.sum((batch.segments_MBT > 0) & used_M[:, None, None])
    computed = jnp.sum(used_M) * B * T
    if batch.prefix is not None:
        segments_KCP, used_K = batch.prefix.segments_KCP, stop_K > first_K
        real += jnp.sum((segments_KCP > 0) & used_K[:, None, None])
        computed += jnp.sum(used_K) * segments_KCP[0].size
    padding = 1.0 - real / jnp.maximum(computed, 1)
    return {"tokens": jnp.sum(batch.mask_MBN), "padding_share": padding.astype(jnp.float32)}


def _replay(replay_MBTLE: Any, index: jax.Array) -> dict[str, jax.Array]:
    """The keyword argument for recorded experts, layers first; none without a record."""
    if replay_MBTLE is None:
        return {}
    return {"replay_LBTE": jnp.moveaxis(_take(replay_MBTLE, index), 2, 0)}


def _take(arrays: Any, index: jax.Array) -> Any:
    """One entry along the first axis; field names keep its letter."""
    return jax.tree.map(
        lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False), arrays
    )
