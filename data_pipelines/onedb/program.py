"""The options and the commands of `python -m data_pipelines.onedb`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jax_t2sql.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What is in databases: tables, kinds of columns, keys, joins, oddities."""

    databases: tyro.conf.Positional[tuple[Path, ...]]
    """SQLite files; several are compared in one table."""
    json: bool = False
    """Print JSON instead."""


@dataclass(frozen=True, kw_only=True)
class Legend:
    """Draft or check the legend: the words that questions and prompts use."""

    database: tyro.conf.Positional[Path]
    """SQLite file."""
    out: Path | None = None
    """Write a draft here; an existing file is not replaced."""
    check: Path | None = None
    """Check this legend against the database instead."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Make a pool of questions with queries that are right by construction."""

    database: tyro.conf.Positional[Path]
    """SQLite file."""
    out: Path
    """Question file to write; OUT.report.json and OUT.html lie beside it."""
    rows: int = 2000
    """Questions wanted."""
    seed: int = 0
    """The same seed, database and legend give the same file."""
    legend: Path | None = None
    """Legend file; without it one is drafted from names and descriptions."""
    leak_check: Path | None = None
    """Question file whose queries and results must not be in the pool."""
    evidence_share: float = 0.3
    """Share of the rows that carry evidence lines."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Print rows of a pool with their results, for a person to read."""

    pool: tyro.conf.Positional[Path]
    """Question file of `build`."""
    databases: Path
    """Folder of databases, or the one file."""
    rows: int = 25
    """How many, spread over the families."""
    seed: int = 0
    """Which ones."""


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare what the queries of a pool and of a test set use; names what the pool lacks."""

    pool: tyro.conf.Positional[Path]
    """Question file."""
    test: tyro.conf.Positional[Path]
    """Question file to compare with; its questions on the pool's databases count."""


Command = (
    Annotated[Scan, tyro.conf.subcommand("scan")]
    | Annotated[Legend, tyro.conf.subcommand("legend")]
    | Annotated[Build, tyro.conf.subcommand("build")]
    | Annotated[Audit, tyro.conf.subcommand("audit")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
)


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    command = tyro.cli(
        Command,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m data_pipelines.onedb",
        description="One database and no questions: make the training set.",
    )
    match command:
        case Scan():
            _scan(command)
        case Legend():
            _legend(command)
        case Build():
            _build(command)
        case Audit():
            _audit(command)
        case Compare():
            _compare(command)
    return 0


def _scan(args: Scan) -> None:
    from data_pipelines.onedb.scan import scan_database
    from data_pipelines.onedb.show import print_comparison, print_scan, scan_record
    from jax_t2sql.sql.database import check_database

    if not args.databases:
        raise UserError("scan: name at least one SQLite file")
    scans = [scan_database(check_database(path)) for path in args.databases]
    if args.json:
        print(json.dumps([scan_record(scan) for scan in scans], indent=2, default=str))
    elif len(scans) == 1:
        print_scan(scans[0])
    else:
        print_comparison(scans)


def _legend(args: Legend) -> None:
    from data_pipelines.onedb.build import open_live
    from data_pipelines.onedb.legend_file import dump

    if (args.out is None) == (args.check is None):
        raise UserError("legend: give either --out (to draft) or --check (to check)")
    with open_live(args.database, args.check) as live:
        if args.check is not None:
            print(f"{args.check}: fits {args.database}")
            return
        if args.out.exists():
            raise UserError(f"--out {args.out} exists, and may be edited; name another file")
        from jax_t2sql.whole_file import whole_file

        with whole_file(args.out) as file:
            file.write(dump(live.legend, live.scan))
    print(f"wrote {args.out}; edit it, then build with --legend {args.out}")


def _build(args: Build) -> None:
    from data_pipelines.onedb.audit import result_text
    from data_pipelines.onedb.build import build_pool, open_live, problems_on, report, write_rows
    from data_pipelines.onedb.overview import overview_page
    from data_pipelines.onedb.show import print_report
    from jax_t2sql.whole_file import whole_file

    if args.rows < 1:
        raise UserError(f"--rows is {args.rows}; it must be at least 1")
    if not 0 <= args.evidence_share <= 1:
        raise UserError(f"--evidence-share is {args.evidence_share}; it must be from 0 to 1")
    with open_live(args.database, args.legend) as live:
        test = problems_on(args.leak_check, live.scan.db_id) if args.leak_check else []
        built = build_pool(
            live,
            args.rows,
            seed=args.seed,
            test=test,
            evidence_share=args.evidence_share,
            say=lambda text: print(text, file=sys.stderr),
        )
        told = report(built, live, args.rows)
        results = {row["SQL"]: result_text(live.run(row["SQL"])) for row in built.rows}
    write_rows(built.rows, args.out)
    with whole_file(args.out.with_name(args.out.name + ".report.json")) as file:
        file.write(json.dumps(told, indent=2) + "\n")
    with whole_file(args.out.with_name(args.out.name + ".html")) as file:
        file.write(overview_page(built.rows, told, results))
    print_report(told, args.out)


def _audit(args: Audit) -> None:
    from data_pipelines.onedb.audit import audit_text, pick, read_pool

    rows = pick(read_pool(args.pool), args.rows, seed=args.seed)
    print(audit_text(rows, args.databases), end="")


def _compare(args: Compare) -> None:
    from data_pipelines.onedb.features import compare_features, read_features
    from data_pipelines.onedb.show import print_features
    from jax_t2sql.text2sql import load_problems

    pool, test = load_problems(args.pool), load_problems(args.test)
    ids = {problem.db_id for problem in pool}
    found = [problem for problem in test if problem.db_id in ids]
    if not found:
        raise UserError(f"{args.test}: no question is on {', '.join(sorted(ids))}")
    comparison = compare_features(
        [read_features(p.gold_sql) for p in pool], [read_features(p.gold_sql) for p in found]
    )
    print_features(comparison)
