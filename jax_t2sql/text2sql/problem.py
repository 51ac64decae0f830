"""Questions with their gold SQL, and the files they come from."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jax_t2sql.errors import UserError
from jax_t2sql.json_rows import json_rows
from jax_t2sql.parquet_rows import is_parquet, parquet_rows
from jax_t2sql.sql import parse_mode

# The first name present is taken: ours and BIRD's, then Spider's, then the field's own name.
# (Spider's lower-case `sql` is a parse tree, so names are compared exactly.)
_SQL_NAMES = ("SQL", "query", "gold_sql")
_GRADING_NAMES = ("grading_method", "grading")
_DIFFICULTY_NAMES = ("difficulty", "hardness")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question over one database.

    Attributes:
      question_id: unique within its file.
      db_id: name of the database, for `jax_t2sql.sql.resolve_database`.
      question: what is asked, in natural language.
      gold_sql: a query whose result is the answer.
      evidence: external knowledge that goes with the question; "" without.
      grading: how results are compared: a mode that `jax_t2sql.sql.parse_mode` reads.
      difficulty: the benchmark's label, if it has one.
      source: name of the set that it comes from; "" for a plain file.
      hint: help that a training prompt shows; never read from question files.
      given: whether `evidence` is the question's own, or was withheld or changed for training.
    """

    question_id: str
    db_id: str
    question: str
    gold_sql: str
    evidence: str = ""
    grading: str = "set"
    difficulty: str | None = None
    source: str = ""
    hint: str = ""
    given: Literal["own", "withheld", "wrong"] = "own"


def load_problems(path: str | Path) -> list[Problem]:
    """Reads questions from JSON lines, one JSON array, or a Parquet file (*.parquet).

    Field names are ours, BIRD's (`SQL`, `evidence`, `question_id`) or Spider's (`query`). A missing
    question_id is the row's index; one that occurs again gets `#2`, `#3`, … appended, so that the
    files that repeat an id lose no question. A null evidence is empty, a null grading method "set".

    Raises:
      UserError: the first fault found, with file, line and field.
    """
    path = Path(path)
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, (line, record) in enumerate(_records(path)):
        problem = _problem(record, where=f"{path}:{line}", index=index, seen=seen)
        seen.add(problem.question_id)
        problems.append(problem)
    if not problems:
        raise UserError(f"{path}: holds no questions; expected JSON lines or a JSON array")
    return problems


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """(line or row, record) of each question."""
    if is_parquet(path):
        yield from parquet_rows(path)
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give a question file of JSON lines"
        ) from None
    with file:
        yield from json_rows(file, path)


def _problem(record: Any, *, where: str, index: int, seen: set[str]) -> Problem:
    if not isinstance(record, dict):
        raise UserError(f"{where}: expected an object with fields, got {_short(record)}")
    grading_name, grading = _first(record, _GRADING_NAMES)
    grading = _text(where, grading_name, grading, default="set")
    try:
        mode = parse_mode(grading)
    except UserError as error:
        raise UserError(f"{where}: field {grading_name!r}: {error}") from None
    difficulty_name, difficulty = _first(record, _DIFFICULTY_NAMES)
    return Problem(
        question_id=_unique(_question_id(where, record.get("question_id"), index), seen),
        db_id=_text(where, "db_id", record.get("db_id")),
        question=_text(where, "question", record.get("question")),
        gold_sql=_text(where, *_first(record, _SQL_NAMES)),
        evidence=_text(where, "evidence", record.get("evidence"), default=""),
        grading=str(mode),
        difficulty=_text(where, difficulty_name, difficulty, default="") or None,
    )


def _first(record: dict[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    """The first of several names that is there and not null, with its value."""
    for name in names:
        if record.get(name) is not None:
            return name, record[name]
    return names[0], None


def _text(where: str, name: str, value: Any, *, default: str | None = None) -> str:
    """A text field. Without a default it must be there and not blank."""
    if value is None and default is not None:
        return default
    if value is None:
        raise UserError(f"{where}: field {name!r} is missing or null; every question needs it")
    if not isinstance(value, str):
        raise UserError(f"{where}: field {name!r} must be text, got {_short(value)}")
    if default is None and not value.strip():
        raise UserError(f"{where}: field {name!r} is blank; every question needs it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{where}: field {name!r} holds half of a surrogate pair; mend it"
        ) from None
    return value


def _question_id(where: str, value: Any, index: int) -> str:
    if value is None:
        return str(index)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(where, "question_id", value)


def _unique(question_id: str, seen: set[str]) -> str:
    name, count = question_id, 1
    while name in seen:
        count += 1
        name = f"{question_id}#{count}"
    return name


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= 60 else text[:57] + "…"
