"""Random questions from a template, and the near misses of a question."""

from __future__ import annotations

import random
from dataclasses import replace

from data_pipelines.templates import Choices, Filter
from data_pipelines.templates_catalogue import Template
from data_pipelines.templates_english import FUNCTIONS, HEADS
from data_pipelines.world_schema import Column, Database, Date, Label, Number, Table, Text

REVERSED = {
    "over": "under",
    "under": "over",
    "missing": "present",
    "present": "missing",
    "above_average": "below_average",
    "below_average": "above_average",
}


def _column(table: Table, kind: type, rng: random.Random, other_than: str | None = None) -> Column:
    """A random column of `kind`; raises LookupError when `table` has none besides `other_than`."""
    found = [column for column in table.of_type(kind) if column.name != other_than]
    if not found:
        raise LookupError(f"{table.name} has no suitable column")
    return rng.choice(found)


def _round_number(column: Number, rng: random.Random) -> int:
    """A multiple of ten, as people ask for, inside the middle 80 % of the column's range."""
    margin = (column.high - column.low) // 10
    return 10 * rng.randint((column.low + margin) // 10 + 1, (column.high - margin) // 10)


def _draw_filter(table: Table, family: str, rng: random.Random, other_than: str | None) -> Filter:
    wording = rng.randrange(2)
    if family == "equals":
        column = _column(table, Text, rng, other_than)
        return Filter("equals", table.name, column.name, (rng.choice(column.values),), wording)
    if family == "year":
        column = _column(table, Date, rng, other_than)
        year = rng.randint(column.low, column.high)
        return Filter("year", table.name, column.name, (year,), wording)
    if family == "null":
        columns = [c for c in table.of_type(Text | Date) if c.null_share and c.name != other_than]
        if not columns:
            raise LookupError(f"{table.name} has no column with NULLs")
        kind = rng.choice(("missing", "present"))
        return Filter(kind, table.name, rng.choice(columns).name, (), wording)
    column = _column(table, Number, rng, other_than)
    low = _round_number(column, rng)
    if family == "compare":
        return Filter(rng.choice(("over", "under")), table.name, column.name, (low,), wording)
    if family == "between":
        low, high = sorted((low, _round_number(column, rng)))
        return Filter("between", table.name, column.name, (low, high), wording)
    if family == "average":
        kind = rng.choice(("above_average", "below_average"))
        return Filter(kind, table.name, column.name, (), wording)
    raise ValueError(f"unknown filter family {family!r}")


def _draw_filters(
    database: Database, table: Table, template: Template, rng: random.Random, column: str | None
) -> tuple[Filter, ...]:
    filters = []
    for family in template.filters:
        if family == "parent":
            if table.parent is None:
                raise LookupError(f"{table.name} has no parent")
            parent = database.table(table.parent.table)
            inner = rng.choice(("equals", "compare"))
            filters.append(_draw_filter(parent, inner, rng, None))
        else:
            filters.append(_draw_filter(table, family, rng, column))
    return tuple(filters)


def _grouping(database: Database, table: Table, rng: random.Random) -> tuple[str, str]:
    """A table and a category or label of it that rows of `table` can be grouped by."""
    places = [(table.name, column.name) for column in table.of_type(Text)]
    if table.parent:
        parent = database.table(table.parent.table)
        places += [(parent.name, column.name) for column in parent.of_type(Text | Label)]
    return rng.choice(places)


def draw(databases: tuple[Database, ...], template: Template, rng: random.Random) -> Choices:
    """Random choices for `template`.

    Raises:
        LookupError: the table drawn cannot serve the template; draw again.
    """
    database = rng.choice(databases)
    table = rng.choice(database.tables)
    choices = Choices(
        template=template.name,
        db_id=database.db_id,
        table=table.name,
        head=template.head,
        wording=rng.randrange(len(HEADS[template.head])),
        of=rng.randrange(2),
    )
    match template.head:
        case "aggregate":
            column = _column(table, Number, rng).name
            choices = replace(choices, column=column, function=rng.choice(tuple(FUNCTIONS)))
        case "distinct":
            choices = replace(choices, column=_column(table, Text, rng).name)
        case "top":
            choices = replace(
                choices,
                column=_column(table, Number, rng).name,
                descending=rng.random() < 0.5,
                limit=rng.choice((1, 1, 2, 3, 5)),
            )
        case "group" | "having":
            place, column = _grouping(database, table, rng)
            least = rng.randint(1, 30) if template.head == "having" else 0
            choices = replace(choices, grouping_table=place, column=column, least=least)
    filters = _draw_filters(database, table, template, rng, choices.column)
    return replace(choices, filters=filters)


def variants(choices: Choices) -> list[Choices]:
    """Questions that differ from `choices` in one piece.

    A filter is dropped or reversed; the function, the direction, the limit or the bound is another.

    An answer equal to one of theirs would reward SQL that misses that piece.
    """
    found = []
    for index, condition in enumerate(choices.filters):
        others = choices.filters[:index], choices.filters[index + 1 :]
        found.append(replace(choices, filters=others[0] + others[1]))
        if condition.kind in REVERSED:
            turned = replace(condition, kind=REVERSED[condition.kind])
            found.append(replace(choices, filters=(*others[0], turned, *others[1])))
    match choices.head:
        case "aggregate":
            found += [replace(choices, function=f) for f in FUNCTIONS if f != choices.function]
        case "top":
            found.append(replace(choices, descending=not choices.descending))
            found.append(replace(choices, limit=choices.limit + 1))
        case "having":
            found.append(replace(choices, least=0))
            found.append(replace(choices, least=choices.least + 5))
    return found
