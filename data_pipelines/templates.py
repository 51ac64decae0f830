"""A question as one frozen structure of choices, and its SQL.

`Choices` is all there is to a question: SQL (here) and English (`templates_english`) are both pure
functions of it, so they cannot disagree. The SQL has one canonical form (upper-case keywords,
single spaces, filters in the question's order): equal texts are equal queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_pipelines.world_schema import Database

COMPARISONS = {"over": ">", "under": "<"}


@dataclass(frozen=True)
class Filter:
    """One condition on `column` of `table`.

    kind: "equals", "over", "under", "between", "year", "missing", "present", "above_average" or
        "below_average"; `values` are its constants (none, one, or a low and a high one).
    wording: which of the column's phrases says it.
    """

    kind: str
    table: str
    column: str
    values: tuple[int | str, ...] = ()
    wording: int = 0


@dataclass(frozen=True)
class Choices:
    """Everything that decides a question.

    head: "list", "count", "aggregate", "distinct", "top", "group" or "having".
    column: what is aggregated ("aggregate"), listed once ("distinct"), ordered by ("top") or
        grouped by ("group", "having"); None where rows of the table are listed or counted.
    grouping_table: the table of `column` for "group" and "having": the table itself or its parent.
    function: an SQL aggregate, for "aggregate".
    descending, limit: for "top".
    least: the count that a group must exceed, for "having".
    wording, of: which phrase of the head and of the foreign key is used.
    """

    template: str
    db_id: str
    table: str
    head: str
    column: str | None = None
    grouping_table: str | None = None
    function: str | None = None
    descending: bool = True
    limit: int = 1
    least: int = 0
    filters: tuple[Filter, ...] = ()
    wording: int = 0
    of: int = 0


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


def _condition(condition: Filter) -> str:
    column = condition.column
    match condition.kind:
        case "equals":
            return f"{column} = {_literal(condition.values[0])}"
        case "over" | "under":
            return f"{column} {COMPARISONS[condition.kind]} {_literal(condition.values[0])}"
        case "between":
            low, high = condition.values
            return f"{column} BETWEEN {_literal(low)} AND {_literal(high)}"
        case "year":
            return f"STRFTIME('%Y', {column}) = '{condition.values[0]}'"
        case "missing":
            return f"{column} IS NULL"
        case "present":
            return f"{column} IS NOT NULL"
        case "above_average":
            return f"{column} > (SELECT AVG({column}) FROM {condition.table})"
        case "below_average":
            return f"{column} < (SELECT AVG({column}) FROM {condition.table})"
    raise ValueError(f"unknown filter kind {condition.kind!r}")


def render_sql(database: Database, choices: Choices) -> str:
    """The SQL that answers `choices`.

    Tables are joined by `USING`, and no two tables of a database share a column that is not a key,
    so columns need no qualifier.
    """
    table = database.table(choices.table)
    source = table.name
    used = {condition.table for condition in choices.filters} | {choices.grouping_table}
    if table.parent and table.parent.table in used:
        parent = database.table(table.parent.table)
        source += f" JOIN {parent.name} USING ({parent.key})"
    where = ""
    if choices.filters:
        where = " WHERE " + " AND ".join(_condition(condition) for condition in choices.filters)
    column = choices.column
    match choices.head:
        case "list":
            return f"SELECT {table.label.name} FROM {source}{where}"
        case "count":
            return f"SELECT COUNT(*) FROM {source}{where}"
        case "aggregate":
            return f"SELECT {choices.function}({column}) FROM {source}{where}"
        case "distinct":
            return f"SELECT DISTINCT {column} FROM {source}{where}"
        case "top":
            direction = "DESC" if choices.descending else "ASC"
            order = f"ORDER BY {column} {direction} LIMIT {choices.limit}"
            return f"SELECT {table.label.name} FROM {source}{where} {order}"
        case "group":
            return f"SELECT {column}, COUNT(*) FROM {source}{where} GROUP BY {column}"
        case "having":
            group = f"GROUP BY {column} HAVING COUNT(*) > {choices.least}"
            return f"SELECT {column} FROM {source}{where} {group}"
    raise ValueError(f"unknown head {choices.head!r}")


def difficulty(choices: Choices) -> str:
    """One of "simple", "moderate" or "challenging", by the number of pieces that must be right."""
    kinds = {condition.kind for condition in choices.filters}
    pieces = len(choices.filters) + (choices.head in ("group", "having", "top", "distinct"))
    joined = any(condition.table != choices.table for condition in choices.filters)
    joined = joined or choices.grouping_table not in (None, choices.table)
    pieces += joined + bool(kinds & {"above_average", "below_average", "between"})
    return ("simple", "simple", "moderate", "challenging")[min(pieces, 3)]


def grading_method(choices: Choices) -> str:
    """`list` where an order is asked for, `set` where rows differ by nature, else `multiset`."""
    if choices.head == "top":
        return "list"
    return "set" if choices.head in ("distinct", "group", "having") else "multiset"
