"""What `scan` prints: a table of tables, their columns by kind, joins, oddities."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from data_pipelines.onedb.conditions import identifier
from data_pipelines.onedb.features import Comparison
from data_pipelines.onedb.joins import all_paths, is_link
from data_pipelines.onedb.scan import Scan


def scan_record(scan: Scan) -> dict:
    """A scan as plain data, for JSON."""
    return {
        "db_id": scan.db_id,
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "primary_key": list(table.primary_key),
                "label": list(table.label),
                "link": is_link(scan, table.name),
                "columns": [
                    {
                        "name": column.name,
                        "kind": column.kind,
                        "distinct": column.distinct,
                        "null_share": round(column.null_share, 4),
                        "values": [str(value) for value, _ in column.values[:8]]
                        if column.kind in ("category", "flag")
                        else [],
                        "date_format": column.date_format,
                        "unit": column.unit,
                        "reserved": identifier(column.name) != column.name,
                        "notes": list(column.notes),
                    }
                    for column in table.columns
                ],
            }
            for table in scan.tables
        ],
        "joins": [
            {
                "name": edge.name,
                "declared": edge.declared,
                "confidence": edge.confidence,
                "matched": round(edge.matched, 4),
                "parents_without_children": edge.childless,
                "one_to_one": edge.single,
            }
            for edge in scan.edges
        ],
        "paths": dict(Counter(str(len(path)) for path in all_paths(scan))),
        "skipped": list(scan.skipped),
    }


def print_scan(scan: Scan) -> None:
    """Prints a scan for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False)  # names come from the user's files
    for table in scan.tables:
        told = Table(
            title=f"{table.name}: {table.rows:,} rows, named by {' + '.join(table.label) or '–'}"
            + (", links two tables" if is_link(scan, table.name) else ""),
            title_justify="left",
        )
        for heading in ("column", "kind", "distinct", "NULL", "values or range", "to know"):
            told.add_column(heading)
        for column in table.columns:
            if column.kind in ("category", "flag"):
                shown = ", ".join(str(value) for value, _ in column.values[:6])
            elif column.kind in ("number", "year", "date"):
                shown = f"{column.low} … {column.high}"
            else:
                shown = ""
            notes = list(column.notes)
            if identifier(column.name) != column.name:
                notes.append("must be quoted")
            told.add_row(
                column.name, column.kind, f"{column.distinct:,}", f"{column.null_share:.0%}",
                shown[:60], "; ".join(notes),
            )  # fmt: skip
        console.print(told)
    joins = Table(title="joins", title_justify="left")
    for heading in ("reference", "how known", "finds a row", "to know"):
        joins.add_column(heading)
    for edge in scan.edges:
        known = "declared" if edge.declared else f"guessed, {edge.confidence:.2f}"
        notes = [
            *(["parents without children"] if edge.childless else []),
            *(["one to one"] if edge.single else []),
        ]
        joins.add_row(edge.name, known, f"{edge.matched:.0%}", "; ".join(notes))
    console.print(joins)
    paths = Counter(len(path) for path in all_paths(scan))
    console.print(
        "join paths: " + (", ".join(f"{n} of {hops} hops" for hops, n in paths.items()) or "none")
    )
    for reason in scan.skipped:
        console.print(f"left out: {reason}")


def print_comparison(scans: list[Scan]) -> None:
    """Several databases, one line each."""
    from rich.console import Console
    from rich.table import Table

    told = Table(title="databases")
    for heading in ("database", "tables", "rows", "columns", "joins", "guessed", "paths", "odd"):
        told.add_column(heading, justify="left" if heading == "database" else "right")
    for scan in scans:
        columns = [column for table in scan.tables for column in table.columns]
        figures = (
            len(scan.tables),
            sum(table.rows for table in scan.tables),
            len(columns),
            len(scan.edges),
            sum(not edge.declared for edge in scan.edges),
            len(all_paths(scan)),
            sum(bool(column.notes) for column in columns),
        )
        told.add_row(scan.db_id, *(f"{figure:,}" for figure in figures))
    Console(markup=False).print(told)


def print_features(comparison: Comparison) -> None:
    """Shares of features, and what is missing."""
    from rich.console import Console
    from rich.table import Table

    told = Table(title="share of queries")
    for heading in ("feature", "pool", "test"):
        told.add_column(heading, justify="left" if heading == "feature" else "right")
    for name, pool, test in comparison.rows:
        told.add_row(name, f"{pool:.1%}", f"{test:.1%}")
    console = Console(markup=False)
    console.print(told)
    missing = "; ".join(comparison.missing)
    console.print(f"in the test set alone: {missing or 'nothing'}", soft_wrap=True)


def print_report(report: dict, out: Path) -> None:
    """What became of a build."""
    from rich.console import Console

    console = Console(markup=False)
    tiers = ", ".join(f"{count} of tier {tier}" for tier, count in report["tiers"].items())
    console.print(f"{report['questions']} questions ({tiers}) in {out}", soft_wrap=True)
    if report["questions"] < report["wanted"]:
        console.print(
            f"{report['wanted']} were wanted: the database has no more to ask about; other words in"
            " a legend give more wordings",
            soft_wrap=True,
        )
    console.print(
        f"{len(report['families'])} families; {report['join_paths_covered']} of"
        f" {report['join_paths']} join paths"
    )
    for path in report["join_paths_missed"][:5]:
        console.print(f"no question on {path}", soft_wrap=True)
    turned = ", ".join(f"{name} {count}" for name, count in report["turned_away"].items())
    console.print(f"turned away: {turned or 'nothing'}", soft_wrap=True)
    if report["missing_in_pool"] is not None:
        missing = "; ".join(report["missing_in_pool"][:12])
        console.print(f"in the test set alone: {missing or 'nothing'}", soft_wrap=True)
    console.print(f"figures in {out}.report.json, samples in {out}.html", soft_wrap=True)
