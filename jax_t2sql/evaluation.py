"""Greedy accuracy over questions: one verdict a question, summed with intervals and by group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jax_t2sql.grading import GradingPool
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rollouts import Rollout, grade_episodes, run_episodes
from jax_t2sql.sampling.policy import Policy
from jax_t2sql.stats import wilson
from jax_t2sql.text2sql import Compliance, Problem

if TYPE_CHECKING:
    from jax_t2sql.equivalence import Verdict as EquivalenceVerdict


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


@dataclass(frozen=True)
class Answer:
    """What became of one question.

    Attributes:
      problem: the question.
      correct: whether the answer's result equals the gold's, be that empty: so benchmarks count.
      record: the episode as people read it, for verdict files.
    """

    problem: Problem
    correct: bool
    record: dict


def evaluate(
    problems: Sequence[Problem],
    *,
    policy: Policy,
    prompts: PromptBuilder,
    pool: GradingPool,
    batch: int,
) -> Iterator[list[Answer]]:
    """Answers each question once, greedily; yields each batch as soon as it is graded, in order.

    A question whose prompt is too long is not put; no answer is a wrong answer.

    Args:
      batch: questions sampled together.
    """
    for first in range(0, len(problems), batch):
        part = problems[first : first + batch]
        fitting, too_long = prompts.split_by_length(part)
        states = run_episodes(
            fitting,
            range(len(fitting)),
            policy=policy,
            prompts=prompts,
            pool=pool,
            temperature=0.0,
        )
        rollouts = grade_episodes(states, prompts=prompts, pool=pool)
        found = [(r.state.problem, _answer(r)) for r in rollouts]
        found += [(problem, unanswered(problem, reason)) for problem, reason in too_long]
        place = {id(problem): index for index, problem in enumerate(part)}
        yield [answer for _, answer in sorted(found, key=lambda item: place[id(item[0])])]


def _answer(rollout: Rollout) -> Answer:
    correct = is_correct(rollout)
    return Answer(
        problem=rollout.state.problem,
        correct=correct,
        record=sample_record(rollout) | {"correct": correct},
    )


def unanswered(problem: Problem, reason: str) -> Answer:
    """A wrong answer: the question was not put, since its prompt is too long."""
    record = {
        "question_id": problem.question_id,
        "db_id": problem.db_id,
        "question": problem.question,
        "verdict": "prompt_too_long",
        "detail": reason,
        "correct": False,
    }
    return Answer(problem, False, record)


def is_correct(rollout: Rollout) -> bool:
    """True if the answer's result equals the gold's, be that empty."""
    return rollout.verdict is not None and rollout.verdict.matches


def score(answers: Iterable[Answer]) -> Score:
    """Accuracy over all questions."""
    correct = [answer.correct for answer in answers]
    return Score(sum(correct), len(correct))


def equivalence_record(verdict: "EquivalenceVerdict") -> dict:
    """A verdict on a pair of queries as people and metrics read it."""
    from jax_t2sql.equivalence import unknown_cause  # loads a solver, for runs that check alone

    cause = {"cause": unknown_cause(verdict.reason)} if verdict.kind == "unknown" else {}
    return {
        "verdict": verdict.kind,
        **cause,
        "reason": verdict.reason,
        "source": verdict.source,
        "bound": verdict.bound,
        "database": verdict.database,
        "cpu_seconds": round(verdict.cpu_seconds, 6),
    }


def _missed(compliance: Compliance | None) -> dict:
    """Numbers of the pieces of knowledge that an episode left out of its blocks."""
    if compliance is None:
        return {}
    missed = {
        "requirement": list(compliance.requirement_missing),
        "verification": list(compliance.verification_missing),
    }
    return {"evidence_missed": missed}


def sample_record(rollout: Rollout) -> dict:
    """One episode as people read it, for `Tracker.log_samples` and verdict files."""
    state, verdict = rollout.state, rollout.verdict
    problem = state.problem
    turns = []
    for turn in state.turns:
        turns.append({"role": "assistant", "text": turn.text})
        if turn.observation is not None:
            turns.append({"role": "tool", "text": turn.observation})
    calls = [turn for turn in state.turns if turn.kind == "call"]
    sampled = [version for version, mask in zip(state.versions, state.mask, strict=True) if mask]
    return {
        "question_id": problem.question_id,
        "db_id": problem.db_id,
        "difficulty": problem.difficulty,
        "question": problem.question,
        "evidence": problem.evidence,
        **({"evidence_given": problem.given} if problem.given != "own" else {}),
        **({"hint": problem.hint} if problem.hint else {}),
        "gold_sql": problem.gold_sql,
        "predicted_sql": state.ending.sql,
        "grading": problem.grading,
        "reward": rollout.reward.total if rollout.reward.valid else None,
        "terms": dict(rollout.reward.terms),
        "verdict": verdict.status if verdict else "no_answer",
        "detail": verdict.detail if verdict else state.ending.reason,
        **({"equivalence": equivalence_record(rollout.equivalence)} if rollout.equivalence else {}),
        **_missed(rollout.compliance),
        "ending": state.ending.kind,
        "calls": len(calls),
        "calls_failed": sum(turn.status != "ok" for turn in calls),
        "version": min(sampled),
        "prompt_tokens": state.prompt_length,
        "completion_tokens": sum(state.mask),
        "turns": turns,
    }
