import numpy as np

from jax_t2sql.batching import make_batch
from jax_t2sql.config import LearnerConfig
from jax_t2sql.learner import Trajectory


def group(prompt_length, answer_length, size, seed=0):
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, 50, prompt_length)
    made = []
    for _ in range(size):
        ids = np.concatenate([prompt, rng.integers(0, 50, answer_length)])
        sampled = np.arange(len(ids)) >= prompt_length
        made.append(Trajectory(ids, sampled, np.full(len(ids), -1.0), 1.0))
    return made


def test_long_prompts_of_groups_are_computed_once():
    made = group(600, 40, 8) + group(500, 60, 8, seed=1)
    batch = make_batch(made, LearnerConfig())
    assert (batch.prefix.segments_KCP > 0).sum() == 599 + 499
    assert (batch.segments_MBT > 0).sum() == 8 * 41 + 8 * 61
    assert batch.mask_MBN.sum() == 8 * 40 + 8 * 60


def test_short_or_single_prompts_are_not_worth_rows_of_their_own():
    assert make_batch(group(40, 40, 8), LearnerConfig()).prefix is None
    assert make_batch(group(600, 40, 1), LearnerConfig()).prefix is None
