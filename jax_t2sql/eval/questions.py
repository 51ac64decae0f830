"""The questions of an evaluation, with a gold query from every answer key."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.datasets import heldout_split, is_dataset, open_data
from jax_t2sql.errors import UserError
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.snow_schema import find_snow_database
from jax_t2sql.eval.suites import (
    SNOW_DATABASES,
    SUITES,
    Suite,
    benchmarks_folder,
    find_suite,
    not_found,
    suite_named,
)
from jax_t2sql.scores.records import Gold, QuestionRow
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import Problem, load_problems
from jax_t2sql.text2sql.prompt_options import Dialect
from jax_t2sql.tracking import spread

_SHOWN = 4  # missing databases named in a message


@dataclass(frozen=True)
class Asked:
    """What is asked.

    Attributes:
      rows: the questions, in the order of the file, each with a gold query of the own key.
      all_ids: of the whole file, in its order: what a file of predictions may have rows for.
      databases: folder of the databases, or one file.
      keys: {"path", "sha256"} of every answer key, the questions' own first.
      left_out: how many questions are not asked, by reason.
      dialect: of the queries; databases of Snowflake are folders that describe them.
    """

    rows: tuple[QuestionRow, ...]
    all_ids: tuple[str, ...]
    databases: Path
    keys: Mapping[str, Mapping[str, str]]
    left_out: Mapping[str, int]
    dialect: Dialect = "sqlite"

    @property
    def key(self) -> str:
        """Name of the questions' own answer key."""
        return next(iter(self.keys))

    def find(self) -> Callable[[str], Path | UserError]:
        """What gives the file of a database, or says why there is none; remembers it."""

        @functools.cache
        def find(db_id: str) -> Path | UserError:
            try:
                return finder(self.dialect)(self.databases, db_id)
            except UserError as error:
                return error

        return find


def finder(dialect: Dialect) -> Callable[[Path, str], Path]:
    """What finds a database by its id in a folder."""
    return resolve_database if dialect == "sqlite" else find_snow_database


@dataclass(frozen=True)
class _Source:
    problems: Sequence[Problem]
    databases: Path
    key: str
    path: str
    sha256: str
    left_out: Mapping[str, int]
    dialect: Dialect = "sqlite"


def load_questions(args: EvalArgs) -> Asked:
    """Reads what `--suite` or `--data`, `--keys` and `--questions` name.

    Raises:
      UserError: something is broken, or missing without `--allow-missing`.
    """
    source = _suite_source(args) if args.suite else _file_source(args)
    problems, left_out = _with_database(source, args.allow_missing)
    if args.questions is not None:
        problems = [problems[i] for i in spread(len(problems), args.questions)]
    own = {source.key: {"path": source.path, "sha256": source.sha256}}
    golds = {source.key: {p.question_id: Gold(sql=p.gold_sql, grading=p.grading) for p in problems}}
    for name, place in _parse_keys(args.keys):
        found, path, sha256 = _read_key(place, args)
        own[name] = {"path": path, "sha256": sha256}
        golds[name] = _matched(found, problems, name, path)
    rows = tuple(
        QuestionRow(
            question_id=p.question_id,
            db_id=p.db_id,
            question=p.question,
            evidence=p.evidence,
            difficulty=p.difficulty,
            golds={
                name: golds[name][p.question_id] for name in own if p.question_id in golds[name]
            },
        )
        for p in problems
    )
    ids = tuple(p.question_id for p in source.problems)
    return Asked(rows, ids, source.databases, own, left_out, source.dialect)


def repeated_ids(ids: Sequence[str]) -> list[str]:
    """The ids that `load_problems` made of those that occur again: `7#2` beside `7`."""
    known = set(ids)
    parts = ((name, *name.rpartition("#")[::2]) for name in ids)
    return [name for name, first, number in parts if number.isdecimal() and first in known]


def problem_of(row: QuestionRow, *, evidence: bool = True) -> Problem:
    """The question as prompts are made of it; no gold query is in it."""
    return Problem(
        question_id=row.question_id,
        db_id=row.db_id,
        question=row.question,
        gold_sql="",
        evidence=row.evidence if evidence else "",
        difficulty=row.difficulty,
    )


def _file_source(args: EvalArgs) -> _Source:
    split = heldout_split(args.data) or "train"
    data = open_data(args.data, args.databases, split=split)
    if not is_dataset(args.data) and not data.databases.exists():
        raise UserError(
            f"{data.databases}: no such directory or file; pass the folder of the databases"
        )
    return _Source(data.problems, data.databases, "gold", args.data, data.sha256, {})


