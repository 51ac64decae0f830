"""Tier one: rows of one table in an order, or the first of them."""

from __future__ import annotations

from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.words import spelled


@family(1)
def top_one(d: Draw) -> Draft:
    return _top(d, "top_one", 1, 0)


@family(1)
def top_few(d: Draw) -> Draft:
    return _top(d, "top_few", d.rng.choice((2, 3, 3, 5, 10)), 0)


@family(1)
def top_where(d: Draw) -> Draft:
    return _top(d, "top_where", d.rng.choice((1, 1, 3, 5)), 1)


def _top(d: Draw, name: str, limit: int, filters: int) -> Draft:
    table = d.table(lambda t: bool(t.label))
    key = d.column(table, "number", "date", "year")
    descending = key.placeholder_low or d.rng.random() < 0.6
    conditions = d.conditions(table, filters, but=[key])
    source = Source((table.name,))
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]
    column = source.ref(0, key.name)
    # SQLite sorts NULL before all values, and nobody who asks for the least means it.
    guard = [f"{column} IS NOT NULL"] if key.nulls and not descending else []

    def render(kept, down=descending, count=limit) -> str:
        order = f"ORDER BY {column} {'DESC' if down else 'ASC'} LIMIT {count}"
        return f"SELECT {source.labels(0, table)} {source.sql}{where(*kept, *guard)} {order}"

    most = extreme(d, key.kind, descending)
    clause = d.voice.whose(conditions)
    if limit == 1:
        rows = f"{d.voice.one(table.name)} {clause}".strip()
        joined = f"the {rows} that has the {most} {d.voice.noun(key)}"
        if not conditions:
            joined = f"the {rows} with the {most} {d.voice.noun(key)}"
        questions = [f"Which {rows} has the {most} {d.voice.noun(key)}?"]
    else:
        rows = f"{spelled(limit)} {d.voice.many(table.name)} {clause}".strip()
        joined = f"the {rows} with the {most} {d.voice.nouns(key)}"
        if conditions:
            among = f"the {d.voice.many(table.name)} {clause}"
            joined = f"the {spelled(limit)} with the {most} {d.voice.nouns(key)} among {among}"
        questions = []
    label = d.voice.label_noun(table, many=limit > 1)
    order = "" if limit == 1 else f", {order_words(key.kind, descending)} first"
    ask = (f"the {label} of {joined}" if label else joined) + order
    return Draft(
        family=name,
        tier=1,
        sql=render(told),
        asks=(ask,),
        many=limit > 1,
        questions=tuple(questions) if table.named else (),
        weaker=(*without_each(told, render), render(told, not descending)),
        conditions=tuple(conditions),
        grading="set" if limit == 1 else "list",
        subject=table.name,
    )


def extreme(d: Draw, kind: str, descending: bool) -> str:
    """highest, lowest, latest or earliest"""
    if kind in ("date", "year"):
        return d.voice.pick("latest", "most recent") if descending else "earliest"
    return (
        d.voice.pick("highest", "largest", "greatest")
        if descending
        else d.voice.pick("lowest", "smallest")
    )


def order_words(kind: str, descending: bool) -> str:
    """How the rows of an ordered answer follow each other."""
    if kind in ("date", "year"):
        return "latest" if descending else "earliest"
    return "highest" if descending else "lowest"


@family(1)
def sorted_list(d: Draw) -> Draft:
    """All rows that meet a condition, in an order."""
    table = d.table(lambda t: t.named)
    key = d.column(table, "number", "date", "year")
    condition = d.condition(table, but=[key])
    descending = key.placeholder_low or d.rng.random() < 0.5
    source = Source((table.name,))
    told = [condition.sql(source.ref(0, condition.column.name))]

    def render(kept, down=descending) -> str:
        order = f"ORDER BY {source.ref(0, key.name)} {'DESC' if down else 'ASC'}"
        return f"SELECT {source.labels(0, table)} {source.sql}{where(*kept)} {order}"

    names = d.voice.names_of(table, clause=d.voice.whose([condition]))
    first, last = order_words(key.kind, descending), order_words(key.kind, not descending)
    return Draft(
        family="sorted_list",
        tier=1,
        sql=render(told),
        asks=(f"{names}, sorted by {d.voice.noun(key)} from {first} to {last}",),
        weaker=(*without_each(told, render), render(told, not descending)),
        conditions=(condition,),
        grading="list",
        subject=table.name,
    )
