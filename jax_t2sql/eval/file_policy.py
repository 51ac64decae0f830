"""A policy that reads its answers from a file of predictions."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_t2sql.eval.predictions import Prediction, read_predictions
from jax_t2sql.eval.questions import Asked
from jax_t2sql.eval.tasks import Task
from jax_t2sql.scores.records import AnswerRow

_BURST = 512


class FilePolicy:
    """Answers with what a file predicts.

    A question's only prediction is the greedy answer. Where any question has several they are
    samples: all are numbered from 1.

    Raises:
      UserError: see `read_predictions`.
    """

    def __init__(self, path: Path, asked: Asked):
        self._predictions = read_predictions(path, asked.rows, asked.all_ids)
        counts = [len(self._predictions.get(row.question_id, ())) for row in asked.rows]
        self.candidates = 0 if max(counts) <= 1 else max(counts)
        self.greedy = not self.candidates
        self.facts = {"model": {"file": hashlib.sha256(path.read_bytes()).hexdigest()}}

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
