"""Tier one: rows of one table, listed, counted, looked up and ranked."""

from __future__ import annotations

from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.scan import Table
from data_pipelines.onedb.words import join_and


def _clause(d: Draw, conditions: list[Condition]) -> str:
    """whose height is over 180 cm, or with a height over 180 cm"""
    if len(conditions) == 1 and d.rng.random() < 0.5:
        thing = conditions[0].object_phrase(d.live, d.voice.noun(conditions[0].column))
        if thing:
            return f"with {thing}"
    return d.voice.whose(conditions)


def _listed(d: Draw, name: str, table: Table, conditions: list[Condition], *, either=False):
    source = Source((table.name,))
    label = source.labels(0, table)
    if not label:
        raise LookupError(f"rows of {table.name} have nothing to show")
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]

    def render(kept) -> str:
        filters = [" OR ".join(kept)] if either else kept
        return f"SELECT {label} {source.sql}{where(*filters)}"

    clause = _either(d, conditions) if either else _clause(d, conditions)
    questions = []
    thing = conditions[0].object_phrase(d.live, d.voice.noun(conditions[0].column))
    if len(conditions) == 1 and thing and table.named:
        questions = [f"Which {d.voice.many(table.name)} have {thing}?"]
    return Draft(
        family=name,
        tier=1,
        sql=render(told),
        asks=(d.voice.names_of(table, clause=clause),),
        questions=tuple(questions),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        subject=table.name,
    )


def _either(d: Draw, conditions: list[Condition]) -> str:
    return d.voice.whose(conditions).replace(" and whose ", " or whose ")


def _counted(d: Draw, name: str, table: Table, conditions: list[Condition], *, either=False):
    source = Source((table.name,))
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]

    def render(kept) -> str:
        filters = [" OR ".join(kept)] if either else kept
        return f"SELECT COUNT(*) {source.sql}{where(*filters)}"

    many = d.voice.many(table.name)
    clause = _either(d, conditions) if either else _clause(d, conditions)
    questions = [f"How many {many} are there {clause}?"]
    thing = conditions[0].object_phrase(d.live, d.voice.noun(conditions[0].column))
    if len(conditions) == 1 and thing:
        questions.append(f"How many {many} have {thing}?")
    return Draft(
        family=name,
        tier=1,
        sql=render(told),
        asks=(f"the number of {many} {clause}",),
        many=False,
        questions=tuple(questions),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        subject=table.name,
    )


def _two_plain(d: Draw, table: Table) -> list[Condition]:
    """Two conditions without an "or" of their own."""
    conditions = d.conditions(table, 2)
    if any(c.op == "among" for c in conditions):
        raise LookupError("or within or")
    return conditions


def _with_label(table: Table) -> bool:
    return bool(table.label)


@family(1)
def list_equal(d: Draw) -> Draft:
    table = d.table(_with_label)
    return _listed(d, "list_equal", table, [d.condition(table, ops=("equal",))])


@family(1)
def list_compare(d: Draw) -> Draft:
    table = d.table(_with_label)
    condition = d.condition(table, ops=("over", "under"), kinds=("number",))
    return _listed(d, "list_compare", table, [condition])


@family(1)
def list_between(d: Draw) -> Draft:
    table = d.table(_with_label)
    condition = d.condition(table, ops=("between",), kinds=("number", "year", "date"))
    return _listed(d, "list_between", table, [condition])


@family(1)
def list_when(d: Draw) -> Draft:
    table = d.table(_with_label)
    ops = ("during", "before", "after", "equal")
    return _listed(d, "list_when", table, [d.condition(table, ops=ops, kinds=("date", "year"))])


@family(1)
def list_missing(d: Draw) -> Draft:
    table = d.table(_with_label)
    return _listed(d, "list_missing", table, [d.condition(table, ops=("missing", "present"))])


@family(1)
def list_other(d: Draw) -> Draft:
    table = d.table(_with_label)
    condition = d.condition(table, ops=("other", "among"), kinds=("category",))
    return _listed(d, "list_other", table, [condition])


@family(1)
def list_pattern(d: Draw) -> Draft:
    table = d.table(_with_label)
    condition = d.condition(table, ops=("starts", "contains"), kinds=("name", "text"))
    return _listed(d, "list_pattern", table, [condition])


@family(1)
def list_two(d: Draw) -> Draft:
    table = d.table(_with_label)
    return _listed(d, "list_two", table, d.conditions(table, 2))


@family(1)
def list_either(d: Draw) -> Draft:
    table = d.table(_with_label)
    return _listed(d, "list_either", table, _two_plain(d, table), either=True)


