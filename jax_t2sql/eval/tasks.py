"""The answers that an evaluation wants, and those it has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.scores.records import AnswerId, AnswerRow, QuestionRow

ShownEvidence = Literal["with", "without", "both"]


@dataclass(frozen=True, slots=True)
class Task:
    """One answer to be given.

    Attributes:
      candidate: 0 is greedy, the others are sampled.
      evidence: whether external knowledge is shown.
      seed: of what is sampled: the same in every run of this question, candidate and evidence.
    """

    row: QuestionRow
    candidate: int
    evidence: bool
    seed: int

    @property
    def id(self) -> AnswerId:
        """`AnswerRow.id` of the answer."""
        return self.row.question_id, self.candidate, self.evidence

    @property
    def greedy(self) -> bool:
        return self.candidate == 0


def all_tasks(
    rows: Sequence[QuestionRow],
    *,
    greedy: bool,
    candidates: int,
    shown: ShownEvidence,
    seed: int,
) -> list[Task]:
    """Every answer wanted: greedy ones first, then the samples of one question after another."""
    kinds = {"with": (True,), "without": (False,), "both": (True, False)}[shown]
    wanted = [(row, 0) for row in rows if greedy]
    wanted += [(row, n) for row in rows for n in range(1, candidates + 1)]
    return [
        Task(row, n, kind, rollout_seed(seed, row.question_id, n, int(kind)))
        for kind in kinds
        for row, n in wanted
    ]


def newest(answers: Iterable[AnswerRow]) -> dict[AnswerId, AnswerRow]:
    """Answers by id; of several the last, which was given after the others had failed."""
    return {answer.id: answer for answer in answers}


def counting(answers: Iterable[AnswerRow], winners: Mapping[str, int]) -> dict[str, AnswerRow]:
    """The answer that counts for each question: the greedy one, else the one that won the vote,
    else the first; with evidence if there is one with."""

    def rank(answer: AnswerRow) -> tuple:
        won = answer.candidate == winners.get(answer.question_id)
        return not answer.evidence, answer.candidate != 0, not won, answer.candidate

    found: dict[str, AnswerRow] = {}
    for answer in sorted(answers, key=rank):
        found.setdefault(answer.question_id, answer)
    return found


def undone(tasks: Sequence[Task], answers: Iterable[AnswerRow]) -> list[Task]:
    """Tasks without an answer, and those whose policy failed."""
    done = {id for id, answer in newest(answers).items() if answer.ending != "error"}
    return [task for task in tasks if task.id not in done]
