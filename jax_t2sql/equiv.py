"""Check pairs of queries for equivalence: search, proof, and a replay of every counterexample.

    python -m jax_t2sql.equiv --pairs pairs.jsonl [--schemas FILE | --databases DIR] --grading set
    python -m jax_t2sql.equiv --pairs pairs.jsonl --grading set --show ID

Each row of the pairs, in JSON lines or one JSON array, has two queries: gold and pred, SQL and
pred, or sql1 and sql2; id (else question_id, else its index stands for it); and where they run:
schema (DDL; constraints count as far as the DDL declares them) or db_id, for --schemas or
--databases. Prints a summary and writes one JSON line a row, in the same order:

    id           of the row
    verdict      refuted: there is a database on which the two differ under the grading mode;
                 equivalent: there is none with at most `bound` rows a table; unknown: neither
    reason       one sentence
    source       syntax, search, real-rows, proof or perturbation: what found it
    bound        rows a table; null with equivalent means that there is no bound
    database     refuted: SQL that creates a database that satisfies the declared constraints
    cpu_seconds  processor time

See docs/equivalence.md for what a verdict means. Exits with 0 whatever the verdicts are, 2 on bad
input, 3 if the schema or database of a pair cannot be used.
"""

import contextlib
import json
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import tyro

from jax_t2sql import __version__
from jax_t2sql.equiv_report import Summary, print_summary, show_pair
from jax_t2sql.equivalence import Verdict, unknown
from jax_t2sql.errors import UserError
from jax_t2sql.grading import EquivalenceRule, GradingPool
from jax_t2sql.pairs import Pair, open_pairs, read_pairs
from jax_t2sql.programs import raise_disk_fault, run_program
from jax_t2sql.sql import Mode, parse_mode, resolve_database
from jax_t2sql.sql.tokens import significant
from jax_t2sql.streams import check_output, is_terminal, live_progress, open_output

EXIT_UNUSABLE = 3
# Pairs in the pool's hands, for each worker: a slow one must not leave the others idle.
_AHEAD = 64


@dataclass(frozen=True, kw_only=True)
class EquivArgs:
    """Options of the program."""

    pairs: Path
    """File of pairs: JSON lines or one JSON array."""
    grading: str
    """Which differences count: set, multiset, list, subset,=,K, subset,>=,K or bird (the public
    BIRD evaluator's rule); row takes each row's grading_method, set where it has none."""
    schemas: Path | None = None
    """JSON object from db_id to DDL, or to an object whose schema is DDL."""
    databases: Path | None = None
    """Folder with <db_id>/<db_id>.sqlite or <db_id>.sqlite, or one SQLite file for all: their
    schemas, and their rows as a further source of counterexamples."""
    method: Literal["check", "perturbation"] = "check"
    """check: small databases made for the pair, real rows, then a proof. perturbation: perturbed
    copies of the real database alone; needs --databases."""
    timeout: float = 10.0
    """Processor time of a pair in seconds."""
    bound: int = 2
    """Rows a table up to which equivalence is to be proved."""
    strictness: Literal["any", "realistic"] = "any"
    """any: every database that the schema allows counts. realistic: only those whose values look
    like the real ones; needs --databases."""
    workers: int = 2
    """Processes that check."""
    out: Path | None = None
    """File for the verdicts, replaced only when all are there; else they go to standard output and
    the summary to standard error."""
    show: str | None = None
    """Check the pair of this id alone, and show for people what the two queries give on the
    counterexample."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        EquivArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.equiv",
        description=__doc__,
    )
    try:
        return check_file(args)
    except OSError as error:
        raise_disk_fault(error, args.out or "standard output", "it starts anew")
        raise


def check_file(args: EquivArgs) -> int:
    """Checks as asked; returns the exit status.

    Raises:
      UserError: bad input; then nothing has been checked.
    """
    _check(args)
    mode = _mode(args.grading)
    places = _Places(args)
    rule = EquivalenceRule(
        method=args.method, seconds=args.timeout, bound=args.bound, strictness=args.strictness
    )
    with contextlib.closing(open_pairs(args.pairs)) as file:
        if args.show is not None:
            return _show(args, file, mode, places, rule)
        total = sum(1 for _ in _read(args, file, mode, places))  # every fault before any work
        summary = Summary()
        with (
            GradingPool(args.workers) as pool,
            open_output(args.out) as out,
            live_progress("check", total, shown=not is_terminal(out)) as show,
        ):
            pairs = _read(args, file, mode, places)
            for pair, verdict, usable in _checked(pairs, places, pool, rule, args.workers):
                out.write(json.dumps(record(pair, verdict)) + "\n")
                out.flush()
                summary.add(verdict, usable=usable)
                show(summary.total, {"refuted_share": summary.kinds["refuted"] / summary.total})
    title = (
        f"jax_t2sql {__version__} with SQLite {sqlite3.sqlite_version}, grading {mode or 'row'},"
        f" {args.timeout:g} s a pair, bound {args.bound}\n{args.pairs}"
    )
    print_summary(summary, sys.stderr if args.out is None else sys.stdout, title=title)
    return EXIT_UNUSABLE if summary.unusable else 0


def record(pair: Pair, verdict: Verdict) -> dict:
    """A pair's line in a file of verdicts."""
    broken = {} if verdict.broken is None else {"broken": verdict.broken}
    return {
        "id": pair.id,
        "verdict": verdict.kind,
        "reason": verdict.reason,
        "source": verdict.source,
        "bound": verdict.bound,
        "database": verdict.database,
        "cpu_seconds": round(verdict.cpu_seconds, 6),
        **broken,
    }


