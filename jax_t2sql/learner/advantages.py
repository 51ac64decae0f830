"""Advantages of a group of trajectories that answer the same question."""

from __future__ import annotations

import numpy as np


def group_advantages(
    rewards_G: np.ndarray, valid_G: np.ndarray | None = None, *, divide_by_std: bool = False
) -> tuple[np.ndarray, bool]:
    """Reward minus the group's mean, A_i = R_i − mean(R), over the valid members.

    The mean is the baseline of GRPO (arXiv 2402.03300, §4.1.2). Its division by the standard
    deviation is off by default: it weighs questions by how one-sided their group is (Dr. GRPO,
    arXiv 2503.20783, §3.1).

    Args:
      rewards_G: one reward a member; the values of invalid members do not matter.
      valid_G: False leaves a member out of the mean and gives it advantage 0. Default: all valid.
      divide_by_std: GRPO's A_i = (R_i − mean(R)) / std(R).

    Returns:
      advantages_G as float32, and whether the group carries no signal: all valid rewards are equal
      (or there are fewer than two), every advantage is 0, and the group had better be dropped.

    Raises:
      ValueError: the shapes differ or a valid reward is not finite.

    >>> advantages_G, zero_signal = group_advantages(np.array([1.0, 0.0, 0.0, -1.0]))
    >>> advantages_G.tolist(), zero_signal
    ([1.0, 0.0, 0.0, -1.0], False)
    >>> group_advantages(np.array([1.0, 1.0]))[1]
    True
    """
    rewards_G = np.asarray(rewards_G, np.float64)
    valid_G = np.ones(rewards_G.shape, bool) if valid_G is None else np.asarray(valid_G, bool)
    if rewards_G.ndim != 1 or rewards_G.shape != valid_G.shape:
        raise ValueError(
            f"rewards and valid must be one-dimensional and equally long, got shapes "
            f"{rewards_G.shape} and {valid_G.shape}"
        )
    kept = rewards_G[valid_G]
    if not np.isfinite(kept).all():
        raise ValueError(f"valid rewards must be finite, got {kept.tolist()}: mark others invalid")
    advantages_G = np.zeros(rewards_G.shape, np.float32)
    # Sums of shaping terms differ in the last bits; a real difference is far above 1e-9.
    if kept.size < 2 or np.ptp(kept) < 1e-9:
        return advantages_G, True
    centred = kept - kept.mean()
    advantages_G[valid_G] = centred / kept.std() if divide_by_std else centred
    return advantages_G, False
