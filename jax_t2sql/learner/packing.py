"""Packs trajectories into the fixed shapes of a `LearnerBatch`.

Few shapes mean few compilations: T is the caller's row length, N equals T, B is the caller's
micro-batch size, and M is rounded up to a power of two. The learner stops at the last micro-batch
and the last slot in use, so rounding up costs a few kilobytes of integers and no arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .batch import LearnerBatch, Trajectory


def first_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Distributes items over few bins: longest first, each into the first bin it fits.

    Needs at most 11/9 · optimum + 6/9 bins (Dósa 2007). Deterministic.

    Returns:
      Indices of the items in each bin, in the order of placement.

    >>> first_fit_decreasing([2, 6, 3, 5], capacity=8)
    [[1, 0], [3, 2]]
    """
    bins: list[list[int]] = []
    free_R = np.empty(len(lengths), np.int64)
    for item in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits_R = free_R[: len(bins)] >= lengths[item]
        row = int(fits_R.argmax()) if fits_R.any() else len(bins)
        if row == len(bins):
            bins.append([])
            free_R[row] = capacity
        bins[row].append(item)
        free_R[row] -= lengths[item]
    return bins


def pack(
    trajectories: Sequence[Trajectory],
    *,
    row_length: int,
    rows_per_microbatch: int,
    packed: bool = True,
) -> LearnerBatch:
    """Lays trajectories out as rows of `row_length` tokens, several to a row.

    Args:
      trajectories: at least one; each lands in the batch exactly once and whole.
      row_length: T, in tokens. Two to three times the usual trajectory fills rows well; attention
        over a much longer row is wasted on pairs that the segment mask hides.
      rows_per_microbatch: B. One micro-batch is in memory at a time; on a mesh, B must be a
        multiple of the devices that share the batch.
      packed: False puts one trajectory in each row, for models that know no segments.

    Raises:
      ValueError: there is nothing to pack, a trajectory is longer than a row, or a size is below 1.
    """
    if row_length < 1 or rows_per_microbatch < 1:
        raise ValueError(
            f"row_length={row_length} and rows_per_microbatch={rows_per_microbatch} must be "
            "at least 1"
        )
    if not trajectories:
        raise ValueError("nothing to pack: pass at least one trajectory")
    lengths = [len(trajectory) for trajectory in trajectories]
    for index, length in enumerate(lengths):
        if length > row_length:
            raise ValueError(
                f"trajectory {index} has {length} tokens, more than row_length={row_length}: "
                "raise row_length or drop the trajectory"
            )
    if packed:
        rows = first_fit_decreasing(lengths, row_length)
    else:
        rows = [[index] for index in range(len(lengths))]
    return _lay_out(trajectories, rows, row_length, rows_per_microbatch)


def _lay_out(
    trajectories: Sequence[Trajectory], rows: list[list[int]], T: int, B: int
) -> LearnerBatch:
    M = 1 << (-(-len(rows) // B) - 1).bit_length()
    ints = {
        name: np.zeros((M * B, T), np.int32)
        for name in ("tokens", "positions", "segments", "scored", "targets")
    }
    floats = {
        name: np.zeros((M * B, T), np.float32)
        for name in ("mask", "advantages", "sampler_logprobs")
    }
    for row, members in enumerate(rows):
        start = slot = 0
        for segment, index in enumerate(members, start=1):
            trajectory = trajectories[index]
            here = slice(start, start + len(trajectory))
            ints["tokens"][row, here] = trajectory.ids_T
            ints["positions"][row, here] = np.arange(len(trajectory))
            ints["segments"][row, here] = segment
            sampled_N = np.flatnonzero(trajectory.mask_T)
            slots = slice(slot, slot + len(sampled_N))
            ints["scored"][row, slots] = start + sampled_N - 1
            ints["targets"][row, slots] = trajectory.ids_T[sampled_N]
            floats["mask"][row, slots] = 1.0
            floats["advantages"][row, slots] = trajectory.advantage
            floats["sampler_logprobs"][row, slots] = trajectory.logprobs_T[sampled_N]
            start, slot = here.stop, slots.stop
    shaped = {name: array.reshape(M, B, T) for name, array in {**ints, **floats}.items()}
    return LearnerBatch(
        tokens_MBT=shaped["tokens"],
        positions_MBT=shaped["positions"],
        segments_MBT=shaped["segments"],
        scored_MBN=shaped["scored"],
        targets_MBN=shaped["targets"],
        mask_MBN=shaped["mask"],
        advantages_MBN=shaped["advantages"],
        sampler_logprobs_MBN=shaped["sampler_logprobs"],
    )
