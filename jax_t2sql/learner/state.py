"""The state of training, and the functions that `make_learner` returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from .arrays import Tree
from .batch import LearnerBatch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LearnerState:
    """All that changes in training.

    Attributes:
      trainable: the adapter of `LoraSpec` or the parameters of `FullSpec`, float32.
      opt_state: of the optax transform, float32.
      step: int32, the number of updates so far, skipped ones included.
      skipped_in_a_row: int32, how many of the last updates were skipped without one between them
        that was not.
    """

    trainable: Tree
    opt_state: Any
    step: jax.Array
    skipped_in_a_row: jax.Array


@dataclasses.dataclass(frozen=True)
class Learner:
    """Pure, jitted functions over a frozen base, a state and batches.

    Attributes:
      init: (base, key) -> `LearnerState`.
      update: (base, state, batch) -> (state, metrics). One optimizer step on the gradient of
        Σ weight · loss over the whole batch, whichever way it is cut into micro-batches. The old
        state is donated: its buffers are gone afterwards. When the gradient is not finite, or the
        batch holds no sampled token, the trainable arrays and the optimizer state stay as they are
        and only the counters count up; `stop_if_stuck` ends a run that gets nowhere. Metrics are
        float32 scalars still on the device: loss, entropy (of the policy at sampled positions, in
        nats), grad_norm (before clipping), tokens (sampled), padding_share (of the computed
        positions), skipped (0 or 1), skipped_in_a_row and what the loss measures; also
        the arrays that `make_learner`'s `sources` asks for.
      lower_update: as `update`, but gives the `jax.stages.Lowered` program, to inspect; arguments
        may be abstract.
      logprobs: (base, state or its trainable part, batch) -> float32 log-probs in nats, shaped like
        `batch.targets_MBN`; 0 in empty slots.
      abstract_state: (base) -> a `LearnerState` of `jax.ShapeDtypeStruct`, with shardings on a
        mesh: what `Checkpointer.restore` needs to know.
    """

    init: Callable[[Tree, jax.Array], LearnerState]
    update: Callable[[Tree, LearnerState, LearnerBatch], tuple[LearnerState, dict[str, jax.Array]]]
    lower_update: Callable[[Tree, LearnerState, LearnerBatch], jax.stages.Lowered]
    logprobs: Callable[[Tree, LearnerState | Tree, LearnerBatch], jax.Array]
    abstract_state: Callable[[Tree], LearnerState]


def stop_if_stuck(metrics: dict[str, Any], *, limit: int) -> None:
    """Ends a run whose gradients are not finite any more.

    Args:
      metrics: of the last update; waits for it.
      limit: how many updates in a row may be skipped.

    Raises:
      FloatingPointError: `limit` updates in a row were skipped.
    """
    skipped = int(metrics["skipped_in_a_row"])
    if skipped >= limit:
        raise FloatingPointError(
            f"{skipped} updates in a row were skipped (limit {limit}): their gradients were not "
            "finite or nothing was sampled; restore a checkpoint and lower the learning rate"
        )
