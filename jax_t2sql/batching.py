"""Trajectories to a batch for the learner: row length and micro-batch by what the step holds."""

from collections.abc import Sequence

import numpy as np

from jax_t2sql.config import LearnerConfig
from jax_t2sql.learner import LearnerBatch, Trajectory, pack, pack_shared
from jax_t2sql.sampling.buckets import bucket

# Enough to keep the matrix units busy; more only takes memory (measured on CPU).
_MICROBATCH_TOKENS = 1024


# Prompts are computed apart where that leaves less than this share of the tokens: the two kinds of
# rows pack a little less tightly than one, and short prompts leave their micro-batches half empty.
_WORTH_SHARING = 0.6
_MIN_SHARED_PROMPT = 256


def make_batch(sequences: Sequence[Trajectory], config: LearnerConfig) -> LearnerBatch:
    """Packs trajectories into rows as configured.

    Prompts that many trajectories begin with are computed once where that saves enough.

    Args:
      sequences: at least one; their order decides which share a row.
      config: row length and rows of a micro-batch. Where they are None, rows are a bucket over the
        longest sequence, so that few programs are compiled, and a micro-batch is a token budget's
        worth of them. A configured row length gives way to a longer sequence.
    """
    prompts = [max(int(np.argmax(s.mask_T)) - 1, 0) for s in sequences]
    distinct = {s.ids_T[:n].tobytes(): n for s, n in zip(sequences, prompts, strict=True)}
    continuations = [len(s) - n for s, n in zip(sequences, prompts, strict=True)]
    total = sum(distinct.values()) + sum(continuations)
    long = sum(distinct.values()) >= _MIN_SHARED_PROMPT * len(distinct)
    if long and total < _WORTH_SHARING * sum(map(len, sequences)):
        length = _row_length(max(continuations), config)
        # No micro-batch holds continuations of two prefix rows; powers of two for few programs.
        rows_of_prompt = -(-sum(continuations) // (len(distinct) * length))
        rows_of_prompt = 1 << (rows_of_prompt - 1).bit_length()
        return pack_shared(
            sequences,
            prefix_length=bucket(max(prompts), smallest=64),
            row_length=length,
            rows_per_microbatch=config.rows
            or max(1, min(_MICROBATCH_TOKENS // length, rows_of_prompt)),
        )
    length = _row_length(max(map(len, sequences)), config)
    rows = config.rows or max(1, _MICROBATCH_TOKENS // length)
    return pack(sequences, row_length=length, rows_per_microbatch=rows)


def _row_length(longest: int, config: LearnerConfig) -> int:
    return max(config.row_length or bucket(longest, smallest=64), longest)
