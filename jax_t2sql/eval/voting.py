"""Several answers to a question: self-consistency, and whether any of them is right."""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.scores.records import AnswerId, AnswerRow, QuestionRow
from jax_t2sql.sql import Outcome
from jax_t2sql.stats import wilson

DRAWS = 5
_CHUNK = 256  # queries whose results are in memory at once


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What running a candidate gave; `digest` stands for the result, None where there is none."""

    question_id: str
    candidate: int
    evidence: bool
    status: str
    digest: str | None = None

    @property
    def id(self) -> AnswerId:
        return self.question_id, self.candidate, self.evidence


def result_digest(outcome: Outcome) -> str | None:
    """The same text for results that are equal as sets of rows; None for a failed query.

    Numbers count by value, REALs to nine digits.
    """
    if not outcome.ok:
        return None
    rows = sorted({"\x1e".join(map(_cell, row)) for row in outcome.rows})
    text = "\x1d".join(rows) or f"empty {len(outcome.columns)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _cell(value: object) -> str:
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 2**53:
            return f"n{int(value)}"
        return f"n{value:.9g}"
    if isinstance(value, int):
        return f"n{value}"
    if isinstance(value, str):
        return f"t{value}"
    return "-" if value is None else f"b{value.hex()}"


def run_candidates(
    questions: Mapping[str, QuestionRow],
    answers: Sequence[AnswerRow],
    *,
    find: Callable[[str], Path | UserError],
    pool: GradingPool,
) -> Iterator[list[ExecutionRow]]:
    """Runs the candidates, equal queries on a database once; yields them in bursts."""
    by_query: dict[tuple[str, str], list[AnswerRow]] = {}
    for answer in answers:
        query = (questions[answer.question_id].db_id, (answer.sql or "").strip())
        by_query.setdefault(query, []).append(answer)
    queries = list(by_query)
    for first in range(0, len(queries), _CHUNK):
        futures = {}
        for db_id, sql in queries[first : first + _CHUNK]:
            path = find(db_id)
            if sql and not isinstance(path, UserError):
                futures[db_id, sql] = pool.execute(path, sql)
        burst = []
        for query in queries[first : first + _CHUNK]:
            status, digest = "no_query", None
            if query in futures:
                try:
                    outcome = futures[query].result()
                    status, digest = outcome.status, result_digest(outcome)
                except UserError:
                    status = "infrastructure"
            burst += [
                ExecutionRow(
                    question_id=answer.question_id,
                    candidate=answer.candidate,
                    evidence=answer.evidence,
                    status=status,
                    digest=digest,
                )
                for answer in by_query[query]
            ]
        yield burst


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sampled answer: its number, what its result is (None: it has none), whether it is right."""

    number: int
    digest: str | None
    correct: bool


def vote(candidates: Sequence[Candidate], rng: random.Random) -> list[Candidate | None]:
    """Who wins the vote of the first n, for every n from 1; None while nobody has a result.

    The largest group of equal results wins, one at random of several; a query that fails has no
    vote. Members of a group may differ under a grader that looks at order, say: the first speaks.
    """
    sizes: Counter[str] = Counter()
    speaker: dict[str, Candidate] = {}
    winners: list[Candidate | None] = []
    for candidate in candidates:
        if candidate.digest is not None:
            sizes[candidate.digest] += 1
            speaker.setdefault(candidate.digest, candidate)
        if not sizes:
            winners.append(None)
            continue
        most = max(sizes.values())
        largest = [digest for digest, size in sizes.items() if size == most]
        winners.append(speaker[largest[0] if len(largest) == 1 else rng.choice(largest)])
    return winners


def self_consistency(
    candidates: Mapping[str, Sequence[Candidate]], *, seed: int, draws: int = DRAWS
) -> dict:
    """Accuracy of voting among n candidates for every n, and pass@k for every k.

    Each draw takes the candidates in a new random order, so its first n are a random choice of n;
    accuracies are means over draws. A question with fewer than n candidates votes with all it has.

    Returns: {"n", "accuracy", "low", "high" (95 % Wilson), "pass_at_k", "draws"}; "by_question",
    the share of draws in which the vote of all is right; "winners", the candidate that wins the
    first draw's.
    """
    most = max((len(found) for found in candidates.values()), default=0)
    totals = [0.0] * most
    by_question, winners = {}, {}
    for question_id, found in candidates.items():
        share = 0.0
        for draw in range(draws):
            rng = random.Random(rollout_seed(seed, question_id, draw))
            order = list(found)
            rng.shuffle(order)
            votes = vote(order, rng)
            votes += votes[-1:] * (most - len(votes))
            for n, winner in enumerate(votes):
                totals[n] += (winner is not None and winner.correct) / draws
            last = votes[-1]
            share += (last is not None and last.correct) / draws
            if draw == 0:
                winners[question_id] = found[0].number if last is None else last.number
        by_question[question_id] = round(share, 6)
    count = len(candidates)
    bounds = [wilson(min(total, count), count) for total in totals]
    return {
        "n": list(range(1, most + 1)),
        "accuracy": [round(total / count, 12) for total in totals],
        "low": [low for low, _ in bounds],
        "high": [high for _, high in bounds],
        "pass_at_k": [_mean_pass(candidates, k) for k in range(1, most + 1)],
        "draws": draws,
        "by_question": by_question,
        "winners": winners,
    }


def _mean_pass(candidates: Mapping[str, Sequence[Candidate]], k: int) -> float:
    shares = [
        pass_at_k(len(found), sum(c.correct for c in found), min(k, len(found)))
        for found in candidates.values()
    ]
    return sum(shares) / len(shares)


def pass_at_k(n: int, correct: int, k: int) -> float:
    r"""Chance that at least one of k answers, drawn from n of which some are correct, is correct.

    :math:`1 - \binom{n-c}{k} / \binom{n}{k}`, without bias for any n >= k.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code" (2021), equation 1.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 2), pass_at_k(4, 3, 2)
    (0.25, 0.5, 1.0)
    """
    if not 0 <= correct <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} answers, {correct} correct: these cannot be")
    return 1 - math.comb(n - correct, k) / math.comb(n, k)
