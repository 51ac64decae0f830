"""Getting answers and keeping them, so that an interrupted evaluation repeats none."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from jax_t2sql.errors import UserError
from jax_t2sql.eval.tasks import Task, newest, undone
from jax_t2sql.scores.records import AnswerRow, RowWriter, read_rows
from jax_t2sql.streams import live_progress

_FAILURES_IN_A_ROW = 20  # then something is wrong with the policy, not with the questions


class Answerer(Protocol):
    """A policy. `facts` go into the manifest."""

    facts: dict[str, Any]

    def answer(self, tasks: Sequence[Task]) -> Iterator[list[AnswerRow]]:
        """One row a task, in bursts and in any order."""
        ...


def collect_answers(path: Path, tasks: Sequence[Task], policy: Answerer) -> list[AnswerRow]:
    """All answers, in the order of the tasks; those that the file lacks are got and added.

    Raises:
      UserError: the policy fails again and again. What was answered until then is kept.
    """
    known = newest(read_rows(path, AnswerRow))
    todo = undone(tasks, known.values())
    done, failures, tokens = len(tasks) - len(todo), 0, 0
    with (
        RowWriter(path) as writer,
        live_progress("answers", len(tasks), shown=bool(todo)) as show,
    ):
        for burst in policy.answer(todo) if todo else ():
            writer.write(burst)
            known |= newest(burst)
            done += len(burst)
            for row in burst:
                failures = failures + 1 if row.ending == "error" else 0
                tokens += row.completion_tokens or 0
                if failures >= _FAILURES_IN_A_ROW:
                    raise UserError(
                        f"{failures} answers in a row failed, the last: {row.error}. Mend that,"
                        " then run the same command: it goes on where it was"
                    )
            show(done, {"completion_tokens_mean": tokens / max(1, done - len(tasks) + len(todo))})
    return [known[task.id] for task in tasks]
