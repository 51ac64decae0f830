"""What the learner consumes: single trajectories, and the batch that packs many of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One sequence of tokens, of which some were sampled by the policy and the rest are context.

    Attributes:
      ids_T: token ids, int32, prompt and observations included, exactly as the sampler saw them.
      mask_T: True where the token was sampled. Only these are trained on. Never True at index 0,
        which nothing predicts.
      logprobs_T: log-probability, in nats, the sampler measured for each sampled token; the
        entries of other tokens are ignored.
      advantage: how much better than expected the whole trajectory was; scales every sampled token.
      demonstration: there was no sampler, see `supervised`.
      replay_TLE: of mixtures of experts, the E experts that the sampler used for each token in each
        of L layers, so that the same ones run here; negative where they are not known. None: not
        recorded.
      sources_T: int32, for every token the number, from 1, of what it is measured with, say of the
        sampler that it came from; 0: with nothing. None: all 0. See `make_learner`'s `sources`.

    Raises:
      ValueError: lengths differ, index 0 is marked as sampled, or a number is not finite.
    """

    ids_T: np.ndarray
    mask_T: np.ndarray
    logprobs_T: np.ndarray
    advantage: float = 1.0
    demonstration: bool = False
    replay_TLE: np.ndarray | None = None
    sources_T: np.ndarray | None = None

    def __post_init__(self):
        converted = {
            "ids_T": np.asarray(self.ids_T, np.int32),
            "mask_T": np.asarray(self.mask_T, bool),
            "logprobs_T": np.asarray(self.logprobs_T, np.float32),
            "advantage": float(self.advantage),
        }
        for name, value in converted.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen
        shapes = self.ids_T.shape, self.mask_T.shape, self.logprobs_T.shape
        if self.ids_T.ndim != 1 or len(set(shapes)) != 1:
            raise ValueError(
                "ids, mask and log-probs of a trajectory must be one-dimensional and equally long, "
                f"got shapes {shapes[0]}, {shapes[1]}, {shapes[2]}"
            )
        if self.replay_TLE is not None:
            replay_TLE = np.asarray(self.replay_TLE, np.int32)
            if replay_TLE.ndim != 3 or len(replay_TLE) != len(self):
                raise ValueError(
                    f"recorded experts of a trajectory of {len(self)} tokens must be an array "
                    f"[tokens, layers, experts], got shape {replay_TLE.shape}"
                )
            object.__setattr__(self, "replay_TLE", replay_TLE)
        if self.sources_T is not None:
            sources_T = np.asarray(self.sources_T, np.int32)
            if sources_T.shape != self.ids_T.shape or (sources_T < 0).any():
                raise ValueError(
                    f"sources of a trajectory of {len(self)} tokens must be as many numbers of at "
                    f"least 0, got shape {sources_T.shape}"
                )
            object.__setattr__(self, "sources_T", sources_T)
        if not len(self):
            raise ValueError("a trajectory needs at least one token, got none")
        if self.mask_T[0]:
            raise ValueError(
                "token 0 of a trajectory is marked as sampled, but nothing precedes it: "
                "start the trajectory with its prompt"
            )
        bad = np.flatnonzero(self.mask_T & ~np.isfinite(self.logprobs_T))
        if bad.size and not self.demonstration:
            raise ValueError(
                f"the sampler's log-prob of token {bad[0]} is {self.logprobs_T[bad[0]]}: every "
                "sampled token needs a finite one"
            )
        if not np.isfinite(self.advantage):
            raise ValueError(f"the advantage of a trajectory must be finite, got {self.advantage}")

    def __len__(self) -> int:
        return self.ids_T.shape[0]

    @classmethod
    def supervised(cls, ids_T: np.ndarray, mask_T: np.ndarray) -> Trajectory:
        """A demonstration for `sft`: no sampler, hence no log-probs, and advantage 1.

        Losses that need a sampler refuse it: the log-probs are NaN.
        """
        missing_T = np.full(len(ids_T), np.nan, np.float32)
        return cls(ids_T, mask_T, missing_T, 1.0, demonstration=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SharedPrefix:
    """What the rows of a micro-batch see besides themselves: prompts computed once for many rows.

    Attributes:
      state: what the model's `prefix_fn` made of C prefix rows; only the model knows what it is.
      segments_CP: int32 number of the prompt within its prefix row, from 1; 0 marks padding.
      prefixes_BT: int32, for every token of the rows the prompt it sees whole, 0 for none. Row b of
        B belongs to prefix row b // (B / C).
    """

    state: Any
    segments_CP: jax.Array
    prefixes_BT: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PrefixRows:
    """Prompts that many trajectories begin with, in K blocks of C rows of P tokens.

    Block k belongs to the micro-batches [stop of k - 1, stop of k) of its `LearnerBatch`.

    Attributes:
      tokens_KCP, positions_KCP, segments_KCP: as in `LearnerBatch`; a segment is one prompt.
      stop_KC: int32, the same for all rows of a block.
      prefixes_MBT: int32, for every token of the batch the segment that it sees of its prefix row,
        0 for none; row b of B belongs to prefix row b // (B / C).
      replay_KCPLE: as in `LearnerBatch`, of the prompts' tokens.
    """

    tokens_KCP: np.ndarray | jax.Array
    positions_KCP: np.ndarray | jax.Array
    segments_KCP: np.ndarray | jax.Array
    stop_KC: np.ndarray | jax.Array
    prefixes_MBT: np.ndarray | jax.Array
    replay_KCPLE: np.ndarray | jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LearnerBatch:
    """Trajectories in rows, rows in micro-batches: M micro-batches of B rows of T tokens.

    Every row lists its scored tokens in N slots. A slot holds the index of the position that
    *predicts* the sampled token (one before it), the token, and what the loss needs to know of it,
    so that logits are only ever made where they count.

    Attributes:
      tokens_MBT: int32 token ids, 0 in padding.
      positions_MBT: int32 position of each token in its own sequence, from 0.
      segments_MBT: int32 number of the sequence within its row, from 1; 0 marks padding. A token
        may attend only to earlier tokens of its own segment.
      scored_MBN: int32 index along T of the predicting position.
      targets_MBN: int32 sampled token.
      mask_MBN: float32, 1 for a sampled token, 0 for an empty slot.
      advantages_MBN: float32 advantage of the sampled token.
      sampler_logprobs_MBN: float32 log-probability under the policy that sampled it.
      lengths_MBN: float32 number of sampled tokens of the sequence that the token belongs to.
      reference_logprobs_MBN: float32 log-probability under a reference policy, for losses that stay
        near it; None without one.
      prefix: prompts apart from their continuations, from `pack_shared`; None where every row holds
        whole trajectories. Positions go on from the prompt's.
      replay_MBTLE: int32, the E experts that the sampler used for every token in each of L layers,
        -1 where they are not known; None if no trajectory has a record.
      sources_MBN: int32 number of the source that the sampled token is measured with, from 1; 0 for
        none. None if no trajectory names sources.
    """

    tokens_MBT: np.ndarray | jax.Array
    positions_MBT: np.ndarray | jax.Array
    segments_MBT: np.ndarray | jax.Array
    scored_MBN: np.ndarray | jax.Array
    targets_MBN: np.ndarray | jax.Array
    mask_MBN: np.ndarray | jax.Array
    advantages_MBN: np.ndarray | jax.Array
    sampler_logprobs_MBN: np.ndarray | jax.Array
    lengths_MBN: np.ndarray | jax.Array
    reference_logprobs_MBN: np.ndarray | jax.Array | None = None
    prefix: PrefixRows | None = None
    replay_MBTLE: np.ndarray | jax.Array | None = None
    sources_MBN: np.ndarray | jax.Array | None = None


def check_batch(batch: LearnerBatch, *, loss: Any, prefix_fn: Any, sources: int) -> None:
    """Refuses what would train on nonsense without saying so.

    Batches on a device are not looked into: that would wait for them.

    Raises:
      ValueError: a sampled token has no finite log-prob of the sampler, though the loss uses it;
        or the batch holds prefixes, but there is no `prefix_fn`; or a source above `sources`.
    """
    if batch.prefix is not None and prefix_fn is None:
        raise ValueError(
            "the batch shares prefixes, but make_learner got no prefix_fn: pass one, or use pack"
        )
    if isinstance(batch.sources_MBN, np.ndarray) and (highest := batch.sources_MBN.max()) > sources:
        raise ValueError(
            f"the batch names source {highest}, but make_learner got sources={sources}: raise that"
        )
    if not getattr(loss, "uses_sampler", True) or isinstance(batch.mask_MBN, jax.Array):
        return
    sampled_MBN = np.asarray(batch.mask_MBN) > 0
    bad = sampled_MBN & ~np.isfinite(np.asarray(batch.sampler_logprobs_MBN))
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(
            f"{bad.sum()} of {sampled_MBN.sum()} sampled tokens have no finite log-prob of the "
            f"sampler, the first in micro-batch, row and slot {where}: a ratio needs one for each"
        )
