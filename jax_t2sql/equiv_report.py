"""What people read of verdicts on pairs: a summary, and one counterexample side by side."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from jax_t2sql.equivalence import Answer, Verdict, unknown_cause
from jax_t2sql.pairs import Pair
from jax_t2sql.sql import quote_identifier

_MAX_ROWS_SHOWN = 50
_MAX_CELL = 60


class Summary:
    """Verdicts counted.

    Attributes:
      kinds, sources, causes: pairs by verdict, by what found it, and by why it was left open.
      unusable: pairs whose schema or database cannot be used.
      seconds: processor time of each pair.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.unusable = 0
        self.seconds: list[float] = []

    def add(self, verdict: Verdict, *, usable: bool) -> None:
        """Counts one more."""
        self.kinds[verdict.kind] += 1
        self.seconds.append(verdict.cpu_seconds)
        self.unusable += not usable
        if verdict.source:
            self.sources[f"{verdict.kind} by {verdict.source}"] += 1
        if verdict.kind == "unknown":
            self.causes["unusable" if not usable else unknown_cause(verdict.reason)] += 1

    @property
    def total(self) -> int:
        """All pairs so far."""
        return self.kinds.total()


def print_summary(summary: Summary, stream: TextIO, *, title: str) -> None:
    """Writes the table: counts by verdict, each with what found it or why it is open; times."""
    table = Table()
    table.add_column("verdict")
    for heading in ("pairs", "share"):
        table.add_column(heading, justify="right")
    for kind in ("refuted", "equivalent", "unknown"):
        count = summary.kinds[kind]
        table.add_row(kind, f"{count:,}", f"{count / max(summary.total, 1):.1%}")
        details = summary.causes if kind == "unknown" else summary.sources
        for name, part in details.most_common():
            if kind == "unknown" or name.startswith(kind):
                told = name.removeprefix(f"{kind} ").replace("_", " ")
                table.add_row(f"  {told}", f"{part:,}", "")
    table.add_section()
    table.add_row("all", f"{summary.total:,}", "")
    console = _console(stream)
    console.print(title, soft_wrap=True)
    console.print(table)
    times = sorted(summary.seconds)
    if times:
        middle, late = times[len(times) // 2], times[min(int(len(times) * 0.95), len(times) - 1)]
        console.print(
            f"processor time: {sum(times):.1f} s, median {middle:.3f} s, 95 % within {late:.2f} s"
        )
    if summary.unusable:
        console.print(f"{summary.unusable:,} pairs have no usable schema or database; see reason")


def show_pair(pair: Pair, verdict: Verdict, stream: TextIO) -> None:
    """Writes the queries, the counterexample's rows and the two results beside each other."""
    console = _console(stream)
    console.print(f"{pair.id}: {verdict.kind}; {verdict.reason}\n", soft_wrap=True)
    for name, sql in (("gold", pair.gold), ("prediction", pair.pred)):
        console.print(f"{name}:\n  {_printable(sql)}\n", soft_wrap=True)
    if verdict.database is None:
        return
    console.print("On this database:", soft_wrap=True)
    for name, columns, rows in _filled_tables(verdict.database):
        console.print(_table(name, columns, rows))
    console.print(f"the two give, compared under {pair.mode}:")
    gold, pred = verdict.gold, verdict.pred
    shared = set(map(_key, gold.rows)) & set(map(_key, pred.rows))
    beside = Table.grid(padding=(0, 4))
    beside.add_row(_result("gold", gold, shared), _result("prediction", pred, shared))
    console.print(beside)
    console.print("* rows that the other result does not have")
    console.print("The database as SQL:\n")
    console.print(verdict.database.strip(), soft_wrap=True)


def _filled_tables(script: str) -> list[tuple[str, list[str], list[tuple]]]:
    """Name, columns and rows of each table that has rows."""
    found = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite^_%'"
            " ESCAPE '^' ORDER BY rowid"
        ).fetchall()
        for (name,) in names:
            cursor = connection.execute(f"SELECT * FROM {quote_identifier(name)}")
            rows = cursor.fetchall()
            if rows:
                found.append((name, [column[0] for column in cursor.description], rows))
    return found


def _result(name: str, answer: Answer, shared: set) -> Table:
    marked = [("" if _key(row) in shared else "*", *row) for row in answer.rows]
    return _table(f"{name}: {len(answer.rows)} rows", ["", *answer.columns], marked, marks=True)


def _key(row: Sequence) -> tuple:
    return tuple(round(cell, 9) if isinstance(cell, float) else cell for cell in row)


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence], *, marks: bool = False
) -> Table:
    shown = _printable(title)
    table = Table(title=shown, title_justify="left", box=box.SIMPLE, min_width=len(shown))
    for column in columns:
        table.add_column(_printable(column))
    for row in rows[:_MAX_ROWS_SHOWN]:
        cells = [row[0], *map(_cell, row[1:])] if marks else map(_cell, row)
        table.add_row(*cells)
    if len(rows) > _MAX_ROWS_SHOWN:
        table.caption = f"and {len(rows) - _MAX_ROWS_SHOWN:,} more"
    return table


def _cell(value: object) -> str:
    """A value as SQL would write it, so that 1, 1.0, '1' and NULL look different."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"x'{value.hex()}'"
    elif isinstance(value, str):
        text = "'" + _printable(value).replace("'", "''") + "'"
    else:
        text = repr(value)
    return text if len(text) <= _MAX_CELL else text[:_MAX_CELL] + "…"


def _printable(text: str) -> str:
    """Text from users' files without characters that a terminal would act on."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, markup=False, highlight=False)  # texts come from the user's files
