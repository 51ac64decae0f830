"""Verdicts on answers, kept so that an interrupted evaluation repeats none."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.eval.questions import Asked
from jax_t2sql.eval.voting import ExecutionRow, run_candidates
from jax_t2sql.grading import GradeJob, GradingPool
from jax_t2sql.scores.graders import grade_answers
from jax_t2sql.scores.memo import Memo
from jax_t2sql.scores.records import AnswerId, AnswerRow, RowWriter, VerdictRow, read_rows
from jax_t2sql.streams import live_progress

_SLOW = {"suite", "equivalence", "r-ves"}
_SLOW_BURST, _BURST = 20, 1_000

Find = Callable[[str], Path | UserError]


def collect_verdicts(
    path: Path,
    asked: Asked,
    answers: Sequence[AnswerRow],
    *,
    graders: Sequence[str],
    find: Find,
    pool: GradingPool,
    memo: Memo | None,
    limits: str,
) -> list[VerdictRow]:
    """All verdicts of these graders; those that the file lacks are found and added.

    Answers that failed are judged (wrong), but not on file: they may still be given. What the
    machine's failure left open is not on file either: the same command tries again.
    """
    questions = {row.question_id: row for row in asked.rows}
    known = {_name(row): row for row in read_rows(path, VerdictRow)}
    wanted = {
        answer.id: [(key, g) for key in questions[answer.question_id].golds for g in graders]
        for answer in answers
    }
    todo = [a for a in answers if any((a.id, *pair) not in known for pair in wanted[a.id])]
    failed = {answer.id for answer in answers if answer.ending == "error"}
    seen: set[AnswerId] = set()
    # What is on file is all that a kill leaves; slow graders are to lose little.
    size = _SLOW_BURST if set(graders) & _SLOW else _BURST
    with (
        RowWriter(path) as writer,
        live_progress("verdicts", len(answers), shown=bool(todo)) as show,
    ):
        for first in range(0, len(todo), size):
            bursts = grade_answers(
                questions,
                todo[first : first + size],
                graders=graders,
                find=find,
                pool=pool,
                memo=memo,
                keys=list(asked.keys),
                limits=limits,
            )
            burst = [row for part in bursts for row in part]
            new = {_name(row): row for row in burst if _name(row) not in known}
            writer.write(
                row
                for name, row in new.items()
                if name[0] not in failed and row.kind != "infrastructure"
            )
            known |= new
            seen |= {row.answer_id for row in burst}
            show(len(answers) - len(todo) + len(seen), {})
    return [known[id, *pair] for id, pairs in wanted.items() for pair in pairs]


def _name(row: VerdictRow) -> tuple[AnswerId, str, str]:
    return row.answer_id, row.key, row.grader


def collect_executions(
    path: Path, asked: Asked, answers: Sequence[AnswerRow], *, find: Find, pool: GradingPool
) -> dict[AnswerId, ExecutionRow]:
    """What running each sampled answer gives; what the file lacks is run and added."""
    questions = {row.question_id: row for row in asked.rows}
    known = {row.id: row for row in read_rows(path, ExecutionRow)}
    sampled = [a for a in answers if a.decoding == "sample" and a.ending != "error"]
    todo = [answer for answer in sampled if answer.id not in known]
    done = len(sampled) - len(todo)
    with (
        RowWriter(path) as writer,
        live_progress("votes", len(sampled), shown=bool(todo)) as show,
    ):
        for burst in run_candidates(questions, todo, find=find, pool=pool):
            writer.write(row for row in burst if row.status != "infrastructure")
            known |= {row.id: row for row in burst}
            done += len(burst)
            show(done, {})
    return known


def differing_golds(asked: Asked, *, find: Find, pool: GradingPool) -> list[dict]:
    """Questions whose gold queries give other results in another answer key than in the own one."""
    jobs, names = [], []
    for row in asked.rows:
        own = row.golds[asked.key]
        for key, gold in row.golds.items():
            path = find(row.db_id)
            if key != asked.key and not isinstance(path, UserError):
                jobs.append(GradeJob(path, own.sql, gold.sql, own.grading))
                names.append((row.question_id, key))
    return [
        {"question_id": question_id, "keys": [asked.key, key], "detail": verdict.detail}
        for (question_id, key), verdict in zip(names, pool.grade_many(jobs), strict=True)
        if not verdict.matches
    ]
