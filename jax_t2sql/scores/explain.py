"""Say of each wrong answer what is wrong with it.

    python -m jax_t2sql.eval explain RUN

RUN is the --out of an evaluation. For each question whose answer is wrong: both results side by
side, the difference between the queries in words, a small database on which they differ where one
is found, and a first guess whether the model, the question or the benchmark is at fault. Prints
the kinds of differences counted and the first few failures; writes all to RUN/failures.jsonl, from
which the report takes them.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.grading import EquivalenceRule, GradingPool
from jax_t2sql.scores.differences import differences
from jax_t2sql.scores.guess import guess
from jax_t2sql.scores.inventory import Columns
from jax_t2sql.scores.printing import print_failures
from jax_t2sql.scores.records import AnswerRow
from jax_t2sql.scores.run import FAILURES, EvalRun, database_finder, read_run
from jax_t2sql.sql import Limits, Outcome, parse_mode, read_schema
from jax_t2sql.sql.schema import fold

_MODES = ("set", "multiset", "list")  # graders that are comparisons
_ROWS = 10  # of a result, kept
_CELL = 200  # characters of a cell, kept
_TOGETHER = 64  # failures whose results are in memory at a time


@dataclass(frozen=True)
class ExplainArgs:
    """Options of the program."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the evaluation."""
    grader: str | None = None
    """Whose verdicts count; the headline's if not given."""
    key: str | None = None
    """Which answer key; the headline's if not given."""
    databases: Path | None = None
    """Folder of the databases; where the evaluation found them if not given."""
    id: tuple[str, ...] = ()
    """Only these questions, right or wrong, each shown whole."""
    shown: int = 10
    """Failures printed."""
    counterexamples: bool = True
    """Look for a small database that tells the two queries apart (at most 1.5 s of processor time
    each)."""
    workers: int = 2
    """Processes that run SQL."""
    seconds: float = 30.0
    """Time limit of a query."""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        ExplainArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.eval explain",
        description=__doc__,
    )
    for name, low in (("shown", 0), ("workers", 1), ("seconds", 0.05)):
        if not getattr(args, name) >= low:
            raise UserError(f"--{name} is {getattr(args, name)}; it must be at least {low}")
    run = read_run(args.run)
    if args.databases is not None and not args.databases.exists():
        raise UserError(f"--databases {args.databases} does not exist")
    grader, key = run.choose(args.grader, args.key)
    marks = run.correct(grader, key)
    unknown = [name for name in args.id if name not in run.questions]
    if unknown:
        raise UserError(f"--id {unknown[0]}: {run.folder} has no such question")
    wanted = args.id or [name for name, right in marks.items() if not right]
    with GradingPool(args.workers, limits=Limits(seconds=args.seconds)) as pool:
        failures = list(
            explain(
                run,
                wanted,
                grader=grader,
                key=key,
                pool=pool,
                databases=args.databases,
                counterexamples=args.counterexamples,
            )
        )
    if not args.id:
        _write(run.folder / FAILURES, failures)
    title = f"{len(failures)} of {len(marks)} answers are wrong (grader {grader}, key {key})"
    if args.id:
        title = f"the answers to {len(failures)} questions"
    shown = len(failures) if args.id else args.shown
    print_failures(failures, shown=shown, title=title, whole=bool(args.id))
    return 0


