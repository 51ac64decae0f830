"""Trajectories to a batch for the learner: row length and micro-batch by what the step holds."""

from collections.abc import Sequence

from jax_t2sql.config import LearnerConfig
from jax_t2sql.learner import LearnerBatch, Trajectory, pack
from jax_t2sql.sampling.buckets import bucket

# Enough to keep the matrix units busy; more only takes memory (measured on CPU).
_MICROBATCH_TOKENS = 1024


def make_batch(sequences: Sequence[Trajectory], config: LearnerConfig) -> LearnerBatch:
    """Packs trajectories into rows as configured.

    Args:
      sequences: at least one; their order decides which share a row.
      config: row length and rows of a micro-batch. Where they are None, rows are a bucket over the
        longest sequence, so that few programs are compiled, and a micro-batch is a token budget's
        worth of them. A configured row length gives way to a longer sequence.
    """
    longest = max(len(sequence) for sequence in sequences)
    length = max(config.row_length or bucket(longest, smallest=64), longest)
    rows = config.rows or max(1, _MICROBATCH_TOKENS // length)
    return pack(sequences, row_length=length, rows_per_microbatch=rows)
