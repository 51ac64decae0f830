"""Policy-gradient training of any language model that is two pure functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from .arrays import ShardingRules, Tree
from .batch import LearnerBatch, check_batch
from .gradient import Model, batch_gradient, batch_logprobs
from .losses import LossFn
from .normalize import Normalize, check_normalize
from .placement import Placement, jit_on_device, jit_on_mesh
from .state import Learner, LearnerState
from .trainables import TrainableSpec

HiddenFn = Callable[..., jax.Array]
"""(base, adapter, tokens_BT, positions_BT, segments_BT[, replay_LBTE, prefix]) -> hidden_BTD."""
PrefixFn = Callable[..., Tree]
"""(base, adapter, tokens_CP, positions_CP, segments_CP[, replay_LBTE]) -> `SharedPrefix` state."""
UnembedFn = Callable[[Tree, Tree | None, jax.Array], jax.Array]
"""(base, adapter, hidden_ND) -> logits_NV."""


def make_learner(
    hidden_fn: HiddenFn,
    unembed_fn: UnembedFn,
    *,
    adapter: TrainableSpec,
    loss: LossFn,
    optimizer: optax.GradientTransformation,
    prefix_fn: PrefixFn | None = None,
    normalize: Normalize = "tokens",
    drop_zero_signal: bool = False,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
    base_desc: Tree | None = None,
    max_logits: int = 1 << 22,
    sources: int = 0,
) -> Learner:
    """Ties a model, a loss and an optimizer into jitted `init`, `update` and `logprobs`.

    Args:
      hidden_fn: (base, adapter, tokens_BT, positions_BT, segments_BT) -> hidden_BTD. A token may
        see only itself and earlier tokens of its own segment; segment 0 is padding. Batches of
        `pack_shared` come with a keyword argument `prefix`, a `SharedPrefix`: what a token sees of
        its prompt; those of trajectories with recorded experts with `replay_LBTE`, which prefix_fn
        gets too.
      unembed_fn: (base, adapter, hidden_ND) -> logits_NV. Apart from `hidden_fn` so that logits are
        made only for scored positions, a chunk at a time.
      adapter: `LoraSpec` or `FullSpec`. With `FullSpec` the functions get None as adapter.
      loss: from `losses`, or any function of that type.
      optimizer: any optax transform, such as `make_optimizer`'s.
      prefix_fn: makes the state of a `SharedPrefix` from rows of prompts; whatever it is, gradients
        flow back into it. Only batches of `pack_shared` need it.
      normalize: "tokens", "sequences" or a number, see `normalize.Normalize`.
      drop_zero_signal: leave tokens with advantage 0 out of loss, normalisation and averages: those
        of groups whose members are all equally good (DAPO's filter, arXiv 2503.14476, §3.2).
      mesh: devices to train on; rows of a micro-batch are split over the rule `batch`, the state
        as `base_desc` says. None: the default device.
      rules: logical to mesh axes; default `ShardingRules()`. Only with a mesh.
      base_desc: tree like the base with an `ArrayDesc` for each leaf, which gives base and state
        their shardings; place the base once, `jax.device_put(base, shardings(base_desc, mesh,
        rules))`, or every call moves it. Without it the base keeps its shardings on the mesh, or is
        replicated, and the state is replicated.
      max_logits: about how many logits may exist at once; 4 bytes each, a few times over.
      sources: S, the most sources that a batch may name (`Trajectory.sources_T`). `update` then
        measures them apart from the same forward pass: float32 arrays of S numbers,
        `source_tokens` (how many count), `source_ratio` (Σ π / π_sampler) and `source_log_ratio`
        (Σ log π − log π_sampler); index s is of source s + 1. Not there for a batch without any.

    Raises:
      ValueError: rules or base_desc without a mesh; an unknown normalize; negative sources. Targets
        that match nothing, collisions of rules and indivisible shapes show when `init` first sees
        the base.
    """
    check_normalize(normalize)
    if sources < 0:
        raise ValueError(f"sources must be at least 0, got {sources}")
    if mesh is None:
        if rules is not None or base_desc is not None:
            raise ValueError("rules and base_desc say how to split arrays over a mesh: pass a mesh")
        placement = None
    else:
        placement = Placement(mesh, rules or ShardingRules(), adapter, optimizer, base_desc)

    def make_state(base: Tree, key: jax.Array) -> LearnerState:
        trainable = adapter.init(base, key)
        return LearnerState(trainable, optimizer.init(trainable), jnp.int32(0), jnp.int32(0))

    model = Model(hidden_fn, unembed_fn, prefix_fn, adapter, max_logits)

    def constrain(base: Tree, gradient: Tree) -> Tree:
        if placement is None:
            return gradient
        return jax.lax.with_sharding_constraint(gradient, placement.trainable(base))

    def update(base: Tree, state: LearnerState, batch: LearnerBatch):
        if drop_zero_signal:
            signal_MBN = (batch.advantages_MBN != 0).astype(batch.mask_MBN.dtype)
            batch = dataclasses.replace(batch, mask_MBN=batch.mask_MBN * signal_MBN)
        gradients, metrics = batch_gradient(
            model,
            loss,
            normalize,
            base,
            state.trainable,
            batch,
            functools.partial(constrain, base),
            sources,
        )
        norm = optax.tree.norm(gradients)
        apply = jnp.isfinite(norm) & (metrics["tokens"] > 0)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.trainable)
        trainable = optax.apply_updates(state.trainable, updates)
        trainable, opt_state = jax.tree.map(
            lambda new, old: jnp.where(apply, new, old),
            (trainable, opt_state),
            (state.trainable, state.opt_state),
        )
        skipped_in_a_row = jnp.where(apply, 0, state.skipped_in_a_row + 1)
        metrics |= {
            "grad_norm": norm,
            "skipped": 1.0 - apply.astype(jnp.float32),
            "skipped_in_a_row": skipped_in_a_row.astype(jnp.float32),
        }
        return LearnerState(trainable, opt_state, state.step + 1, skipped_in_a_row), metrics

    def logprobs(base: Tree, trainable: Tree, batch: LearnerBatch):
        return batch_logprobs(model, base, trainable, batch)

    check = functools.partial(check_batch, loss=loss, prefix_fn=prefix_fn, sources=sources)
    if placement is None:
        return jit_on_device(check, make_state, update, logprobs)
    return jit_on_mesh(placement, check, make_state, update, logprobs)
