"""Files of predictions: our JSON lines, BIRD's JSON object, Spider's one query a line.

* JSON lines or one array of objects: `question_id` (without one the row's place counts), and the
  query as `pred`, `predicted_sql`, `prediction` or `sql` (null: none). Several rows for a question
  are samples. An `answers.jsonl` of an evaluation is such a file.
* BIRD: one object, {"0": "SELECT …\t----- bird -----\tdb_id", …}; keys are question ids, or places
  in the question file counted from 0.
* Spider: a line a question of the file, or a line a question asked, in their order, perhaps with a
  tab and the db_id after the query.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.eval.tasks import counting
from jax_t2sql.json_rows import json_rows
from jax_t2sql.scores.records import AnswerRow, QuestionRow
from jax_t2sql.sql.tokens import tokenize

_BREAKS = re.compile(r"[\n\r\t\v\f]+")
_BIRD_MARK = "\t----- bird -----\t"
_SQL_NAMES = ("pred", "predicted_sql", "prediction", "sql")
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "turns")


@dataclass(frozen=True)
class Prediction:
    """One predicted query; `extras` are the costs that the file tells of it."""

    question_id: str
    sql: str | None
    extras: Mapping[str, Any]


def read_predictions(
    path: Path, rows: Sequence[QuestionRow], all_ids: Sequence[str]
) -> dict[str, list[Prediction]]:
    """Predictions by question, those of one question in the order of the file.

    Args:
      rows: the questions asked.
      all_ids: of the whole question file in its order, for files that go by place.

    Raises:
      UserError: the file is broken, or is for other questions.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); name a predictions file"
        ) from None
    head = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not head:
        raise UserError(f"{path} is empty; name a predictions file")
    if head not in (b"{", b"["):
        found = _spider(data, path, rows, all_ids)
    elif head == b"{" and (table := _whole_object(data, path)) is not None:
        found = _bird(table, path, rows, all_ids)
    else:
        found = _rows(path, rows, all_ids)
    by_id: dict[str, list[Prediction]] = {}
    for prediction in found:
        by_id.setdefault(prediction.question_id, []).append(prediction)
    if not by_id.keys() & {row.question_id for row in rows}:
        raise UserError(f"{path} has a prediction for none of the questions asked")
    return by_id


def _whole_object(data: bytes, path: Path) -> dict[str, Any] | None:
    """The file's one JSON object, if it is one and no row of ours."""

    def named_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise UserError(f"{path}: {name!r} is there twice; leave one of them")
            found[name] = value
        return found

    try:
        table = json.loads(data.decode("utf-8-sig"), object_pairs_hook=named_once)
    except UserError:
        raise
    except (ValueError, RecursionError):
        return None
    return None if any(name in table for name in ("question_id", *_SQL_NAMES)) else table


def _rows(path: Path, rows: Sequence[QuestionRow], all_ids: Sequence[str]) -> Iterable[Prediction]:
    known, db_ids = set(all_ids), {row.question_id: row.db_id for row in rows}
    with open(path, "rb") as file:
        for place, (line, row) in enumerate(json_rows(file, path)):
            where = f"{path}:{line}"
            if not isinstance(row, dict):
                raise UserError(f"{where}: expected an object with question_id and pred")
            name = next((name for name in _SQL_NAMES if name in row), None)
            # A row of ours without a query leaves the field out.
            if name is None and "ending" not in row:
                raise UserError(
                    f"{where}: has none of {', '.join(_SQL_NAMES)}, where the predicted query is"
                )
            question_id = row.get("question_id")
            if question_id is None:
                question_id = _by_place(place, all_ids, where)
            elif isinstance(question_id, bool) or not isinstance(question_id, int | str):
                raise UserError(f"{where}: field 'question_id' must be text or an integer")
            if str(question_id) not in known:
                raise UserError(f"{where}: question {question_id!r} is none of the question file's")
            _check_database(row.get("db_id"), str(question_id), db_ids, where)
            yield Prediction(str(question_id), _query(row.get(name), where), _extras(row))


