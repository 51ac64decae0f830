"""Questions of a published set from the files of a local copy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_pipelines.sources import Source, SplitFiles
from jax_t2sql.errors import UserError
from jax_t2sql.parquet_rows import is_parquet, parquet_rows
from jax_t2sql.text2sql import Problem, load_problems


@dataclass(frozen=True)
class SplitCopy:
    """One split as it was read.

    Attributes:
      name: of the split.
      problems: its questions.
      files: what they were read from.
      databases: folder of the databases; None for a dialect that has none here.
      rejected: (question, reason) of rows that cannot be used for want of a gold query.
    """

    name: str
    problems: list[Problem]
    files: tuple[Path, ...]
    databases: Path | None
    rejected: tuple[tuple[Problem, str], ...] = ()


def read_split(
    source: Source,
    name: str,
    folder: Path,
    *,
    files: Sequence[Path] = (),
    databases: Path | None = None,
) -> SplitCopy | None:
    """One split of a local copy.

    Args:
      source: what it is a copy of.
      name: of the split.
      folder: the local copy.
      files: these instead of the usual ones.
      databases: this folder instead of the usual one.

    Returns: None if the copy does not have the split.

    Raises:
      UserError: a file is broken, or the databases are not found.
    """
    split = source.splits[name]
    paths = tuple(files) or _first_complete(folder, split)
    if paths is None:
        return None
    rejected: list[tuple[Problem, str]] = []
    problems: list[Problem] = []
    for path in paths:
        problems += _READERS[source.layout](path, split, rejected)
    if source.prefix:
        problems = [p for p in problems if p.question_id.startswith(source.prefix)]
        rejected = [(p, r) for p, r in rejected if p.question_id.startswith(source.prefix)]
    if len(paths) > 1:
        problems = _with_unique_ids(problems)
    problems = [replace(problem, source=source.name) for problem in problems]
    if source.dialect == "sqlite" and databases is None:
        databases = _first_folder(folder, split, name)
    return SplitCopy(name, problems, paths, databases, tuple(rejected))


def _first_complete(folder: Path, split: SplitFiles) -> tuple[Path, ...] | None:
    for names in split.files:
        paths = tuple(folder / name for name in names)
        if all(path.is_file() for path in paths):
            return paths
    return None


def _first_folder(folder: Path, split: SplitFiles, name: str) -> Path:
    for candidate in split.databases:
        if (folder / candidate).is_dir():
            return folder / candidate
    raise UserError(
        f"{folder} has the questions of {name} but none of the folders"
        f" {', '.join(split.databases)} with their databases; name one with --databases"
    )


def _with_unique_ids(problems: Sequence[Problem]) -> list[Problem]:
    """Files that each count from 0 give ids that repeat; then all are counted anew."""
    if len({problem.question_id for problem in problems}) == len(problems):
        return list(problems)
    return [replace(problem, question_id=str(i)) for i, problem in enumerate(problems)]


def read_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of JSON lines, a JSON array or a Parquet file as they stand.

    Raises:
      UserError: the file cannot be read, or a row is no object.
    """
    if is_parquet(path):
        yield from (row for _, row in parquet_rows(path))
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
        array = text.lstrip().startswith("[")
        rows = json.loads(text) if array else [json.loads(x) for x in text.split("\n") if x.strip()]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; name another file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}; expected rows or one array") from None
    for row in rows:
        if not isinstance(row, dict):
            raise UserError(f"{path}: a row is no object with fields: {json.dumps(row)[:60]}")
        yield row


def _read_plain(path: Path, split: SplitFiles, rejected: list) -> list[Problem]:
    problems = load_problems(path)
    if split.mark is None:
        return problems
    marks = [row.get("split") for row in read_rows(path)]
    return [p for p, mark in zip(problems, marks, strict=True) if mark == split.mark]


def _read_spider2(path: Path, split: SplitFiles, rejected: list) -> list[Problem]:
    """Questions of Spider 2.0; the documents that they name become their external knowledge."""
    problems = []
    for number, row in enumerate(read_rows(path), start=1):
        try:
            problem = Problem(
                question_id=str(row["instance_id"]),
                db_id=str(row.get("db_id") or row["db"]),
                question=str(row.get("question") or row["instruction"]),
                gold_sql="",
                evidence=_document(path.parent, row.get("external_knowledge")),
            )
        except KeyError as error:
            raise UserError(f"{path}: question {number} has no field {error}") from None
        gold = path.parent / "evaluation_suite" / "gold" / "sql" / f"{problem.question_id}.sql"
        if gold.is_file() and (sql := gold.read_text(encoding="utf-8", errors="replace").strip()):
            problems.append(replace(problem, gold_sql=sql))
        else:
            rejected.append((problem, f"no gold query: {gold} is missing or empty"))
    return problems


def _document(folder: Path, name: Any) -> str:
    if not name:
        return ""
    path = folder / "resource" / "documents" / Path(str(name)).name
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read_templates(path: Path, split: SplitFiles, rejected: list) -> list[Problem]:
    """Questions and queries with variables, as text2sql-data has them; or plain rows."""
    rows = list(read_rows(path))
    if not rows or "sentences" not in rows[0]:
        return _read_plain(path, split, rejected)
    problems = []
    for number, row in enumerate(rows):
        for index, sentence in enumerate(row["sentences"]):
            if sentence["question-split"] != split.mark:
                continue
            question, sql = sentence["text"], row["sql"][0]
            # Longest first: var1 is the beginning of var10.
            for variable in sorted(sentence["variables"], key=len, reverse=True):
                value = sentence["variables"][variable]
                question, sql = question.replace(variable, value), sql.replace(variable, value)
            problems.append(
                Problem(
                    question_id=f"{path.stem}_{number}_{index}",
                    db_id=path.stem,
                    question=question,
                    gold_sql=sql,
                )
            )
    return problems


_READERS = {"rows": _read_plain, "spider2": _read_spider2, "templates": _read_templates}