def explain(
    run: EvalRun,
    names: Sequence[str],
    *,
    grader: str,
    key: str,
    pool: GradingPool,
    databases: Path | None = None,
    counterexamples: bool = True,
) -> Iterator[dict[str, Any]]:
    """Explains the answers to some questions, as JSON objects.

    Each has question_id, db_id, difficulty, question, evidence, gold_sql, predicted_sql, verdict,
    detail; gold and predicted (columns, rows, n_rows or message); differences (kind, text); guess
    (name, why; null where the answer is right); counterexample (reason, database, gold,
    predicted) or null.

    Raises:
      UserError: the run does not say where its databases are, and no folder is given.
    """
    find = database_finder(run, databases)
    answers = _answers(run)
    verdicts = {
        (v.question_id, v.candidate): v
        for v in run.verdicts
        if (v.key, v.grader) == (key, grader) and v.evidence == run.evidence
    }
    columns: dict[str, Columns] = {}
    marks = run.correct(grader, key)
    for first in range(0, len(names), _TOGETHER):
        running = []
        for name in names[first : first + _TOGETHER]:
            question, answer = run.questions[name], answers.get(name)
            path, gold = find(question.db_id), question.golds[key]
            pred = answer.sql if answer else None
            futures: list[Any] = [None, None, None]
            if isinstance(path, Path):
                futures[0] = pool.execute(path, gold.sql)
                if pred is not None:
                    futures[1] = pool.execute(path, pred)
                if pred is not None and counterexamples:
                    futures[2] = pool.check_equivalence(
                        gold.sql,
                        pred,
                        schema=path,
                        mode=parse_mode(grader if grader in _MODES else gold.grading),
                        rule=EquivalenceRule(bound=0),
                    )
                if question.db_id not in columns:
                    columns[question.db_id] = _columns(path)
            running.append((question, answer, futures))
        for question, answer, futures in running:
            gold_outcome, pred_outcome, checked = (f.result() if f else None for f in futures)
            pred = answer.sql if answer else None
            gold = question.golds[key].sql
            known = columns.get(question.db_id, {})
            found = differences(gold, pred, known) if pred is not None else []
            right = marks.get(question.question_id)
            guessed = (
                None
                if right
                else guess(
                    question=question.question,
                    evidence=question.evidence,
                    gold=gold,
                    pred=pred,
                    found=found,
                    gold_outcome=gold_outcome,
                    pred_outcome=pred_outcome,
                )
            )
            verdict = verdicts.get((question.question_id, answer.candidate if answer else 0))
            yield {
                "question_id": question.question_id,
                "db_id": question.db_id,
                "difficulty": question.difficulty,
                "question": question.question,
                "evidence": question.evidence,
                "gold_sql": gold,
                "predicted_sql": pred,
                "verdict": verdict.kind if verdict else (answer.ending if answer else "missing"),
                "detail": verdict.detail if verdict else "",
                "gold": _result(gold_outcome),
                "predicted": _result(pred_outcome),
                "differences": [{"kind": d.kind, "text": d.text} for d in found],
                "guess": guessed and {"name": guessed.name, "why": guessed.why},
                "counterexample": _counterexample(checked),
            }


def _answers(run: EvalRun) -> dict[str, AnswerRow]:
    """The answer that counts for each question."""
    given: dict[str, dict[int, AnswerRow]] = {}
    for answer in run.answers:
        if answer.evidence == run.evidence:
            given.setdefault(answer.question_id, {})[answer.candidate] = answer
    return {name: answers[run.counting(name, answers)] for name, answers in given.items()}


def _columns(path: Path) -> Columns:
    try:
        schema = read_schema(path)
    except UserError:
        return {}
    return {fold(t.name): frozenset(fold(c.name) for c in t.columns) for t in schema.tables}


def _result(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"message": "not run"}
    if not outcome.ok:
        return {"message": f"{outcome.status}: {outcome.message}"}
    return _rows(outcome.columns, outcome.rows)


def _rows(columns: Sequence[str], rows: Sequence[Sequence]) -> dict[str, Any]:
    return {
        "columns": list(columns),
        "rows": [[_cell(cell) for cell in row] for row in rows[:_ROWS]],
        "n_rows": len(rows),
    }


def _cell(value: object) -> str:
    """A value as SQL would write it, so that 1, 1.0, '1' and NULL look different."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"x'{value.hex()}'"
    elif isinstance(value, str):
        text = "'" + value.replace("'", "''") + "'"
    else:
        text = repr(value)
    return text if len(text) <= _CELL else text[:_CELL] + "…"


def _counterexample(verdict: Any) -> dict[str, Any] | None:
    if verdict is None or verdict.kind != "refuted":
        return None
    return {
        "reason": verdict.reason,
        "database": verdict.database,
        "gold": _rows(verdict.gold.columns, verdict.gold.rows),
        "predicted": _rows(verdict.pred.columns, verdict.pred.rows),
    }


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    draft = path.with_name(path.name + ".tmp")
    try:
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); make room") from None
