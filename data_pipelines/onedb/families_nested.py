"""Tier four: subqueries that compare with averages, ranks and other rows."""

from __future__ import annotations

from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.families_figures import measured, measured_words
from data_pipelines.onedb.scan import Table
from data_pipelines.onedb.words import ordinal


def _single(table: Table) -> Source:
    return Source((table.name,))


@family(4)
def above_average(d: Draw) -> Draft:
    """Rows above or below the average of all."""
    return _average(d, "above_average", count=False)


@family(4)
def count_above_average(d: Draw) -> Draft:
    return _average(d, "count_above_average", count=True)


def _average(d: Draw, name: str, *, count: bool) -> Draft:
    table = d.table(lambda t: count or bool(t.label))
    number = d.number(table)
    guard = measured(number, "AVG")
    above = bool(guard) or d.rng.random() < 0.65
    conditions = d.conditions(table, 1 if d.rng.random() < 0.3 else 0, but=[number])
    source = _single(table)
    ref = source.ref(0, number.name)
    average = f"(SELECT AVG({ref}) {source.sql}{where(*(c.sql(ref) for c in guard))})"
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]
    shown = "COUNT(*)" if count else source.labels(0, table)

    def render(kept, sign=">" if above else "<") -> str:
        return f"SELECT {shown} {source.sql}{where(*kept, f'{ref} {sign} {average}')}"

    word = "above" if above else "below"
    many, noun = d.voice.many(table.name), d.voice.noun(number)
    clause = f"whose {noun} is {word} the average {noun} of all {many}{measured_words(d, guard)}"
    if conditions:
        clause = f"{d.voice.whose(conditions)} and {clause}"
    ask = f"the number of {many} {clause}" if count else d.voice.names_of(table, clause=clause)
    return Draft(
        family=name,
        tier=4,
        sql=render(told),
        asks=(ask,),
        many=not count,
        questions=(f"How many {many} are there {clause}?",) if count else (),
        weaker=(*without_each(told, render), render(told, "<" if above else ">")),
        conditions=tuple(conditions),
        subject=table.name,
    )


@family(4)
def above_group_average(d: Draw) -> Draft:
    """Rows above the average of their own group: a correlated subquery."""
    table = d.table(lambda t: t.named)
    number = d.number(table)
    group, kind = d.grouping(table)
    if number.placeholder_low or table.rows > 3000:
        raise LookupError("placeholders would count in the average, or rows are too many")
    one = Source((table.name, table.name))
    outer = f"SELECT {one.labels(0, table)} FROM {_single(table).sql.removeprefix('FROM ')} AS T1"
    inner = f"FROM {_single(table).sql.removeprefix('FROM ')} AS T2"
    same = f"{one.ref(1, group.name)} = {one.ref(0, group.name)}"
    figure = one.ref(0, number.name)
    average = f"SELECT AVG({one.ref(1, number.name)}) {inner}"
    noun, many = d.voice.noun(number), d.voice.many(table.name)
    clause = f"whose {noun} is above the average {noun} of the {many} with the same {kind}"
    return Draft(
        family="above_group_average",
        tier=4,
        sql=f"{outer} WHERE {figure} > ({average} WHERE {same})",
        asks=(d.voice.names_of(table, clause=clause),),
        weaker=(f"{outer} WHERE {figure} > ({average})",),
        subject=table.name,
    )


