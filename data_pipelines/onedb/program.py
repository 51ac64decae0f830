"""The commands of `python -m data_pipelines.onedb`."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace

import tyro

from data_pipelines.onedb.gate_table import GateRow, print_gate
from data_pipelines.onedb.options import (
    Audit,
    Build,
    Command,
    Compare,
    Gate,
    Legend,
    Perturbed,
    Scan,
    Tiny,
)
from jax_t2sql.errors import UserError


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
        case Gate():
            _gate(command)
        case Perturbed():
            _perturbed(command)
        case Tiny():
            _tiny(command)
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
    if args.policy is not None:
        print_gate(_probe(args))


def _probe(args: Scan) -> list[GateRow]:
    """What a policy does on fresh questions of each database, one row a database."""
    from data_pipelines.onedb.build import build_pool, open_live, to_problems
    from data_pipelines.onedb.gate_run import gate_model

    rows = []
    for path in args.databases:
        with open_live(path, None) as live:
            built = build_pool(live, args.questions, seed=args.sampling.seed, evidence_share=0)
            problems = to_problems(built.rows)
            found = gate_model(
                args.policy, problems, ["bare"], path, args.sampling, live=live, by_database=True
            )
            rows += found
    return rows


def _legend(args: Legend) -> None:
    from data_pipelines.onedb.build import open_live
    from data_pipelines.onedb.endpoint import parse_endpoint
    from data_pipelines.onedb.evidence import legend_lines
    from data_pipelines.onedb.legend_file import dump
    from data_pipelines.onedb.legend_model import with_model
    from jax_t2sql.whole_file import whole_file

    if args.out is not None and args.check is not None:
        raise UserError("legend: give either --out (to draft) or --check (to check), not both")
    if args.out is args.check is args.notes:
        raise UserError("legend: give --out (to draft), --check, or --notes (a text for prompts)")
    with open_live(args.database, args.check) as live:
        if args.check is not None:
            print(f"{args.check}: fits {args.database}")
        if args.out is not None and args.out.exists():
            raise UserError(f"--out {args.out} exists, and may be edited; name another file")
        if args.notes is not None:
            with whole_file(args.notes) as file:
                file.write("\n".join(legend_lines(live)) + "\n")
            print(f"wrote {args.notes}")
        if args.out is None:
            return
        legend = live.legend
        if args.model is not None:
            legend = with_model(live, parse_endpoint(args.model), _say)
        with whole_file(args.out) as file:
            file.write(dump(legend, live.scan))
    print(f"wrote {args.out}; edit it, then build with --legend {args.out}")


def _build(args: Build) -> None:
    from data_pipelines.onedb.audit import result_text
    from data_pipelines.onedb.build import build_pool, open_live, problems_on, report, write_rows
    from data_pipelines.onedb.endpoint import parse_endpoint
    from data_pipelines.onedb.overview import overview_page
    from data_pipelines.onedb.paraphrase import paraphrase_rows
    from data_pipelines.onedb.show import print_report
    from jax_t2sql.whole_file import whole_file

    if args.rows < 1:
        raise UserError(f"--rows is {args.rows}; it must be at least 1")
    if not args.out.parent.is_dir():
        raise UserError(f"--out {args.out}: there is no folder {args.out.parent}; make it first")
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
            whole_legend=args.evidence == "legend",
            say=_say,
        )
        if args.paraphrase is not None:
            endpoint = parse_endpoint(args.paraphrase)
            built = replace(built, rows=paraphrase_rows(built.rows, endpoint, say=_say))
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
    from data_pipelines.onedb.endpoint import parse_endpoint
    from data_pipelines.onedb.paraphrase import vote

    if args.rows < 1:
        raise UserError(f"--rows is {args.rows}; it must be at least 1")
    rows = pick(read_pool(args.pool), args.rows, seed=args.seed)
    if args.readers:
        readers = [parse_endpoint(reader) for reader in args.readers]
        read = len(rows)
        rows = vote(rows, readers, votes=min(2, len(readers)))
        print(
            f"{len(rows)} of {read} rows are objected to by {min(2, len(readers))} or more readers"
        )
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


def _gate(args: Gate) -> None:
    from data_pipelines.onedb.audit import pick, read_pool
    from data_pipelines.onedb.build import open_live, to_problems
    from data_pipelines.onedb.gate import VARIANTS
    from data_pipelines.onedb.gate_run import gate_model
    from jax_t2sql.sql import resolve_database

    if args.questions < 1:
        raise UserError(f"--questions is {args.questions}; it must be at least 1")
    for variant in args.variants:
        if variant not in VARIANTS:
            raise UserError(f"--variants: {variant!r} is unknown; there are {', '.join(VARIANTS)}")
    rows = pick(read_pool(args.pool), args.questions, seed=args.sampling.seed)
    problems = to_problems(rows)
    names = {problem.db_id for problem in problems}
    with contextlib.ExitStack() as stack:
        live = None
        if any("legend" in variant for variant in args.variants):
            if len(names) > 1:
                raise UserError("--variants with a legend need a pool on one database")
            path = resolve_database(args.databases, names.pop())
            live = stack.enter_context(open_live(path, args.legend))
        found = gate_model(
            args.policy,
            problems,
            args.variants,
            args.databases,
            args.sampling,
            live=live,
            by_database=args.by_database,
        )
    print_gate(found)


def _perturbed(args: Perturbed) -> None:
    from data_pipelines.onedb.perturbed import check_rewarded, read_records

    if args.copies < 1 or (args.limit is not None and args.limit < 1):
        raise UserError("--copies and --limit must be at least 1")
    found = check_rewarded(
        read_records(args.records),
        args.databases,
        copies=args.copies,
        limit=args.limit,
        seed=args.seed,
        say=_say,
    )
    low, high = found.interval
    print(
        f"{len(found.broken)} of {found.distinct} distinct rewarded queries stop matching"
        f" ({found.share:.1%}, 95 % interval {low:.1%} to {high:.1%}); {found.undecided} could not"
        f" be run on any copy; {found.rewarded} rewarded records"
    )
    for record, reason in found.broken[:5]:
        print(f"\n{record.get('question', '')}\n  gold: {record['gold_sql']}")
        print(f"  predicted: {record['predicted_sql']}\n  {reason}")


def _tiny(args: Tiny) -> None:
    from data_pipelines.onedb.audit import read_pool
    from data_pipelines.onedb.tiny_model import make_tiny, split_rows, write_parts

    if args.out.exists():
        raise UserError(f"--out {args.out} exists; name a new folder")
    parts = split_rows(
        read_pool(args.pool), warmup=args.warmup, heldout=args.heldout, seed=args.seed
    )
    args.out.mkdir(parents=True)
    write_parts(parts, args.out)
    make_tiny([*parts["warmup"], *parts["train"]], args.out / "model", seed=args.seed)
    sizes = ", ".join(f"{len(rows)} in {name}.jsonl" for name, rows in parts.items())
    print(f"{sizes}; a model to train in {args.out / 'model'}", flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
