"""From questions and databases to a dataset: check every gold, set aside, write, record.

A dataset appears in its folder whole or not at all, and a version that exists is never changed.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_pipelines.builder import import_tfds, write_dataset
from data_pipelines.checksums import FileRecord, record_file
from data_pipelines.provenance import (
    FILE,
    Provenance,
    SplitRecord,
    read_provenance,
    write_provenance,
)
from jax_t2sql import __version__
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GoldReport, GradingPool, check_golds
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import Problem
from jax_t2sql.text2sql.schema_doc import read_doc
from jax_t2sql.text2sql.schema_text import print_schema

_SAY_NOTHING: Callable[[str], None] = lambda text: None  # noqa: E731


@dataclass(frozen=True, kw_only=True)
class SplitInput:
    """One split before its golds are checked.

    Attributes:
      problems: its questions.
      databases: folder of their databases; None for queries that cannot be run here.
      rejected: (question, reason) of rows already set aside.
    """

    problems: Sequence[Problem]
    databases: Path | None
    rejected: Sequence[tuple[Problem, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A dataset to be made."""

    name: str
    version: str
    title: str
    splits: Mapping[str, SplitInput]
    split_rule: str
    files: Sequence[Path]
    licence: str = ""
    citation: str = ""
    homepage: str = ""
    dialect: str = "sqlite"


@dataclass
class _Checked:
    """What the check of the golds left of the splits."""

    kept: dict[str, list[Problem]] = field(default_factory=dict)
    records: dict[str, SplitRecord] = field(default_factory=dict)
    databases: dict[str, list[FileRecord]] = field(default_factory=dict)
    empty: set[tuple[str, str]] = field(default_factory=set)
    quarantine: list[dict] = field(default_factory=list)
    warnings: list[dict] = field(default_factory=list)


def prepare(
    recipe: Recipe,
    out: Path,
    *,
    pool: GradingPool,
    seconds: float,
    count: Callable[[str], int] | None = None,
    say: Callable[[str], None] = _SAY_NOTHING,
) -> tuple[Path, Provenance]:
    """Makes `out/name/version`, or finds that it is there already with the same content.

    Questions whose gold query fails, is too slow, changes from run to run or has no database are
    set aside in quarantine.jsonl; those with an empty result are kept and marked.

    Args:
      recipe: what to make.
      out: folder of datasets.
      pool: runs the golds.
      seconds: its time limit, for the record.
      count: tokens of a text, for schemas.jsonl; without it lengths are in characters alone.
      say: is told what happens.

    Raises:
      UserError: nothing usable is left of a split, or the version exists with other content.
    """
    import_tfds()  # before minutes of checking
    target = out / recipe.name / recipe.version
    checked = _Checked()
    for name, split in recipe.splits.items():
        say(f"{name}: {len(split.problems)} questions; running their gold queries")
        _check_split(checked, name, split, pool)
    made_with = f"jax_t2sql {__version__}, golds run for at most {seconds:g} s"
    provenance = Provenance(
        name=recipe.name,
        version=recipe.version,
        title=recipe.title,
        licence=recipe.licence,
        citation=recipe.citation,
        dialect=recipe.dialect,
        fingerprint=_fingerprint(checked),
        made_with=made_with,
        split_rule=recipe.split_rule,
        splits=checked.records,
        files=[record_file(path) for path in recipe.files],
        databases=checked.databases,
        shards=[],
    )
    if target.exists():
        _compare(target, provenance)
        say(f"{target} is there already, with the same content")
        return target, read_provenance(target)
    _write(recipe, checked, provenance, out, target, count)
    return target, read_provenance(target)