@family(4)
def nth_highest(d: Draw) -> Draft:
    """The row at a certain place."""
    table = d.table(lambda t: bool(t.label))
    key = d.column(table, "number", "date")
    place = d.rng.choice((2, 2, 2, 3, 3, 4, 5))
    descending = key.placeholder_low or d.rng.random() < 0.75
    conditions = d.conditions(table, 1 if d.rng.random() < 0.3 else 0, but=[key])
    source = _single(table)
    ref = source.ref(0, key.name)
    told = [c.sql(source.ref(0, c.column.name)) for c in conditions]
    guard = [f"{ref} IS NOT NULL"] if key.nulls and not descending else []

    def render(kept, skip=place - 1, down=descending) -> str:
        order = f"ORDER BY {ref} {'DESC' if down else 'ASC'} LIMIT 1 OFFSET {skip}"
        return f"SELECT {source.labels(0, table)} {source.sql}{where(*kept, *guard)} {order}"

    most = {True: ("highest", "latest"), False: ("lowest", "earliest")}[descending]
    rank = f"{ordinal(place)} {most[key.kind == 'date']}"
    if d.rng.random() < 0.3 and key.kind == "number" and descending:
        rank = f"{ordinal(place)} largest"
    one, label = d.voice.one(table.name), d.voice.label_noun(table, many=False)
    among = f" among the {d.voice.many(table.name)} {d.voice.whose(conditions)}"
    thing = f"the {one} with the {rank} {d.voice.noun(key)}{among if conditions else ''}"
    return Draft(
        family="nth_highest",
        tier=4,
        sql=render(told),
        asks=(f"the {label} of {thing}" if label else thing,),
        many=False,
        questions=(f"Which {one} has the {rank} {d.voice.noun(key)}{among if conditions else ''}?",)
        if table.named
        else (),
        weaker=(
            *without_each(told, render),
            render(told, 0),
            render(told, place - 1, not descending),
        ),
        conditions=tuple(conditions),
        subject=table.name,
    )


@family(4)
def more_than_named(d: Draw) -> Draft:
    """Rows with more of a number than one row that is known by its name."""
    table = d.table(lambda t: t.named)
    named, told = d.named_row(table)
    number = d.number(table)
    more = number.placeholder_low or d.rng.random() < 0.6
    source = _single(table)
    ref = source.ref(0, number.name)
    value = f"(SELECT {ref} {source.sql}{where(named.sql(source.ref(0, named.column.name)))})"
    count = d.rng.random() < 0.4
    shown = "COUNT(*)" if count else source.labels(0, table)

    def render(sign=">" if more else "<") -> str:
        return f"SELECT {shown} {source.sql} WHERE {ref} {sign} {value}"

    many = d.voice.many(table.name)
    word = "higher" if more else "lower"
    one = d.voice.one(table.name)
    clause = f"whose {d.voice.noun(number)} is {word} than that of the {one} {told}"
    ask = f"the number of {many} {clause}" if count else d.voice.names_of(table, clause=clause)
    return Draft(
        family="more_than_named",
        tier=4,
        sql=render(),
        asks=(ask,),
        many=not count,
        questions=(f"How many {many} are there {clause}?",) if count else (),
        weaker=(render("<" if more else ">"), f"SELECT {shown} {source.sql}"),
        conditions=(named,),
        subject=table.name,
    )


@family(4)
def same_as_named(d: Draw) -> Draft:
    """Other rows that share a property with one that is known by its name."""
    table = d.table(lambda t: t.named)
    named, told = d.named_row(table)
    shared, noun = d.grouping(table)
    source = _single(table)
    ref = source.ref(0, shared.name)
    name = source.ref(0, named.column.name)
    value = f"(SELECT {ref} {source.sql}{where(named.sql(name))})"
    other = f"{name} <> {named.sql(name).partition(' = ')[2]}"

    def render(*kept) -> str:
        return f"SELECT {source.labels(0, table)} {source.sql}{where(*kept)}"

    same = f"{ref} = {value}"
    one, many = d.voice.one(table.name), d.voice.many(table.name)
    clause = f"that have the same {noun} as the {one} {told}"
    label = d.voice.label_noun(table, many=True)
    rows = f"the other {many} {clause}"
    return Draft(
        family="same_as_named",
        tier=4,
        sql=render(same, other),
        asks=(f"the {label} of {rows}" if label else rows,),
        weaker=(render(same), render(other)),
        conditions=(named,),
        subject=table.name,
    )


