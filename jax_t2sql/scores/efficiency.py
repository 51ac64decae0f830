"""R-VES: a right answer's reward for its time beside the gold query's."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from jax_t2sql.grading import GradingPool

RUNS = 10  # of each query; their ratio is averaged
_TOGETHER = 16  # pairs whose results are in memory at a time
# Reward from this ratio of gold's to the prediction's time on; below all, the last.
_STEPS = ((2.0, 1.25), (1.0, 1.0), (0.5, 0.75), (0.25, 0.5))
_SLOWEST = 0.25


def time_rewards(pairs: Sequence[tuple[Path, str, str]], pool: GradingPool) -> list[float]:
    """Rewards of predictions that are right, by running both queries again and again.

    A query that fails now, by its time limit say, makes the reward 0.

    Args:
      pairs: database, gold query, predicted query.
    """
    rewards = []
    for first in range(0, len(pairs), _TOGETHER):
        running = [
            [(pool.execute(path, gold), pool.execute(path, pred)) for _ in range(RUNS)]
            for path, gold, pred in pairs[first : first + _TOGETHER]
        ]
        for runs in running:
            done = [(gold.result(), pred.result()) for gold, pred in runs]
            if all(gold.ok and pred.ok for gold, pred in done):
                rewards.append(reward_of([g.seconds / max(p.seconds, 1e-9) for g, p in done]))
            else:
                rewards.append(0.0)
    return rewards


def reward_of(ratios: Sequence[float]) -> float:
    """The reward for these ratios of gold's to the prediction's time.

    Ratios three standard deviations or more from the mean are left out. The mean of the others
    gives 1.25 from 2 on, 1 from 1, 0.75 from a half, 0.5 from a quarter, else 0.25. The score of
    many questions is the mean of 100·√reward, with 0 for wrong answers.

    Source: github.com/bird-bench/mini_dev, README ("R-VES") and evaluation/evaluation_ves.py.

    >>> reward_of([1.9, 2.2, 2.1]), reward_of([0.3])
    (1.25, 0.5)
    """
    mean, spread = fmean(ratios), pstdev(ratios)
    usual = [ratio for ratio in ratios if abs(ratio - mean) < 3 * spread] or ratios
    ratio = fmean(usual)
    return next((reward for bound, reward in _STEPS if ratio >= bound), _SLOWEST)