def _show(
    args: EquivArgs, file: BinaryIO, mode: Mode | None, places: "_Places", rule: EquivalenceRule
) -> int:
    """Checks the one pair and shows it."""
    found = next((p for p in _read(args, file, mode, places) if str(p.id) == args.show), None)
    if found is None:
        raise UserError(f"--show {args.show}: {args.pairs} has no pair of this id")
    with GradingPool(1) as pool:
        _, verdict, usable = next(_checked(iter([found]), places, pool, rule, 1))
    show_pair(found, verdict, sys.stdout)
    return 0 if usable else EXIT_UNUSABLE


def _read(args: EquivArgs, file: BinaryIO, mode: Mode | None, places: "_Places") -> Iterator[Pair]:
    """The pairs. Raises UserError for the first that has no schema at all."""
    need_db_id = args.schemas is not None or args.databases is not None
    for pair in read_pairs(file, args.pairs, mode, need_db_id=need_db_id):
        if pair.schema is None and not need_db_id:
            raise UserError(
                f"{args.pairs}: pair {pair.id} has no schema; give --schemas or --databases, or the"
                " DDL in its field schema"
            )
        yield pair


class _Places:
    """Where pairs run."""

    def __init__(self, args: EquivArgs) -> None:
        self._databases = args.databases
        self._schemas = read_schemas(args.schemas) if args.schemas else None
        self._file = args.schemas

    def of(self, pair: Pair) -> str | Path:
        """The schema's DDL or the database's path. Raises UserError if there is none."""
        if self._databases is not None:
            return resolve_database(self._databases, pair.db_id)
        if self._schemas is None:
            return _ddl(pair.schema)
        if pair.db_id not in self._schemas:
            raise UserError(f"{self._file} has no schema of {pair.db_id!r}; add it")
        return _ddl(self._schemas[pair.db_id])


def _ddl(text: str) -> str:
    """The text, if it creates something: what does not would be taken for the path of a file."""
    if not any(token.is_word("CREATE") for token in significant(text)):
        raise UserError("the schema has no CREATE TABLE; give DDL, and files by --databases")
    return text


def read_schemas(path: Path) -> dict[str, str]:
    """DDL by db_id.

    Raises:
      UserError: the file cannot be read, or is not such an object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"--schemas {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"--schemas {path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"--schemas {path}: holds no object from db_id to DDL")
    schemas = {}
    for name, value in found.items():
        ddl = value.get("schema") if isinstance(value, dict) else value
        if not isinstance(ddl, str) or not ddl.strip():
            raise UserError(
                f"--schemas {path}: {name!r} has no DDL; give a text, or an object with one as its"
                " schema"
            )
        schemas[name] = ddl
    return schemas


def _checked(
    pairs: Iterator[Pair], places: _Places, pool: GradingPool, rule: EquivalenceRule, workers: int
) -> Iterator[tuple[Pair, Verdict, bool]]:
    """Yields (pair, verdict, whether it could be checked) in order; a bounded number at a time."""
    waiting: deque[tuple[Pair, Callable[[], tuple[Verdict, bool]]]] = deque()
    for pair in pairs:
        waiting.append((pair, _begin(pair, places, pool, rule)))
        if len(waiting) >= _AHEAD * workers:
            first, answer = waiting.popleft()
            yield first, *answer()
    for pair, answer in waiting:
        yield pair, *answer()


def _begin(
    pair: Pair, places: _Places, pool: GradingPool, rule: EquivalenceRule
) -> Callable[[], tuple[Verdict, bool]]:
    """Hands a pair to the pool; what is returned waits for the answer."""
    try:
        future = pool.check_equivalence(
            pair.gold, pair.pred, schema=places.of(pair), mode=pair.mode, rule=rule
        )
    except UserError as error:
        told = str(error)
        return lambda: (unknown(told), False)
    return lambda: _answer(future)


def _answer(future: Future[Verdict]) -> tuple[Verdict, bool]:
    try:
        return future.result(), True
    except (UserError, OSError) as error:  # the schema does not load; no worker starts
        return unknown(str(error)), False


def _mode(text: str) -> Mode | None:
    """The mode of every pair; None for each row's own."""
    if text.strip().lower() == "row":
        return None
    try:
        return parse_mode(text)
    except UserError as error:
        raise UserError(f"--grading: {error}; or row for each row's own") from None


def _check(args: EquivArgs) -> None:
    """What a type cannot say of the options."""
    bounds = {"workers": (1, 1024), "timeout": (0.05, 3_600), "bound": (1, 10)}
    for name, (low, high) in bounds.items():
        value = getattr(args, name)
        if not low <= value <= high:
            raise UserError(f"--{name} is {value}; it must be from {low:,} to {high:,}")
    if args.schemas is not None and args.databases is not None:
        raise UserError("--schemas and --databases both say where pairs run; give one of them")
    for name, wanted in (("method", "perturbation"), ("strictness", "realistic")):
        if getattr(args, name) == wanted and args.databases is None:
            raise UserError(f"--{name} {wanted} needs --databases: it takes values from them")
    if args.databases is not None and not args.databases.is_dir():
        resolve_database(args.databases, "any")  # one file serves every id
    check_output(args.out, args.pairs, args.databases)


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; the same command checks anew")
