"""Rows for the quickstart's databases, and the SQLite files that hold them.

Right answers must not be reachable by luck: table sizes differ, so do the sizes of any two groups
of a category column, and a number column never repeats a value. A query that counts the wrong
table, filters on the wrong word or orders by the wrong column then shows a different result.
"""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import sqlite_utils

from data_pipelines.world_schema import Column, Database, Date, Label, Number, Table, Text


def _distinct_group_sizes(total: int, groups: int) -> list[int]:
    """`groups` different positive sizes, near an arithmetic ramp, that sum to `total`."""
    step = (2 * total) // (groups * (groups + 1))
    sizes = [max(1, step * rank) for rank in range(1, groups + 1)]
    sizes[-1] += total - sum(sizes)
    if len(set(sizes)) != groups or min(sizes) < 1:
        raise ValueError(f"{total} rows cannot be split into {groups} groups of different sizes")
    return sizes


def _with_nulls(values: list, total: int, rng: random.Random) -> list:
    """`values` and as many NULLs as make `total`, in random order."""
    column = values + [None] * (total - len(values))
    rng.shuffle(column)
    return column


def _filled(null_share: float, total: int) -> int:
    return total - round(null_share * total)


def column_values(column: Column, rows: int, rng: random.Random) -> list:
    """`rows` values of `column` in row order; NULLs only where the column allows them."""
    match column:
        case Label():
            names = [f"{first} {second}" for first in column.first for second in column.second]
            return rng.sample(names, rows)
        case Number():
            return rng.sample(range(column.low, column.high + 1), rows)
        case Text():
            order = rng.sample(column.values, len(column.values))
            sizes = _distinct_group_sizes(_filled(column.null_share, rows), len(order))
            values = [value for value, size in zip(order, sizes, strict=True) for _ in range(size)]
            return _with_nulls(values, rows, rng)
        case Date():
            first = datetime.date(column.low, 1, 1)
            days = (datetime.date(column.high, 12, 31) - first).days
            filled = _filled(column.null_share, rows)
            dates = [
                (first + datetime.timedelta(rng.randrange(days + 1))).isoformat()
                for _ in range(filled)
            ]
            return _with_nulls(dates, rows, rng)


def table_rows(table: Table, parent: Table | None, rng: random.Random) -> list[dict]:
    """The rows of `table` as dicts in column order; foreign keys favour low-numbered parents."""
    columns: dict[str, list] = {table.key: list(range(1, table.rows + 1))}
    for column in table.columns:
        columns[column.name] = column_values(column, table.rows, rng)
    if parent is not None:
        # A skew, so that the numbers of children differ from parent to parent.
        columns[parent.key] = [
            1 + int(parent.rows * rng.random() ** 1.6) for _ in range(table.rows)
        ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def write_database(database: Database, path: Path, *, seed: int) -> None:
    """Write `database` to a new SQLite file at `path`; the same seed gives the same bytes."""
    rng = random.Random(f"{database.db_id}/{seed}")
    db = sqlite_utils.Database(path)
    try:
        for table in database.tables:
            parent = database.table(table.parent.table) if table.parent else None
            db[table.name].insert_all(
                table_rows(table, parent, rng),
                pk=table.key,
                foreign_keys=[(parent.key, parent.name, parent.key)] if parent else [],
            )
        db.vacuum()
    finally:
        db.close()