@family(4)
def groups_above_average(d: Draw) -> Draft:
    """Groups whose average is above the average of all rows."""
    table = d.table()
    group = d.column(table, "category")
    number = d.number(table, but=[group])
    if number.placeholder_low:
        raise LookupError("placeholders would count in the average")
    source = _single(table)
    ref, figure = source.ref(0, group.name), f"AVG({source.ref(0, number.name)})"
    guard = [f"{ref} IS NOT NULL"] if group.nulls else []
    above = d.rng.random() < 0.7

    def render(sign=">" if above else "<") -> str:
        having = f"HAVING {figure} {sign} (SELECT {figure} {source.sql})"
        return f"SELECT {ref} {source.sql}{where(*guard)} GROUP BY {ref} {having}"

    noun, many = d.voice.noun(number), d.voice.many(table.name)
    word = "above" if above else "below"
    tail = f"whose {many} have an average {noun} {word} the average {noun} of all {many}"
    return Draft(
        family="groups_above_average",
        tier=4,
        sql=render(),
        asks=(f"the {d.voice.nouns(group)} {tail}",),
        questions=(f"Which {d.voice.nouns(group)} are there {tail}?",),
        weaker=(render("<" if above else ">"),),
        subject=table.name,
    )


@family(4)
def share_of_total(d: Draw) -> Draft:
    """What part of a total comes from rows that meet a condition."""
    table = d.table()
    number = d.choose([c for c in d.live.usable(table, "number") if c.additive])
    condition = d.condition(table, but=[number])
    source = _single(table)
    ref = source.ref(0, number.name)
    told = condition.sql(source.ref(0, condition.column.name))
    many = d.voice.many(table.name)
    total = f"the total {d.voice.noun(number)} of all {many}"
    rows = f"the {many} {d.voice.whose([condition])}"
    share = f"CAST(SUM(CASE WHEN {told} THEN {ref} ELSE 0 END) AS REAL) * 100 / SUM({ref})"
    return Draft(
        family="share_of_total",
        tier=4,
        sql=f"SELECT {share} {source.sql}",
        asks=(f"the percentage of {total} that comes from {rows}",),
        questions=(f"What percentage of {total} comes from {rows}?",),
        many=False,
        weaker=(f"SELECT SUM({ref}) {source.sql}{where(told)}",),
        conditions=(condition,),
        subject=table.name,
    )


@family(4)
def top_of_each(d: Draw) -> Draft:
    """In each group, the row with the most of a number."""
    table = d.table(lambda t: t.named)
    group = d.column(table, "category")
    number = d.number(table, but=[group])
    if table.rows > 3000:
        raise LookupError("too many rows to compare pairwise")
    two = Source((table.name, table.name))
    name = _single(table).sql.removeprefix("FROM ")
    ref, figure = two.ref(0, group.name), two.ref(0, number.name)
    guard = [f"{ref} IS NOT NULL"] if group.nulls else []
    best = (
        f"(SELECT MAX({two.ref(1, number.name)}) FROM {name} AS T2"
        f" WHERE {two.ref(1, group.name)} = {ref})"
    )
    shown = f"{ref}, {two.labels(0, table)}"
    unknown = measured(number, "MAX")
    tail = measured_words(d, unknown)
    kind, noun, one = d.voice.noun(group), d.voice.noun(number), d.voice.one(table.name)
    left = f", leaving out those with no {kind}" if guard else ""
    return Draft(
        family="top_of_each",
        tier=4,
        sql=f"SELECT {shown} FROM {name} AS T1{where(*guard, f'{figure} = {best}')}",
        asks=(f"each {kind} with the {one} that has the highest {noun} in it{tail}{left}",),
        questions=(f"For each {kind}, which {one} has the highest {noun}{tail}{left}?",),
        many=False,
        weaker=(f"SELECT {shown} FROM {name} AS T1",),
        subject=table.name,
    )
