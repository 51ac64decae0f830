"""Trajectories to a batch for the learner: row length and micro-batch by what a run can hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jax_t2sql.config import LearnerConfig, RLConfig
from jax_t2sql.learner import LearnerBatch, Trajectory, pack, pack_shared
from jax_t2sql.sampling.buckets import bucket
from jax_t2sql.text2sql import EpisodeConfig

# Enough to keep the matrix units busy; more only takes memory (measured on CPU).
_MICROBATCH_TOKENS = 1024
_SHORTEST = 64

# Prompts are computed apart where that leaves less than this share of the tokens: the two kinds of
# rows pack a little less tightly than one, and short prompts leave their micro-batches half empty.
_WORTH_SHARING = 0.6
_MIN_SHARED_PROMPT = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """What no batch of a run exceeds: all then have the same shapes, whatever a step brings.

    A batch that does exceed it is laid out all the same, in a program of its own.

    Attributes:
      sequence, prompt, completion: tokens of the longest of each. A prompt is what precedes the
        position that predicts the first sampled token; the rest is the completion.
      usual_prompt, usual_completion: tokens to expect.
      prompts: most different prompts in a batch. group_size: trajectories of each.
      shards: devices that the rows of a micro-batch are divided over.
    """

    sequence: int
    prompt: int
    completion: int
    usual_prompt: float
    usual_completion: float
    prompts: int
    group_size: int
    shards: int = 1

    @classmethod
    def of(cls, sequences: Sequence[Trajectory], *, shards: int = 1) -> BatchLimits:
        """Those of one batch."""
        prompts = [_prompt_length(s) for s in sequences]
        distinct = {s.ids_T[:n].tobytes(): n for s, n in zip(sequences, prompts, strict=True)}
        completions = [len(s) - n for s, n in zip(sequences, prompts, strict=True)]
        return cls(
            sequence=max(map(len, sequences)),
            prompt=max(prompts),
            completion=max(completions),
            usual_prompt=sum(distinct.values()) / len(distinct),
            usual_completion=sum(completions) / len(completions),
            prompts=len(distinct),
            group_size=-(-len(sequences) // len(distinct)),
            shards=shards,
        )

    @property
    def sequences(self) -> int:
        return self.prompts * self.group_size

    @property
    def share_prompts(self) -> bool:
        """Whether computing prompts once saves enough."""
        whole = self.group_size * (self.usual_prompt + self.usual_completion)
        shared = self.usual_prompt + self.group_size * self.usual_completion
        return self.usual_prompt >= _MIN_SHARED_PROMPT and shared < _WORTH_SHARING * whole


def rollout_limits(
    prompts: Sequence[int], episode: EpisodeConfig, rl: RLConfig, *, shards: int = 1
) -> BatchLimits:
    """Those of a run's rollouts, from the lengths of all its training prompts."""
    turn, longest = episode.max_tokens_per_turn, max(prompts)
    several = episode.style == "tools" and episode.max_turns > 0
    completion = episode.max_context - min(prompts) if several else turn
    return BatchLimits(
        sequence=min(longest + completion, episode.max_context),
        prompt=longest - 1,
        completion=completion + 1,
        usual_prompt=sum(prompts) / len(prompts) - 1,
        usual_completion=(turn if several else turn / 2) + 1,
        prompts=rl.groups,
        group_size=rl.group_size,
        shards=shards,
    )


def make_batch(
    sequences: Sequence[Trajectory], config: LearnerConfig, limits: BatchLimits | None = None
) -> LearnerBatch:
    """Packs trajectories into rows as configured.

    Prompts that many trajectories begin with are computed once where that saves enough.

    Args:
      sequences: at least one; their order decides which share a row.
      config: row length and rows of a micro-batch. Where they are None, a row holds what the limits
        allow, and a micro-batch is a token budget's worth of rows. A configured row length gives
        way to a longer sequence, one over the budget only in batches that need it.
      limits: of all batches of the run; by default those of this one.
    """
    limits = limits or BatchLimits.of(sequences)
    if limits.share_prompts:
        return _shared(sequences, config, limits)
    length = _row_length(max(map(len, sequences)), limits.sequence, config)
    rows = _whole_shards(config.rows or limits.shards * _MICROBATCH_TOKENS // length, limits.shards)
    # First-fit-decreasing fills every row but the last with at least so many sequences.
    per_row = max(length // limits.sequence, 1)
    microbatches = _parts(limits.sequences, per_row * rows)
    return pack(sequences, row_length=length, rows_per_microbatch=rows, microbatches=microbatches)


def _shared(
    sequences: Sequence[Trajectory], config: LearnerConfig, limits: BatchLimits
) -> LearnerBatch:
    prompts = [_prompt_length(s) for s in sequences]
    longest = max(len(s) - n for s, n in zip(sequences, prompts, strict=True))
    length = _row_length(longest, limits.completion, config)
    per_row = max(length // limits.completion, 1)
    # No micro-batch holds continuations of two prefix rows; powers of two for few programs.
    rows_of_prompt = 1 << (_parts(limits.group_size, per_row) - 1).bit_length()
    budget = limits.shards * min(_MICROBATCH_TOKENS // length, rows_of_prompt)
    rows = _whole_shards(config.rows or budget, limits.shards)
    blocks = _parts(limits.prompts, limits.shards)
    return pack_shared(
        sequences,
        prefix_length=bucket(max(limits.prompt, *prompts), smallest=_SHORTEST),
        row_length=length,
        rows_per_microbatch=rows,
        prefix_rows=limits.shards,
        blocks=blocks,
        # Each block's last micro-batch may be part empty.
        microbatches=_parts(limits.sequences, per_row * rows) + blocks,
    )


def _prompt_length(sequence: Trajectory) -> int:
    """Tokens before the one whose hidden state predicts the first sampled token."""
    return max(int(np.argmax(sequence.mask_T)) - 1, 0)


def _row_length(longest: int, most: int, config: LearnerConfig) -> int:
    """Tokens of a row: of the two lengths that a run has, the shorter if it will do."""
    usual = config.row_length or bucket(min(most, _MICROBATCH_TOKENS), smallest=_SHORTEST)
    if longest <= usual:
        return usual
    return bucket(max(most, longest), smallest=_SHORTEST)


def _whole_shards(rows: int, shards: int) -> int:
    """Rows of a micro-batch that the devices can share evenly, at least one each."""
    return max(rows // shards, 1) * shards


def _parts(count: int, size: int) -> int:
    return -(-count // size)
