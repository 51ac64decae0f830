"""Running and grading SQL in processes of its own, and the reward that follows from it."""

from jax_t2sql.grading.equivalence import CacheCounts
from jax_t2sql.grading.golds import GoldReport, check_golds
from jax_t2sql.grading.pool import AssessJob, GradeJob, GradingPool
from jax_t2sql.grading.requests import EquivalenceRule
from jax_t2sql.grading.reward import Reward, RewardRule, reward
from jax_t2sql.grading.verdict import Assessment, Verdict

__all__ = [
    "AssessJob",
    "Assessment",
    "CacheCounts",
    "EquivalenceRule",
    "GoldReport",
    "GradeJob",
    "GradingPool",
    "Reward",
    "RewardRule",
    "Verdict",
    "check_golds",
    "reward",
]