def _suite_source(args: EvalArgs) -> _Source:
    suite = suite_named(args.suite)
    folder = benchmarks_folder(args.benchmarks)
    found = find_suite(suite, folder, args.databases)
    if found.copy is None:
        raise not_found(args.suite, suite, folder, found)
    copy, left_out = found.copy, {}
    count = len(copy.problems) + len(copy.rejected)
    if suite.published and count < suite.published:
        left_out["not in this copy"] = suite.published - count
    if copy.rejected:
        left_out["no gold query"] = len(copy.rejected)
    if left_out and not args.allow_missing:
        raise UserError(
            f"suite {args.suite}: of {suite.published or count:,} questions {_counts(left_out)}"
            f" ({copy.files[0]}). Complete the copy, or score what is there with --allow-missing"
        )
    if not copy.problems:
        raise UserError(f"suite {args.suite}: {copy.files[0]} has no question with a gold query")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in copy.files)).hexdigest()
    databases = copy.databases or args.databases or copy.files[0].parent / SNOW_DATABASES
    dialect = suite.source.dialect
    path = str(copy.files[0])
    return _Source(copy.problems, databases, suite.key, path, digest, left_out, dialect)


def _with_database(source: _Source, allowed: bool) -> tuple[list[Problem], dict[str, int]]:
    """Questions whose database is there, and how many are left out for which reason."""
    faults: dict[str, UserError] = {}
    for db_id in dict.fromkeys(problem.db_id for problem in source.problems):
        try:
            finder(source.dialect)(source.databases, db_id)
        except UserError as error:
            faults[db_id] = error
    kept = [problem for problem in source.problems if problem.db_id not in faults]
    left_out = dict(source.left_out)
    if faults:
        gone = len(source.problems) - len(kept)
        left_out["no database"] = gone
        names = ", ".join(list(faults)[:_SHOWN]) + ", …" * (len(faults) > _SHOWN)
        first = next(iter(faults.values()))
        if not kept:
            raise UserError(f"none of the databases can be used ({names}); the first: {first}")
        if not allowed:
            raise UserError(
                f"{len(faults)} databases of {gone:,} of {len(source.problems):,} questions cannot"
                f" be used ({names}); the first: {first}. Or leave those questions out with"
                " --allow-missing"
            )
    return kept, left_out


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())


def _parse_keys(text: str | None) -> list[tuple[str, str]]:
    keys = []
    for item in (text or "").split(","):
        if not item.strip():
            continue
        name, equals, place = (part.strip() for part in item.partition("="))
        if not equals or not name or not place:
            raise UserError(
                f"--keys has {item!r}; it must be NAME=FILE or NAME=SUITE, several with commas"
            )
        if name in dict(keys):
            raise UserError(f"--keys names {name!r} twice; give each key a name of its own")
        keys.append((name, place))
    return keys


def _read_key(place: str, args: EvalArgs) -> tuple[list[Problem], str, str]:
    """Questions of an answer key, the file they came from, and its hash."""
    if place not in SUITES or Path(place).exists():
        problems = load_problems(place)
        return problems, place, hashlib.sha256(Path(place).read_bytes()).hexdigest()
    suite: Suite = SUITES[place]
    folder = benchmarks_folder(args.benchmarks)
    found = find_suite(suite, folder, args.databases)
    if found.copy is None:
        raise not_found(place, suite, folder, found)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in found.copy.files)).hexdigest()
    return found.copy.problems, str(found.copy.files[0]), digest


def _matched(
    found: Sequence[Problem], problems: Sequence[Problem], name: str, path: str
) -> dict[str, Gold]:
    """Gold queries of a key for the questions asked; a question that it lacks is only not scored.

    Raises:
      UserError: it has none of them, or one over another database.
    """
    by_id = {problem.question_id: problem for problem in found}
    golds = {}
    for problem in problems:
        other = by_id.get(problem.question_id)
        if other is None:
            continue
        if other.db_id != problem.db_id:
            raise UserError(
                f"answer key {name} ({path}): question {problem.question_id} is about database"
                f" {other.db_id!r}, asked was about {problem.db_id!r}; the ids are not the same set"
            )
        golds[problem.question_id] = Gold(sql=other.gold_sql, grading=other.grading)
    if not golds:
        raise UserError(
            f"answer key {name} ({path}) has none of the questions asked; its ids must be theirs"
        )
    return golds