@family(1)
def count_all(d: Draw) -> Draft:
    table = d.table()
    many = d.voice.many(table.name)
    return Draft(
        family="count_all",
        tier=1,
        sql=f"SELECT COUNT(*) {Source((table.name,)).sql}",
        asks=(f"the number of {many}", f"the total number of {many}"),
        many=False,
        questions=(f"How many {many} are there?", f"How many {many} do we have in total?"),
        subject=table.name,
    )


@family(1)
def count_equal(d: Draw) -> Draft:
    table = d.table()
    return _counted(d, "count_equal", table, [d.condition(table, ops=("equal",))])


@family(1)
def count_compare(d: Draw) -> Draft:
    table = d.table()
    ops = ("over", "under", "between")
    return _counted(d, "count_compare", table, [d.condition(table, ops=ops, kinds=("number",))])


@family(1)
def count_when(d: Draw) -> Draft:
    table = d.table()
    condition = d.condition(table, kinds=("date", "year"))
    return _counted(d, "count_when", table, [condition])


@family(1)
def count_missing(d: Draw) -> Draft:
    table = d.table()
    return _counted(d, "count_missing", table, [d.condition(table, ops=("missing", "present"))])


@family(1)
def count_two(d: Draw) -> Draft:
    table = d.table()
    return _counted(d, "count_two", table, d.conditions(table, 2))


@family(1)
def count_either(d: Draw) -> Draft:
    table = d.table()
    return _counted(d, "count_either", table, _two_plain(d, table), either=True)


@family(1)
def lookup(d: Draw) -> Draft:
    """One fact of a row that is known by its name."""
    table = d.table(lambda t: t.named)
    named, told = d.named_row(table)
    column = d.column(table, "category", "number", "year", "date", "text", "flag")
    source = Source((table.name,))
    condition = named.sql(source.ref(0, named.column.name))
    row = f"the {d.voice.one(table.name)} {told}"
    noun = d.voice.measure(column)
    return Draft(
        family="lookup",
        tier=1,
        sql=f"SELECT {source.ref(0, column.name)} {source.sql}{where(condition)}",
        asks=(f"the {noun} of {row}",),
        many=False,
        conditions=(named,),
        weaker=(f"SELECT {source.ref(0, column.name)} {source.sql}",),
        subject=table.name,
    )


@family(1)
def lookup_two(d: Draw) -> Draft:
    """Two facts of a row that is known by its name."""
    table = d.table(lambda t: t.named)
    named, told = d.named_row(table)
    kinds = ("category", "number", "year", "date", "text", "flag")
    first = d.column(table, *kinds)
    second = d.column(table, *kinds, but=[first])
    source = Source((table.name,))
    shown = f"{source.ref(0, first.name)}, {source.ref(0, second.name)}"
    condition = named.sql(source.ref(0, named.column.name))
    nouns = join_and([d.voice.measure(first), d.voice.measure(second)])
    return Draft(
        family="lookup_two",
        tier=1,
        sql=f"SELECT {shown} {source.sql}{where(condition)}",
        asks=(f"the {nouns} of the {d.voice.one(table.name)} {told}",),
        conditions=(named,),
        weaker=(f"SELECT {shown} {source.sql}",),
        subject=table.name,
    )


@family(1)
def which_has(d: Draw) -> Draft:
    """The name of the row that has a certain other text."""
    table = d.table(lambda t: t.named)
    condition = d.condition(table, ops=("equal",), kinds=("text",))
    return _listed(d, "which_has", table, [condition])


@family(1)
def list_with_facts(d: Draw) -> Draft:
    """Names with one more column, under a condition."""
    table = d.table(lambda t: t.named)
    condition = d.condition(table)
    extra = d.column(table, "category", "number", "year", "date", but=[condition.column])
    source = Source((table.name,))
    told = [condition.sql(source.ref(0, condition.column.name))]

    def render(kept) -> str:
        shown = f"{source.labels(0, table)}, {source.ref(0, extra.name)}"
        return f"SELECT {shown} {source.sql}{where(*kept)}"

    label = d.voice.label_noun(table, many=True) or d.voice.many(table.name)
    rows = f"{d.voice.many(table.name)} {_clause(d, [condition])}"
    nouns = d.voice.nouns(extra)
    return Draft(
        family="list_with_facts",
        tier=1,
        sql=render(told),
        asks=(f"the {label} and {nouns} of the {rows}",),
        conditions=(condition,),
        weaker=tuple(without_each(told, render)),
        subject=table.name,
    )
