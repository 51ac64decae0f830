"""Tier one: figures of one table: aggregates, distinct values and groups."""

from __future__ import annotations

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.scan import Table

FUNCTIONS = {
    "AVG": ("average", "mean"),
    "SUM": ("total",),
    "MAX": ("highest", "maximum"),
    "MIN": ("lowest", "minimum"),
}


def pick_function(d: Draw, column: Column, *, extremes: bool = True) -> tuple[str, str]:
    """A function that means something on the column, and its word."""
    allowed = ["AVG", "AVG"]
    if column.additive:
        allowed += ["SUM", "SUM"]
    if extremes:
        allowed += ["MAX"] if column.placeholder_low else ["MAX", "MIN"]
    function = d.choose(allowed)
    return function, d.voice.pick(*FUNCTIONS[function])


def measured(column: Column, function: str) -> list[Condition]:
    """Leaves out a height of 0 that stands for "unknown", where it would count."""
    counts = column.placeholder_low and function in ("AVG", "MIN")
    return [Condition(column, "measured")] if counts else []


def measured_words(d: Draw, guard: list[Condition]) -> str:
    """(not counting those whose height is 0)"""
    return "".join(f", not counting those whose {d.voice.noun(c.column)} is 0" for c in guard)


def _aggregated(d: Draw, name: str, count: int) -> Draft:
    table = d.table()
    column = d.number(table)
    function, word = pick_function(d, column)
    conditions = d.conditions(table, count, but=[column])
    guard = measured(column, function)
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in (*conditions, *guard)]

    def render(kept, used=function) -> str:
        return f"SELECT {used}({ref}) {source.sql}{where(*kept)}"

    rows = f"{'' if conditions else 'all '}{d.voice.many(table.name)}"
    clause = f" {d.voice.whose(conditions)}" if conditions else ""
    ask = f"the {word} {d.voice.measure(column)} of {rows}{clause}{measured_words(d, guard)}"
    other = "MAX" if function != "MAX" else "AVG"
    return Draft(
        family=name,
        tier=1,
        sql=render(told),
        asks=(ask, f"the {word} {d.voice.measure(column)} among {ask.partition(' of ')[2]}")
        if " of " not in d.voice.measure(column)
        else (ask,),
        many=False,
        weaker=(*without_each(told, render), render(told, other)),
        conditions=tuple(conditions),
        subject=table.name,
    )


@family(1)
def aggregate(d: Draw) -> Draft:
    return _aggregated(d, "aggregate", 0)


@family(1)
def aggregate_where(d: Draw) -> Draft:
    return _aggregated(d, "aggregate_where", 1)


@family(1)
def range_of(d: Draw) -> Draft:
    """Least and greatest value together."""
    table = d.table()
    column = d.column(table, "number", "year", "date")
    if column.placeholder_low:
        raise LookupError("the least value is a placeholder")
    conditions = d.conditions(table, d.rng.choice((0, 1)), but=[column])
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]

    def render(kept) -> str:
        return f"SELECT MIN({ref}), MAX({ref}) {source.sql}{where(*kept)}"

    low, high = ("earliest", "latest") if column.kind != "number" else ("lowest", "highest")
    rows = f"{d.voice.many(table.name)} {d.voice.whose(conditions)}".strip()
    return Draft(
        family="range_of",
        tier=1,
        sql=render(told),
        asks=(f"the {low} and the {high} {d.voice.measure(column)} of the {rows}",),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        subject=table.name,
    )


@family(1)
def distinct_values(d: Draw) -> Draft:
    table = d.table()
    column = d.column(table, "category", "category", "text", "year")
    conditions = d.conditions(table, d.rng.choice((0, 1, 1)), but=[column])
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]
    guard = [f"{ref} IS NOT NULL"] if column.nulls else []

    def render(kept) -> str:
        return f"SELECT DISTINCT {ref} {source.sql}{where(*kept, *guard)}"

    rows = f"{d.voice.many(table.name)} {d.voice.whose(conditions)}".strip()
    return Draft(
        family="distinct_values",
        tier=1,
        sql=render(told),
        asks=(f"the different {d.voice.nouns(column)} of the {rows}",),
        questions=(f"Which different {d.voice.nouns(column)} do the {rows} have?",),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        subject=table.name,
    )


@family(1)
def count_distinct(d: Draw) -> Draft:
    table = d.table()
    column = d.column(table, "category", "text", "year")
    conditions = d.conditions(table, d.rng.choice((0, 1)), but=[column])
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]

    def render(kept, distinct="DISTINCT ") -> str:
        return f"SELECT COUNT({distinct}{ref}) {source.sql}{where(*kept)}"

    rows = f"{d.voice.many(table.name)} {d.voice.whose(conditions)}".strip()
    nouns = d.voice.nouns(column)
    return Draft(
        family="count_distinct",
        tier=1,
        sql=render(told),
        asks=(f"the number of different {nouns} among the {rows}",),
        many=False,
        questions=(f"How many different {nouns} are there among the {rows}?",),
        weaker=(*without_each(told, render), render(told, "")),
        conditions=tuple(conditions),
        subject=table.name,
    )


