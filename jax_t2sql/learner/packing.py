"""Packs trajectories into the fixed shapes of a `LearnerBatch`.

Few shapes mean few compilations: T is the caller's row length, N equals T, B is the caller's
micro-batch size, and M is the caller's, or a power of two where that is too few. The learner stops
at the last micro-batch and the last slot in use, so empty ones cost a few kilobytes of integers and
no arithmetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .batch import LearnerBatch, PrefixRows, Trajectory


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
    microbatches: int = 1,
    packed: bool = True,
) -> LearnerBatch:
    """Lays trajectories out as rows of `row_length` tokens, several to a row.

    Args:
      trajectories: at least one; each lands in the batch exactly once and whole.
      row_length: T, in tokens. Two to three times the usual trajectory fills rows well; attention
        over a much longer row is wasted on pairs that the segment mask hides.
      rows_per_microbatch: B. One micro-batch is in memory at a time; on a mesh, B must be a
        multiple of the devices that share the batch.
      microbatches: least M, so that batches of different sizes have one shape.
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
    pieces = [_Piece(t.ids_T, 0, t, t.replay_TLE) for t in trajectories]
    laid_out = [[(pieces[index], 0) for index in members] for members in rows]
    M = _at_least(microbatches, -(-len(rows) // rows_per_microbatch))
    return _lay_out(dict(enumerate(laid_out)), M, rows_per_microbatch, row_length)[0]


def pack_shared(
    trajectories: Sequence[Trajectory],
    *,
    prefix_length: int,
    row_length: int,
    rows_per_microbatch: int,
    prefix_rows: int = 1,
    microbatches: int = 1,
    blocks: int = 1,
) -> LearnerBatch:
    """Lays out trajectories so that those with the same prompt have it computed once.

    A prompt is what precedes the first sampled token. All of it but its last token, whose hidden
    state predicts the first sampled one, goes into a prefix row; the rest of each trajectory goes
    into a row of continuations. Both kinds of rows hold as many pieces as fit.

    Args:
      trajectories: at least one; groups need not stand together.
      prefix_length: P, in tokens; at least the longest prompt less one token.
      row_length: T, in tokens; at least the longest continuation plus one token.
      rows_per_microbatch: B, a multiple of `prefix_rows`.
      prefix_rows: C, prefix rows that are in memory at a time; on a mesh a multiple of the devices
        that share the batch.
      microbatches, blocks: least M and K, so that batches of different sizes have one shape.

    Raises:
      ValueError: there is nothing to pack, a prompt or a continuation is too long, or the sizes do
        not fit.
    """
    if prefix_rows < 1 or rows_per_microbatch < 1 or rows_per_microbatch % prefix_rows:
        raise ValueError(
            f"rows_per_microbatch={rows_per_microbatch} must be a positive multiple of "
            f"prefix_rows={prefix_rows}, so that every prefix has as many rows"
        )
    if not trajectories:
        raise ValueError("nothing to pack: pass at least one trajectory")
    members: dict[bytes, list[_Piece]] = {}
    prompts: dict[bytes, _Piece] = {}
    for index, trajectory in enumerate(trajectories):
        sampled_N = np.flatnonzero(trajectory.mask_T)
        shared = (int(sampled_N[0]) if sampled_N.size else len(trajectory)) - 1
        for what, length, name, bound in (
            ("prompt", shared, "prefix_length", prefix_length),
            ("continuation", len(trajectory) - shared, "row_length", row_length),
        ):
            if length > bound:
                raise ValueError(
                    f"the {what} of trajectory {index} takes {length} tokens, more than "
                    f"{name}={bound}: raise {name} or drop the trajectory"
                )
        ids_T, replay_TLE = trajectory.ids_T, trajectory.replay_TLE
        above, below = (None, None) if replay_TLE is None else np.split(replay_TLE, [shared])
        key = ids_T[:shared].tobytes()
        # One record stands for the whole group: the prompt was the same, so were its experts.
        if key not in prompts or prompts[key].replay_TLE is None:
            prompts[key] = _Piece(ids_T[:shared], 0, None, above)
        members.setdefault(key, []).append(_Piece(ids_T[shared:], shared, trajectory, below))

    keys = list(prompts)
    prefix_bins = first_fit_decreasing([len(prompts[key].ids_T) for key in keys], prefix_length)
    homes = [_continuation_rows([keys[i] for i in row], members, row_length) for row in prefix_bins]
    # Prefix rows with equally many rows of continuations side by side: their devices finish as one.
    order = sorted(range(len(homes)), key=lambda r: -len(homes[r]))

    B, C, b = rows_per_microbatch, prefix_rows, rows_per_microbatch // prefix_rows
    K = _at_least(blocks, -(-len(homes) // C))
    rows, prefixes, stops = {}, {}, []
    for place, r in enumerate(order):
        k, c = divmod(place, C)
        if c == 0:  # the first of a block has the most rows
            first = stops[-1] if stops else 0
            stops.append(first + -(-len(homes[r]) // b))
        prefixes[place] = [(prompts[keys[i]], 0) for i in prefix_bins[r]]
        for number, row in enumerate(homes[r]):
            i, within = divmod(number, b)
            rows[(first + i) * B + c * b + within] = row
    stop_K = np.array(stops + [stops[-1]] * (K - len(stops)), np.int32)
    batch, prefixes_MBT = _lay_out(rows, _at_least(microbatches, stops[-1]), B, row_length)
    above, _ = _lay_out(prefixes, K, C, prefix_length)
    prefix = PrefixRows(
        tokens_KCP=above.tokens_MBT,
        positions_KCP=above.positions_MBT,
        segments_KCP=above.segments_MBT,
        stop_KC=np.tile(stop_K[:, None], C),
        prefixes_MBT=prefixes_MBT,
        replay_KCPLE=above.replay_MBTLE,
    )
    return dataclasses.replace(batch, prefix=prefix)


def _continuation_rows(
    keys: list[bytes], members: dict[bytes, list[_Piece]], row_length: int
) -> list[_Row]:
    """Rows of the continuations of one prefix row's prompts, in the order of its segments."""
    pieces = [
        (piece, segment if len(key) else 0)
        for segment, key in enumerate(keys, start=1)
        for piece in members[key]
    ]
    bins = first_fit_decreasing([len(piece.ids_T) for piece, _ in pieces], row_length)
    return [[pieces[index] for index in row] for row in bins]


class _Piece(NamedTuple):
    """Successive tokens of a trajectory from index `start`; no trajectory: nothing is scored."""

    ids_T: np.ndarray
    start: int
    trajectory: Trajectory | None
    replay_TLE: np.ndarray | None


_Row = list[tuple[_Piece, int]]
"""Pieces of a row, each with the segment of the prefix row that it sees."""


def _at_least(wanted: int, needed: int) -> int:
    """What is wanted if it suffices, else a power of two that does: few sizes in all."""
    return wanted if wanted >= needed else 1 << (needed - 1).bit_length()


def _lay_out(rows: dict[int, _Row], M: int, B: int, T: int) -> tuple[LearnerBatch, np.ndarray]:
    """Fills M · B rows, of which `rows` names those with content; also prefixes_MBT."""
    ints = {
        name: np.zeros((M * B, T), np.int32)
        for name in ("tokens", "positions", "segments", "prefixes", "scored", "targets", "sources")
    }
    floats = {
        name: np.zeros((M * B, T), np.float32)
        for name in ("mask", "advantages", "sampler_logprobs", "lengths")
    }
    measured = False
    for row, pieces in rows.items():
        start = slot = 0
        for segment, (piece, prefix) in enumerate(pieces, start=1):
            here = slice(start, start + len(piece.ids_T))
            ints["tokens"][row, here] = piece.ids_T
            ints["positions"][row, here] = piece.start + np.arange(len(piece.ids_T))
            ints["segments"][row, here] = segment
            ints["prefixes"][row, here] = prefix
            if (trajectory := piece.trajectory) is not None:
                sampled_N = np.flatnonzero(trajectory.mask_T)
                slots = slice(slot, slot + len(sampled_N))
                ints["scored"][row, slots] = start - piece.start + sampled_N - 1
                ints["targets"][row, slots] = trajectory.ids_T[sampled_N]
                floats["mask"][row, slots] = 1.0
                floats["advantages"][row, slots] = trajectory.advantage
                floats["sampler_logprobs"][row, slots] = trajectory.logprobs_T[sampled_N]
                floats["lengths"][row, slots] = len(sampled_N)
                if trajectory.sources_T is not None:
                    ints["sources"][row, slots] = trajectory.sources_T[sampled_N]
                    measured = True
                slot = slots.stop
            start = here.stop
    shaped = {name: array.reshape(M, B, T) for name, array in {**ints, **floats}.items()}
    batch = LearnerBatch(
        tokens_MBT=shaped["tokens"],
        positions_MBT=shaped["positions"],
        segments_MBT=shaped["segments"],
        scored_MBN=shaped["scored"],
        targets_MBN=shaped["targets"],
        mask_MBN=shaped["mask"],
        advantages_MBN=shaped["advantages"],
        sampler_logprobs_MBN=shaped["sampler_logprobs"],
        lengths_MBN=shaped["lengths"],
        replay_MBTLE=_lay_out_replay(rows, M, B, T),
        sources_MBN=shaped["sources"] if measured else None,
    )
    return batch, shaped["prefixes"]


def _lay_out_replay(rows: dict[int, _Row], M: int, B: int, T: int) -> np.ndarray | None:
    """The recorded experts of all tokens, -1 where there is no record; None without any."""
    recorded = [p.replay_TLE for row in rows.values() for p, _ in row if p.replay_TLE is not None]
    if not recorded:
        return None
    shapes = {record.shape[1:] for record in recorded}
    if len(shapes) > 1:
        raise ValueError(
            f"recorded experts have different layers and counts, {sorted(shapes)}: all must come "
            "from one model"
        )
    replay = np.full((M * B, T, *shapes.pop()), -1, np.int32)
    for row, pieces in rows.items():
        start = 0
        for piece, _ in pieces:
            stop = start + len(piece.ids_T)
            if piece.replay_TLE is not None:
                replay[row, start:stop] = piece.replay_TLE
            start = stop
    return replay.reshape(M, B, *replay.shape[1:])
