"""Grade predicted SQL: run each prediction and its gold query, and compare the results.

    python -m jax_t2sql.grade --pairs pairs.jsonl --databases DIR --mode set [--out verdicts.jsonl]

Each row of the pairs, in JSON lines or one JSON array, has db_id and two queries: gold and pred, or
SQL and pred, or sql1 and sql2; besides, if it likes, id (else question_id, else its index stands
for it) and grading_method. Prints a summary and writes one JSON line a row, in the same order:

    id, db_id   of the row
    verdict     match, mismatch; error, timeout, too_large, refused, no_query, crashed: what became
                of the prediction instead; gold_error, infrastructure: it cannot be told
    detail      one sentence
    gold_empty  true where the gold result has no rows or only NULL: an empty prediction that equals
                it is a match, but shows nothing
    seconds     wall time of the predicted query

Exits with 0 however many predictions are wrong, 2 on bad input, 3 if any verdict is infrastructure:
the database is missing or unreadable, or the machine failed.
"""

import contextlib
import functools
import hashlib
import json
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import tyro

from jax_t2sql import __version__
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.pairs import open_pairs, read_pairs
from jax_t2sql.programs import raise_disk_fault, run_program
from jax_t2sql.progress import Progress
from jax_t2sql.sql import Limits, Mode, parse_mode, resolve_database
from jax_t2sql.tally import Tally, print_tally
from jax_t2sql.verdicts import grade_pairs
from jax_t2sql.whole_file import whole_file

EXIT_INFRASTRUCTURE = 3
# Between two lines of progress: a terminal draws over the last one, a log file keeps them all.
_TERMINAL_SECONDS, _LOG_SECONDS = 0.25, 10.0


@dataclass(frozen=True, kw_only=True)
class GradeArgs:
    """Options of the program."""

    pairs: Path
    """File of pairs: JSON lines or one JSON array."""
    databases: Path
    """Folder with <db_id>/<db_id>.sqlite or <db_id>.sqlite, or one SQLite file for all."""
    mode: str
    """How results are compared: set, multiset, list, subset,=,K, subset,>=,K or bird (the public
    BIRD evaluator's rule); row takes each row's grading_method, set where it has none."""
    workers: int = 2
    """Processes that run SQL."""
    timeout: float = 30.0
    """Time limit of a query in seconds."""
    gold_folder: Path | None = None
    """Keep the results of gold queries in this folder, for later runs too."""
    out: Path | None = None
    """File for the verdicts, replaced only when all are there (until then FILE.part grows); else
    they go to standard output and the summary to standard error."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        GradeArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.grade",
        description=__doc__,
    )
    try:
        tally = grade_file(args)
    except OSError as error:
        raise_disk_fault(error, args.out or "standard output", "it starts anew")
        raise
    return EXIT_INFRASTRUCTURE if tally.verdicts["infrastructure"] else 0


def grade_file(args: GradeArgs) -> Tally:
    """Grades as asked.

    Raises:
      UserError: bad input; then no query has run.
    """
    _check(args)
    mode = _mode(args.mode)
    with contextlib.closing(open_pairs(args.pairs)) as file:
        ids = Counter(pair.db_id for pair in read_pairs(file, args.pairs, mode))
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        find = functools.cache(lambda db_id: _resolve(args.databases, db_id))
        faults = [fault for fault in map(find, ids) if isinstance(fault, UserError)]
        if faults:
            _note(f"{len(faults)} of {len(ids)} databases cannot be used, the first: {faults[0]}")
        tally = Tally()
        limits = Limits(seconds=args.timeout)
        grading = GradingPool(args.workers, limits=limits, gold_folder=args.gold_folder)
        with grading as pool, _output(args.out) as out:
            pairs = read_pairs(file, args.pairs, mode)
            bursts = grade_pairs(pairs, find=find, pool=pool, workers=args.workers)
            # On a terminal the verdicts themselves show how far it is.
            with _progress(ids.total(), shown=not _is_terminal(out)) as show:
                for burst in bursts:
                    out.writelines(json.dumps(graded.record()) + "\n" for graded in burst)
                    out.flush()
                    for graded in burst:
                        tally.add(graded)
                    show(tally)
    title = (
        f"jax_t2sql {__version__} with SQLite {sqlite3.sqlite_version}, mode {mode or 'row'},"
        f" {args.timeout:g} s a query\n{args.pairs}, sha256 {sha256[:16]}"
    )
    print_tally(tally, sys.stderr if args.out is None else sys.stdout, title=title)
    return tally


def _mode(text: str) -> Mode | None:
    """The mode of every pair; None for each row's own."""
    if text.strip().lower() == "row":
        return None
    try:
        return parse_mode(text)
    except UserError as error:
        raise UserError(f"--mode: {error}; or row for each row's own") from None


def _check(args: GradeArgs) -> None:
    """What a type cannot say of the options."""
    bounds = {"workers": (1, 1024), "timeout": (0.05, 86_400)}
    for name, (low, high) in bounds.items():
        if not low <= getattr(args, name) <= high:
            raise UserError(
                f"--{name} is {getattr(args, name)}; it must be from {low:,} to {high:,}"
            )
    if not args.databases.is_dir():
        resolve_database(args.databases, "any")  # one file serves every id
    if args.out and args.out.exists() and args.pairs.exists() and args.out.samefile(args.pairs):
        raise UserError(f"--out {args.out} is the file of the pairs; name another")
    if args.out and args.out.resolve().is_relative_to(args.databases.resolve()):
        raise UserError(f"--out {args.out} lies among the databases; name another place")


def _resolve(databases: Path, db_id: str) -> Path | UserError:
    try:
        return resolve_database(databases, db_id)
    except UserError as error:
        return error


def _output(out: Path | None) -> contextlib.AbstractContextManager[TextIO]:
    """The stream for the verdicts."""
    if out is not None:
        return whole_file(out)
    if sys.stdout is None:
        raise UserError("standard output is closed; open it, or name a file with --out")
    return contextlib.nullcontext(sys.stdout)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


@contextlib.contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[Tally], None]]:
    """What shows a tally on standard error, when it is time to."""
    if not shown:
        yield lambda tally: None
        return
    live = _is_terminal(sys.stderr)
    pause = _TERMINAL_SECONDS if live else _LOG_SECONDS
    due = time.monotonic() + pause
    # The panel takes sys.stdout over, but only by name: the verdicts' stream is already chosen.
    with Progress(total, stream=sys.stderr) as progress:
        progress.phase("grade", total)

        def show(tally: Tally) -> None:
            nonlocal due
            if time.monotonic() >= due or (live and tally.total == total):
                progress.step(tally.total, {"accuracy_train": tally.match_rate})
                due = time.monotonic() + pause

        yield show


def _note(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens; the verdicts say it too
        print(f"note: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; the same command grades anew")