def _grouping(d: Draw, table: Table) -> tuple[Column, list[str], str]:
    """A category to group by, the guard against its NULLs, and the words for that."""
    column = d.column(table, "category", "category", "year", "flag")
    if not 2 <= column.distinct <= 60:
        raise LookupError("too few or too many groups")
    if not column.nulls:
        return column, [], ""
    guard = [f"{Source((table.name,)).ref(0, column.name)} IS NOT NULL"]
    return column, guard, f", leaving out those with no {d.voice.noun(column)}"


@family(1)
def group_count(d: Draw) -> Draft:
    table = d.table()
    column, guard, left_out = _grouping(d, table)
    conditions = d.conditions(table, d.rng.choice((0, 1)), but=[column])
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]

    def render(kept) -> str:
        return f"SELECT {ref}, COUNT(*) {source.sql}{where(*kept, *guard)} GROUP BY {ref}"

    many, noun = d.voice.many(table.name), d.voice.noun(column)
    rows = f"{many} {d.voice.whose(conditions)}".strip()
    return Draft(
        family="group_count",
        tier=1,
        sql=render(told),
        asks=(f"each {noun} with its number of {rows}{left_out}",),
        questions=(
            f"For each {noun}, how many {rows} are there{left_out}?",
            f"How many {rows} are there for each {noun}{left_out}?",
        ),
        many=False,
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        subject=table.name,
    )


@family(1)
def group_aggregate(d: Draw) -> Draft:
    table = d.table()
    column, guard, left_out = _grouping(d, table)
    number = d.number(table, but=[column])
    function, word = pick_function(d, number)
    unknown = measured(number, function)
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in unknown]

    def render(used=function) -> str:
        shown = f"{ref}, {used}({source.ref(0, number.name)})"
        return f"SELECT {shown} {source.sql}{where(*told, *guard)} GROUP BY {ref}"

    noun, many = d.voice.noun(column), d.voice.many(table.name)
    tail = measured_words(d, unknown) + left_out
    figure = f"{word} {d.voice.measure(number)} of the {many}"
    return Draft(
        family="group_aggregate",
        tier=1,
        sql=render(),
        asks=(f"each {noun} with the {figure} in it{tail}",),
        questions=(f"For each {noun}, what is the {figure}{tail}?",),
        many=False,
        weaker=(render("MAX" if function != "MAX" else "AVG"),),
        subject=table.name,
    )


@family(1)
def group_top(d: Draw) -> Draft:
    table = d.table()
    column, guard, _ = _grouping(d, table)
    conditions = d.conditions(table, d.rng.choice((0, 0, 1)), but=[column])
    descending = d.rng.random() < 0.75
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]

    def render(kept, down=descending) -> str:
        order = f"ORDER BY COUNT(*) {'DESC' if down else 'ASC'} LIMIT 1"
        return f"SELECT {ref} {source.sql}{where(*kept, *guard)} GROUP BY {ref} {order}"

    rows = f"{d.voice.many(table.name)} {d.voice.whose(conditions)}".strip()
    noun, most = d.voice.noun(column), "most" if descending else "fewest"
    return Draft(
        family="group_top",
        tier=1,
        sql=render(told),
        asks=(f"the {noun} with the {most} {rows}" + _but_one(descending),),
        many=False,
        questions=(f"Which {noun} has the {most} {rows}{_but_one(descending)}?",),
        weaker=(*without_each(told, render), render(told, not descending)),
        conditions=tuple(conditions),
        subject=table.name,
    )


def _but_one(descending: bool) -> str:
    """Groups of none do not show up in a GROUP BY."""
    return "" if descending else " (but at least one)"


@family(1)
def group_having(d: Draw) -> Draft:
    table = d.table()
    column = d.column(table, "category", "text", "year")
    conditions = d.conditions(table, d.rng.choice((0, 0, 1)), but=[column])
    least = d.rng.choice((1, 2, 3, 5, 10, 20))
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]
    guard = [f"{ref} IS NOT NULL"] if column.nulls else []

    def render(kept, bound=least) -> str:
        group = f"GROUP BY {ref} HAVING COUNT(*) > {bound}"
        return f"SELECT {ref} {source.sql}{where(*kept, *guard)} {group}"

    rows = f"{d.voice.many(table.name)} {d.voice.whose(conditions)}".strip()
    more = f"{least} {rows}"
    if least == 1:
        more = f"one {d.voice.one(table.name)} {d.voice.whose(conditions)}".strip()
    nouns, shared = d.voice.nouns(column), column.kind != "category"
    return Draft(
        family="group_having",
        tier=1,
        sql=render(told),
        asks=(f"the {nouns} {'shared by' if shared else 'with'} more than {more}",),
        questions=(f"Which {nouns} {'are shared by' if shared else 'have'} more than {more}?",),
        weaker=(*without_each(told, render), render(told, 0)),
        conditions=tuple(conditions),
        subject=table.name,
    )
