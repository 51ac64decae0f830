"""Policy-gradient training of any language model that is two pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from . import logprobs as lp
from .arrays import ShardingRules, Tree
from .batch import LearnerBatch
from .losses import LossFn
from .placement import Placement, jit_on_device, jit_on_mesh
from .state import Learner, LearnerState
from .trainables import TrainableSpec

HiddenFn = Callable[[Tree, Tree | None, jax.Array, jax.Array, jax.Array], jax.Array]
"""(base, adapter, tokens_BT, positions_BT, segments_BT) -> hidden_BTD."""
UnembedFn = Callable[[Tree, Tree | None, jax.Array], jax.Array]
"""(base, adapter, hidden_ND) -> logits_NV."""


def make_learner(
    hidden_fn: HiddenFn,
    unembed_fn: UnembedFn,
    *,
    adapter: TrainableSpec,
    loss: LossFn,
    optimizer: optax.GradientTransformation,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
    base_desc: Tree | None = None,
    max_logits: int = 1 << 22,
) -> Learner:
    """Ties a model, a loss and an optimizer into jitted `init`, `update` and `logprobs`.

    Args:
      hidden_fn: (base, adapter, tokens_BT, positions_BT, segments_BT) -> hidden_BTD. A token may
        see only itself and earlier tokens of its own segment; segment 0 is padding.
      unembed_fn: (base, adapter, hidden_ND) -> logits_NV. Apart from `hidden_fn` so that logits are
        made only for scored positions, a chunk at a time.
      adapter: `LoraSpec` or `FullSpec`. With `FullSpec` the functions get None as adapter.
      loss: from `losses`, or any function of that type.
      optimizer: any optax transform, such as `make_optimizer`'s.
      mesh: devices to train on; rows of a micro-batch are split over the rule `batch`, the state
        as `base_desc` says. None: the default device.
      rules: logical to mesh axes; default `ShardingRules()`. Only with a mesh.
      base_desc: tree like the base with an `ArrayDesc` for each leaf, which gives base and state
        their shardings; place the base once, `jax.device_put(base, shardings(base_desc, mesh,
        rules))`, or every call moves it. Without it the base keeps its shardings on the mesh, or is
        replicated, and the state is replicated.
      max_logits: about how many logits may exist at once; 4 bytes each, a few times over.

    Raises:
      ValueError: rules or base_desc without a mesh. Targets that match nothing, collisions of
        rules and indivisible shapes show when `init` first sees the base.
    """
    if mesh is None:
        if rules is not None or base_desc is not None:
            raise ValueError("rules and base_desc say how to split arrays over a mesh: pass a mesh")
        placement = None
    else:
        placement = Placement(mesh, rules or ShardingRules(), adapter, optimizer, base_desc)

    def make_state(base: Tree, key: jax.Array) -> LearnerState:
        trainable = adapter.init(base, key)
        return LearnerState(trainable, optimizer.init(trainable), jnp.int32(0))

    def hidden_and_unembed(base: Tree, batch: LearnerBatch):
        """Both functions of the model on one micro-batch, seen as functions of the trainables."""

        def hidden(trainable):
            hidden_BTD = hidden_fn(
                *adapter.bind(base, trainable),
                batch.tokens_MBT,
                batch.positions_MBT,
                batch.segments_MBT,
            )
            return lp.gather_scored(hidden_BTD, batch.scored_MBN)

        def unembed(trainable, hidden_ND):
            return unembed_fn(*adapter.bind(base, trainable), hidden_ND)

        return hidden, unembed

    def chunk_size(unembed, trainable, hidden_BND) -> int:
        rows, slots, width = hidden_BND.shape
        one_1D = jax.ShapeDtypeStruct((1, width), hidden_BND.dtype)
        vocab_size = jax.eval_shape(unembed, trainable, one_1D).shape[-1]
        return lp.slots_per_chunk(vocab_size, rows=rows, slots=slots, max_logits=max_logits)

    def gradient(base: Tree, trainable: Tree, batch: LearnerBatch):
        """Gradient and metrics of the whole batch, one micro-batch in memory at a time."""
        tokens = jnp.sum(batch.mask_MBN)
        weight_MBN = batch.mask_MBN / jnp.maximum(tokens, 1.0)

        def constrain(gradient):
            if placement is None:
                return gradient
            return jax.lax.with_sharding_constraint(gradient, placement.trainable(base))

        def accumulate(index, carry):
            gradient, totals = carry
            micro, weight_BN = _take((batch, weight_MBN), index)
            hidden, unembed = hidden_and_unembed(base, micro)
            hidden_BND, pull_back = jax.vjp(hidden, trainable)
            slots = lp.Slots(
                hidden_BND,
                micro.targets_MBN,
                weight_BN,
                micro.advantages_MBN,
                micro.sampler_logprobs_MBN,
            )
            gradient, totals, d_hidden_BND = lp.loss_and_gradients(
                unembed,
                loss,
                trainable,
                slots,
                gradient,
                totals,
                chunk=chunk_size(unembed, trainable, hidden_BND),
            )
            (through_hidden,) = pull_back(d_hidden_BND)
            return constrain(jax.tree.map(jnp.add, gradient, through_hidden)), totals

        start = constrain(jax.tree.map(jnp.zeros_like, trainable))
        used = lp.used_prefix(jnp.moveaxis(batch.mask_MBN, 0, -1))
        gradients, totals = jax.lax.fori_loop(0, used, accumulate, (start, lp.zero_totals(loss)))
        return gradients, totals | {"tokens": tokens}

    def update(base: Tree, state: LearnerState, batch: LearnerBatch):
        gradients, metrics = gradient(base, state.trainable, batch)
        norm = optax.tree.norm(gradients)
        apply = jnp.isfinite(norm) & (metrics["tokens"] > 0)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.trainable)
        trainable = optax.apply_updates(state.trainable, updates)
        trainable, opt_state = jax.tree.map(
            lambda new, old: jnp.where(apply, new, old),
            (trainable, opt_state),
            (state.trainable, state.opt_state),
        )
        metrics |= {"grad_norm": norm, "skipped": 1.0 - apply.astype(jnp.float32)}
        return LearnerState(trainable, opt_state, state.step + 1), metrics

    def logprobs(base: Tree, trainable: Tree, batch: LearnerBatch):
        def score(index, out_MBN):
            micro = _take(batch, index)
            hidden, unembed = hidden_and_unembed(base, micro)
            hidden_BND = hidden(trainable)
            chunk = chunk_size(unembed, trainable, hidden_BND)
            logprobs_BN = lp.scored_logprobs(
                unembed, trainable, hidden_BND, micro.targets_MBN, chunk=chunk
            )
            logprobs_BN = jnp.where(micro.mask_MBN > 0, logprobs_BN, 0.0)
            return jax.lax.dynamic_update_index_in_dim(out_MBN, logprobs_BN, index, axis=0)

        used = lp.used_prefix(jnp.moveaxis(batch.mask_MBN, 0, -1))
        return jax.lax.fori_loop(0, used, score, jnp.zeros(batch.mask_MBN.shape, jnp.float32))

    if placement is None:
        return jit_on_device(make_state, update, logprobs)
    return jit_on_mesh(placement, make_state, update, logprobs)


def _take(arrays: Any, index: jax.Array) -> Any:
    """One micro-batch of arrays that start with axis M; field names keep the M."""
    return jax.tree.map(
        lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False), arrays
    )
