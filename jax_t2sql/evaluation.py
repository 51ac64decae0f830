"""Greedy accuracy over questions: one verdict a question, summed with intervals and by group."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jax_t2sql.grading import GradingPool
from jax_t2sql.rollouts import PromptBuilder, Rollout, grade_episodes, run_episodes
from jax_t2sql.sampling.policy import Policy
from jax_t2sql.stats import wilson
from jax_t2sql.text2sql import Problem


@dataclass(frozen=True)
class Score:
    """Correct answers among n questions, with the 95 % Wilson interval of the share."""

    correct: int
    n: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.correct, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.accuracy:6.1%}  (95 % interval {low:.1%} to {high:.1%}, n = {self.n})"


def is_correct(rollout: Rollout) -> bool:
    """True if the answer's result equals the gold's, be that empty: so benchmarks count."""
    return rollout.verdict is not None and rollout.verdict.matches


def evaluate(
    problems: Sequence[Problem],
    *,
    policy: Policy,
    prompts: PromptBuilder,
    pool: GradingPool,
    batch: int,
    on_batch: Callable[[int, int], None] = lambda done, correct: None,
) -> list[Rollout]:
    """Answers each question once, greedily; graded rollouts in the order of the questions.

    Args:
      batch: questions sampled together, so that results and progress come in parts.
      on_batch: called with questions done and correct so far.
    """
    rollouts: list[Rollout] = []
    for part in evaluate_in_parts(
        problems, policy=policy, prompts=prompts, pool=pool, temperature=0.0, seed=0, batch=batch
    ):
        rollouts += part
        on_batch(len(rollouts), sum(map(is_correct, rollouts)))
    return rollouts


def evaluate_in_parts(
    problems: Sequence[Problem],
    *,
    policy: Policy,
    prompts: PromptBuilder,
    pool: GradingPool,
    temperature: float,
    seed: int,
    batch: int,
) -> Iterator[list[Rollout]]:
    """Like `evaluate`, at any temperature, but yields each batch as soon as it is graded."""
    for first in range(0, len(problems), batch):
        part = problems[first : first + batch]
        states = run_episodes(
            part,
            [seed + first + i for i in range(len(part))],
            policy=policy,
            prompts=prompts,
            pool=pool,
            temperature=temperature,
        )
        yield grade_episodes(states, prompts=prompts, pool=pool)


def score(rollouts: Sequence[Rollout], *, unanswered: int = 0) -> Score:
    """Accuracy over all rollouts and questions that could not be put; no answer is wrong."""
    return Score(sum(map(is_correct, rollouts)), len(rollouts) + unanswered)


def score_by(rollouts: Sequence[Rollout], key: Callable[[Problem], str | None]) -> dict[str, Score]:
    """Accuracy by a property of the question, in the order of its names."""
    groups = defaultdict(list)
    for rollout in rollouts:
        groups[str(key(rollout.state.problem))].append(rollout)
    return {name: score(groups[name]) for name in sorted(groups)}


def sample_record(rollout: Rollout) -> dict:
    """One episode as people read it, for `Tracker.log_samples` and verdict files."""
    state, verdict = rollout.state, rollout.verdict
    problem = state.problem
    turns = []
    for turn in state.turns:
        turns.append({"role": "assistant", "text": turn.text})
        if turn.observation is not None:
            turns.append({"role": "tool", "text": turn.observation})
    sampled = [version for version, mask in zip(state.versions, state.mask, strict=True) if mask]
    return {
        "question_id": problem.question_id,
        "db_id": problem.db_id,
        "difficulty": problem.difficulty,
        "question": problem.question,
        "evidence": problem.evidence,
        "gold_sql": problem.gold_sql,
        "predicted_sql": state.ending.sql,
        "grading": problem.grading,
        "reward": rollout.reward.total if rollout.reward.valid else None,
        "terms": dict(rollout.reward.terms),
        "verdict": verdict.status if verdict else "no_answer",
        "detail": verdict.detail if verdict else state.ending.reason,
        "ending": state.ending.kind,
        "version": min(sampled),
        "prompt_tokens": state.prompt_length,
        "completion_tokens": sum(state.mask),
        "turns": turns,
    }
