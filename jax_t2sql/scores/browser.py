"""What an evaluation's page shows of each question."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.scores.graders import VALUED
from jax_t2sql.scores.records import AnswerRow, QuestionRow, VerdictRow
from jax_t2sql.scores.run import FAILURES, EvalRun
from jax_t2sql.scores.tags import structure_tags

# Bounds that keep the page quick to open.
_MAX_QUESTIONS = 3_000
_MAX_BYTES = 12 * 2**20
_MAX_TEXT = 4_000
_SHOWN_CANDIDATES = 16  # of a question


def browser_rows(run: EvalRun, grader: str, key: str) -> tuple[list[dict[str, Any]], list[str]]:
    """One row a question, ready for JSON, and notes on what was left out.

    Raises:
      UserError: the file that `explain` has left is damaged.
    """
    failures = _failures(run.folder / FAILURES)
    answers: dict[str, dict[int, AnswerRow]] = {}
    for answer in run.answers:  # of several with one number the last: the others failed
        if answer.evidence == run.evidence:
            answers.setdefault(answer.question_id, {})[answer.candidate] = answer
    verdicts: dict[str, list[VerdictRow]] = {}
    for verdict in run.verdicts:
        if verdict.key == key and verdict.evidence == run.evidence:
            verdicts.setdefault(verdict.question_id, []).append(verdict)
    rows = []
    for name, question in list(run.questions.items())[:_MAX_QUESTIONS]:
        given = answers.get(name, {})
        counting = run.counting(name, given) if given else None
        others = [given[number] for number in sorted(given) if number != counting]
        marks = {(v.grader, v.candidate): v for v in verdicts.get(name, [])}
        rows.append(
            _asked(question, key)
            | _counting_answer(given.get(counting), marks, grader)
            | {"samples": _samples(others[:_SHOWN_CANDIDATES], marks, grader)}
            | _explained(failures.get(name, {}))
        )
    return _fitting(rows, len(run.questions), bool(failures))


_Marks = Mapping[tuple[str, int], VerdictRow]


def _asked(question: QuestionRow, key: str) -> dict[str, Any]:
    gold = question.golds.get(key)
    return {
        "id": question.question_id,
        "db": question.db_id,
        "question": bounded(question.question),
        "evidence": bounded(question.evidence),
        "difficulty": question.difficulty or "",
        "gold": bounded(gold.sql if gold else ""),
        "grading": gold.grading if gold else "",
        "tags": structure_tags(gold.sql) if gold else [],
    }


def _counting_answer(answer: AnswerRow | None, marks: _Marks, grader: str) -> dict[str, Any]:
    if answer is None:
        empty = {"pred": "", "kind": "missing", "detail": "", "correct": None, "tokens": ""}
        return empty | {"graders": {}, "messages": []}
    of_answer = {name: v for (name, number), v in marks.items() if number == answer.candidate}
    verdict = of_answer.get(grader)
    return {
        "pred": bounded(answer.sql),
        "kind": verdict.kind if verdict else answer.ending,
        "detail": bounded(verdict.detail if verdict else answer.error),
        "correct": verdict.correct if verdict else None,
        "tokens": _tokens(answer),
        "graders": {n: v.value if n in VALUED else v.correct for n, v in of_answer.items()},
        "messages": [{"role": m.role, "text": bounded(m.content)} for m in answer.messages],
    }


def _samples(answers: Sequence[AnswerRow], marks: _Marks, grader: str) -> list[dict[str, Any]]:
    found = []
    for answer in answers:
        verdict = marks.get((grader, answer.candidate))
        correct = verdict.correct if verdict else None
        found.append(
            {"candidate": answer.candidate, "sql": bounded(answer.sql), "correct": correct}
        )
    return found


def _explained(failure: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "differences": failure.get("differences", []),
        "guess": failure.get("guess"),
        "results": [failure[side] for side in ("gold", "predicted") if side in failure],
        "counterexample": failure.get("counterexample"),
    }


def _fitting(
    rows: list[dict[str, Any]], total: int, explained: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Leaves out what makes the page too large: first episodes, then samples."""
    notes = []
    if len(rows) < total:
        notes.append(f"The browser holds the first {len(rows):,} of {total:,} questions.")
    if not explained:
        notes.append(
            "Run python -m jax_t2sql.eval explain on this folder for what is wrong with"
            " the wrong answers, then report again."
        )
    for part, told in (("messages", "Episodes"), ("samples", "Further candidates")):
        if len(json.dumps(rows)) > _MAX_BYTES:
            rows = [row | {part: []} for row in rows]
            notes.append(f"{told} are left out, as the page would be too large.")
    return rows, notes


def _tokens(answer: AnswerRow) -> str:
    if answer.completion_tokens is None:
        return ""
    return f"{answer.prompt_tokens or 0:,} in, {answer.completion_tokens:,} out"


def bounded(value: str | None) -> str:
    """Text of bounded length that a browser takes: a long one keeps its two ends."""
    text = (value or "").encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _failures(path: Path) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        return {}
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return {row["question_id"]: row for row in rows}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}); run `explain` again") from None