def _extras(row: Mapping[str, Any]) -> dict[str, Any]:
    """Costs that a row tells: counts of tokens and turns, and seconds."""
    extras: dict[str, Any] = {
        name: row[name]
        for name in _COUNTS
        if isinstance(row.get(name), int) and not isinstance(row[name], bool) and row[name] >= 0
    }
    seconds = row.get("seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0:
        extras["seconds"] = float(seconds)
    return extras


def _bird(
    table: Mapping[str, Any], path: Path, rows: Sequence[QuestionRow], all_ids: Sequence[str]
) -> Iterable[Prediction]:
    known, places = set(all_ids), {str(place) for place in range(len(all_ids))}
    if table.keys() <= known:
        names = {key: key for key in table}
    elif table.keys() <= places:
        names = {key: all_ids[int(key)] for key in table}
    else:
        odd = next(key for key in table if key not in known and key not in places)
        raise UserError(
            f"{path}: {odd!r} is neither a question id nor a place below {len(all_ids):,}; is it a"
            " file for other questions?"
        )
    db_ids = {row.question_id: row.db_id for row in rows}
    for key, value in table.items():
        text = _query(value, f"{path}: {key!r}")
        sql, _, db_id = (text or "").partition(_BIRD_MARK)
        _check_database(db_id.strip(), names[key], db_ids, f"{path}: {key!r}")
        yield Prediction(names[key], sql if text is not None else None, {})


def _spider(
    data: bytes, path: Path, rows: Sequence[QuestionRow], all_ids: Sequence[str]
) -> Iterable[Prediction]:
    try:
        lines = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None
    asked_ids = [row.question_id for row in rows]
    ids = next((ids for ids in (all_ids, asked_ids) if len(ids) == len(lines)), None)
    if ids is None:
        raise UserError(
            f"{path} has {len(lines):,} lines for {len(all_ids):,} questions; it needs one query a"
            " line, in the order of the questions"
        )
    db_ids = {row.question_id: row.db_id for row in rows}
    for number, (question_id, line) in enumerate(zip(ids, lines, strict=True), start=1):
        sql, _, db_id = line.partition("\t")
        _check_database(db_id.strip(), question_id, db_ids, f"{path}:{number}")
        yield Prediction(question_id, sql.strip() or None, {})


def _check_database(db_id: Any, question_id: str, asked: Mapping[str, str], where: str) -> None:
    """Raises UserError if a file says that a question asked is about another database."""
    if isinstance(db_id, str) and db_id and db_id != asked.get(question_id, db_id):
        raise UserError(
            f"{where} is for database {db_id!r}, but question {question_id} is about"
            f" {asked[question_id]!r}; it is a file for other questions"
        )


def _by_place(place: int, all_ids: Sequence[str], where: str) -> str:
    if place >= len(all_ids):
        raise UserError(f"{where}: there are only {len(all_ids):,} questions; give question_id")
    return all_ids[place]


def _query(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where}: the predicted query must be text or null")
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: the query holds half of a surrogate pair; mend it") from None
    return value


def write_predictions(
    folder: Path,
    form: str,
    rows: Sequence[QuestionRow],
    answers: Sequence[AnswerRow],
    *,
    all_ids: Sequence[str],
    winners: Mapping[str, int],
) -> Path:
    """Writes one answer a question in a benchmark's own format, in the order of the questions.

    Args:
      form: "bird" (keys are places in the whole question file) or "spider" (a line for each
        question of that file; SELECT stands for what was not asked, or has no answer).
      answers: see `counting` for which of a question's is written.
      all_ids: of the whole question file in its order.
      winners: candidates that won the vote.
    """
    chosen = counting(answers, winners)
    found = [chosen.get(row.question_id) for row in rows]
    queries = ["" if answer is None else answer.sql or "" for answer in found]
    if form == "bird":
        path = folder / "predictions.json"
        places = {question_id: place for place, question_id in enumerate(all_ids)}
        table = {
            str(places[row.question_id]): f"{sql}{_BIRD_MARK}{row.db_id}"
            for row, sql in zip(rows, queries, strict=True)
        }
        text = json.dumps(table, indent=4, ensure_ascii=False) + "\n"
    else:
        path = folder / "predictions.sql"
        # The public evaluator takes a blank line for the end of a dialogue.
        given = dict(zip((row.question_id for row in rows), queries, strict=True))
        lines = (_one_line(given.get(question_id, "")) for question_id in all_ids)
        text = "".join(f"{line or 'SELECT'}\n" for line in lines)
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
    return path


def _one_line(sql: str) -> str:
    """The query on one line without comments; line breaks and tabs in texts become char(10), …"""
    parts = [" "]
    for token in tokenize(sql):
        if token.kind in ("space", "comment"):
            parts += [" "] * (parts[-1] != " ")
        elif token.text.startswith("'") and _BREAKS.search(token.text):
            parts.append(f"({_BREAKS.sub(_as_char, token.text)})")
        else:
            parts.append(_BREAKS.sub(" ", token.text))
    return "".join(parts).strip()


def _as_char(found: re.Match[str]) -> str:
    return f"' || char({', '.join(str(ord(c)) for c in found.group())}) || '"
