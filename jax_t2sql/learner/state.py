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
    """

    trainable: Tree
    opt_state: Any
    step: jax.Array


@dataclasses.dataclass(frozen=True)
class Learner:
    """Pure, jitted functions over a frozen base, a state and batches.

    Attributes:
      init: (base, key) -> `LearnerState`.
      update: (base, state, batch) -> (state, metrics). One optimizer step on the gradient of
        Σ loss · mask / Σ mask over the whole batch, whichever way it is cut into micro-batches. The
        old state is donated: its buffers are gone afterwards. When the gradient is not finite, or
        the batch holds no sampled token, the trainable arrays and the optimizer state stay as they
        are and only the step counts up. Metrics are float32 scalars still on the device: loss,
        grad_norm (before clipping), tokens (sampled), skipped (0 or 1) and what the loss measures.
      logprobs: (base, state or its trainable part, batch) -> float32 log-probs in nats, shaped like
        `batch.targets_MBN`; 0 in empty slots.
      abstract_state: (base) -> a `LearnerState` of `jax.ShapeDtypeStruct`, with shardings on a
        mesh: what `Checkpointer.restore` needs to know.
    """

    init: Callable[[Tree, jax.Array], LearnerState]
    update: Callable[[Tree, LearnerState, LearnerBatch], tuple[LearnerState, dict[str, jax.Array]]]
    logprobs: Callable[[Tree, LearnerState | Tree, LearnerBatch], jax.Array]
    abstract_state: Callable[[Tree], LearnerState]