def _check_split(checked: _Checked, name: str, split: SplitInput, pool: GradingPool) -> None:
    if split.databases is None:  # nothing can be run
        report = GoldReport(list(split.problems), [], [])
    elif not split.problems:
        report = GoldReport([], [], [])
    else:
        report = check_golds(split.problems, split.databases, pool)
    aside = [*split.rejected, *report.quarantined]
    kept_ids = {p.question_id for p in (*report.kept, *report.empty)}
    kept = [problem for problem in split.problems if problem.question_id in kept_ids]
    if not kept:
        first = f"; the first, {aside[0][0].question_id}: {aside[0][1]}" if aside else ""
        raise UserError(f"no question of the split {name} can be used{first}")
    checked.kept[name] = kept
    checked.empty |= {(name, problem.question_id) for problem in report.empty}
    checked.quarantine += [_row(name, problem, reason) for problem, reason in aside]
    checked.warnings += [_row(name, problem, reason) for problem, reason in report.warnings]
    checked.records[name] = SplitRecord(
        questions=len(kept),
        gold_empty=len(report.empty),
        quarantined=len(aside),
        gold_warnings=len(report.warnings),
        databases=None if split.databases is None else str(split.databases.absolute()),
    )
    if split.databases is not None:
        checked.databases[name] = _record_databases(kept, split.databases)


def _record_databases(problems: Sequence[Problem], folder: Path) -> list[FileRecord]:
    records = {}
    for db_id in sorted({problem.db_id for problem in problems}):
        path = resolve_database(folder, db_id)
        inside = path != folder  # one file that serves every id is its own folder
        records[path] = record_file(path, str(path.relative_to(folder)) if inside else ".")
    return list(records.values())


def _describe_schemas(
    recipe: Recipe, checked: _Checked, count: Callable[[str], int] | None
) -> list[dict]:
    """How large each database's schema is as prompts show it, and how much of it is described."""
    rows = []
    for name, split in recipe.splits.items():
        if split.databases is None:
            continue
        for db_id in sorted({problem.db_id for problem in checked.kept[name]}):
            doc = read_doc(resolve_database(split.databases, db_id))
            bare = read_doc(resolve_database(split.databases, db_id), descriptions=False)
            text, tables = print_schema(doc), doc.schema.tables
            rows.append(
                {
                    "split": name,
                    "db_id": db_id,
                    "tables": len(tables),
                    "columns": sum(len(table.columns) for table in tables),
                    "described": sum(
                        comment != bare.comments.get(key) for key, comment in doc.comments.items()
                    ),
                    "foreign_keys": sum(len(table.foreign_keys) for table in tables),
                    "characters": len(text),
                    "tokens": None if count is None else count(text),
                }
            )
    return rows


def _row(split: str, problem: Problem, reason: str) -> dict:
    return {
        "split": split,
        "question_id": problem.question_id,
        "db_id": problem.db_id,
        "reason": reason,
        "question": problem.question,
        "SQL": problem.gold_sql,
    }


def _fingerprint(checked: _Checked) -> str:
    content = [
        [
            name,
            [dataclasses.astuple(problem) for problem in problems],
            sorted(i for split, i in checked.empty if split == name),
            [(record.path, record.sha256) for record in checked.databases.get(name, [])],
        ]
        for name, problems in checked.kept.items()
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _compare(target: Path, provenance: Provenance) -> None:
    if not (target / FILE).is_file() or (
        read_provenance(target).fingerprint != provenance.fingerprint
    ):
        raise UserError(
            f"{target} exists with other content, and a version is never changed; give another"
            " --version, or remove that folder"
        )


def _write(
    recipe: Recipe,
    checked: _Checked,
    provenance: Provenance,
    out: Path,
    target: Path,
    count: Callable[[str], int] | None,
) -> None:
    draft = out / f".incomplete-{recipe.name}-{recipe.version}-{os.getpid()}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = write_dataset(
            draft,
            name=recipe.name,
            version=recipe.version,
            splits=checked.kept,
            empty=frozenset(checked.empty),
            description=recipe.title,
            homepage=recipe.homepage,
            citation=recipe.citation,
            licence=recipe.licence,
        )
        shards = [record_file(p, p.name) for p in sorted(folder.glob("*.array_record-*"))]
        write_provenance(folder, dataclasses.replace(provenance, shards=shards))
        for name, rows in (
            ("quarantine.jsonl", checked.quarantine),
            ("gold_warnings.jsonl", checked.warnings),
            ("schemas.jsonl", _describe_schemas(recipe, checked, count)),
        ):
            lines = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
            (folder / name).write_text(lines)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
