"""A policy that reads its answers from a file of predictions."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.eval.predictions import Prediction, read_predictions
from jax_t2sql.eval.questions import Asked, repeated_ids
from jax_t2sql.eval.tasks import Task
from jax_t2sql.scores.records import AnswerRow

_BURST = 512


class FilePolicy:
    """Answers with what a file predicts.

    A question's only prediction is the greedy answer. Where any question has several they are
    samples: all are numbered from 1.

    Raises:
      UserError: see `read_predictions`; or a prediction is for one of two questions of one id.
    """

    def __init__(self, path: Path, asked: Asked):
        self._predictions = read_predictions(path, asked.rows, asked.all_ids)
        for name in repeated_ids(asked.all_ids):
            first = name.rpartition("#")[0]
            if name not in self._predictions and first in self._predictions:
                raise UserError(
                    f"{path}: question_id {first!r} occurs more than once in the questions, so it"
                    f" is not clear whose prediction this is; give each an id of its own ({name!r},"
                    " say)"
                )
        counts = [len(self._predictions.get(row.question_id, ())) for row in asked.rows]
        _tell(counts, path)
        self.candidates = 0 if max(counts) <= 1 else max(counts)
        self.greedy = not self.candidates
        self.facts = {"model": {"file": hashlib.sha256(path.read_bytes()).hexdigest()}}

    def answers(self, task: Task) -> bool:
        """Whether there is such an answer, or none at all, for which the first stands."""
        found = len(self._predictions.get(task.row.question_id, ()))
        return task.candidate <= max(found, 1)

    def answer(self, tasks: Sequence[Task]) -> Iterator[list[AnswerRow]]:
        """One row a task, in bursts."""
        for first in range(0, len(tasks), _BURST):
            yield [self._row(task) for task in tasks[first : first + _BURST]]

    def _row(self, task: Task) -> AnswerRow:
        found = self._predictions.get(task.row.question_id, [])
        place = max(0, task.candidate - 1)
        prediction = found[place] if place < len(found) else Prediction("", None, {})
        has_query = bool(prediction.sql and prediction.sql.strip())
        return AnswerRow(
            question_id=task.row.question_id,
            candidate=task.candidate,
            decoding="greedy" if task.greedy else "sample",
            ending="answer" if has_query else "no_query",
            sql=prediction.sql if has_query else None,
            evidence=task.evidence,
            **prediction.extras,
        )


def _tell(counts: Sequence[int], path: Path) -> None:
    """What the user may not have meant."""
    most, without = max(counts), counts.count(0)
    notes = []
    if without:
        notes.append(f"{without:,} of {len(counts):,} questions have no prediction: they are wrong")
    if most > 1 and len(set(counts) - {0}) > 1:
        several = sum(count > 1 for count in counts)
        notes.append(
            f"{several:,} of {len(counts):,} questions have several predictions, up to {most}: all"
            " count as samples to be voted on"
        )
    for note in notes:
        print(f"note: {path}: {note}", file=sys.stderr)
