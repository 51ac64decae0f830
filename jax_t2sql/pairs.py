"""Files of query pairs: a gold and a predicted query over one database, or over a schema alone."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jax_t2sql.errors import UserError
from jax_t2sql.json_rows import json_rows
from jax_t2sql.sql import Mode, parse_mode

# Names of gold and predicted query; a row is read by the first of these that it has in full.
_FORMS = (("gold", "pred"), ("SQL", "pred"), ("sql1", "sql2"))


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the file.

    Attributes:
      id: its `id`, else its `question_id`, else its index, from 0 and not counting blank lines.
      db_id: name of the database, for `jax_t2sql.sql.resolve_database`; "" where a row has none.
      gold, pred: the two queries; a null prediction is "".
      mode: how their results are compared.
      schema: DDL, where the row has some.
    """

    id: str | int
    db_id: str
    gold: str
    pred: str
    mode: Mode
    schema: str | None = None


def open_pairs(path: Path) -> BinaryIO:
    """Opens the file for reading more than once; a pipe is first copied to a temporary file.

    Raises:
      UserError: it cannot be read.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  (the caller closes it)
        if file.seekable():
            return file
        with file:
            copy = tempfile.TemporaryFile()  # noqa: SIM115
            shutil.copyfileobj(file, copy)
        return copy
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give a file of pairs, JSON lines or one"
            " JSON array"
        ) from None


def read_pairs(
    file: BinaryIO, path: Path, mode: Mode | None, *, need_db_id: bool = True
) -> Iterator[Pair]:
    """Yields the pairs of JSON lines or of one JSON array, from the start of the file.

    Args:
      file: from `open_pairs`.
      path: its name, for errors.
      mode: of every pair; None takes each row's `grading_method`, null or absent meaning "set".
      need_db_id: whether a row without `db_id` is a fault.

    Raises:
      UserError: the first fault found, with file, line and field; or no pair at all.
    """
    file.seek(0)
    index = -1
    for index, (line, row) in enumerate(json_rows(file, path)):  # noqa: B007  (used below)
        yield _pair(row, f"{path}:{line}", index, mode, need_db_id)
    if index < 0:
        raise UserError(f"{path}: holds no pairs; expected JSON lines or one JSON array")


def _pair(row: Any, where: str, index: int, mode: Mode | None, need_db_id: bool) -> Pair:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object with fields, got {_short(row)}")
    names = next((form for form in _FORMS if form[0] in row and form[1] in row), None)
    if names is None:
        raise UserError(
            f"{where}: has neither gold and pred, nor SQL and pred, nor sql1 and sql2; its fields"
            f" are {_short(list(row))}"
        )
    gold_name, pred_name = names
    # An absent prediction is a fault of the file; a null one is a model that gave none.
    pred = "" if row[pred_name] is None else _text(row, pred_name, where)
    if mode is None:
        try:
            mode = parse_mode(row.get("grading_method"))
        except UserError as error:
            raise UserError(f"{where}: field 'grading_method': {error}") from None
    schema = None if row.get("schema") is None else _filled(row, "schema", where)
    has_db_id = need_db_id or row.get("db_id") is not None
    return Pair(
        id=_id(row, where, index),
        db_id=_filled(row, "db_id", where) if has_db_id else "",
        gold=_filled(row, gold_name, where),
        pred=pred,
        mode=mode,
        schema=schema,
    )


def _id(row: dict, where: str, index: int) -> str | int:
    for name in ("id", "question_id"):
        value = row.get(name)
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if value is not None:
            raise UserError(
                f"{where}: field {name!r} must be text or an integer, got {_short(value)}"
            )
    return index


def _filled(row: dict, name: str, where: str) -> str:
    if row.get(name) is None:
        raise UserError(f"{where}: field {name!r} is missing or null; every pair needs it")
    text = _text(row, name, where)
    if not text.strip():
        raise UserError(f"{where}: field {name!r} is blank; every pair needs it")
    return text


def _text(row: dict, name: str, where: str) -> str:
    if not isinstance(row[name], str):
        raise UserError(f"{where}: field {name!r} must be text, got {_short(row[name])}")
    return row[name]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
