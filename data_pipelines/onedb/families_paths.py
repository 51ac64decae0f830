"""Families for every join path: rows at one end, a condition at the other."""

from __future__ import annotations

from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.families_figures import measured, measured_words, pick_function
from data_pipelines.onedb.families_ranked import extreme
from data_pipelines.onedb.joins import Path, path_name
from data_pipelines.onedb.scan import Table
from data_pipelines.onedb.words import value_text


def tier_of(path: Path) -> int:
    return 2 if len(path) == 1 else 3


def ends(d: Draw, path: Path, *, link: bool = False) -> tuple[Table, Table]:
    """The tables at both ends; LookupError unless rows of the first can be listed.

    With `link` they need only be counted.
    """
    return d.subject(path[0].source, link=link), d.live.table(path[-1].target)


def far_condition(d: Draw, path: Path) -> tuple[Condition, str, str]:
    """A condition at the far end, its SQL, and the clause for the near end's rows."""
    table = d.live.table(path[-1].target)
    if d.live.is_link(table.name):
        raise LookupError("a link table has nothing to ask for")
    condition = d.end_condition(table)
    sql = condition.sql(Source.of(path).ref(-1, condition.column.name))
    return condition, sql, far_clause(d, path, condition)


def far_clause(d: Draw, path: Path, condition: Condition, **how) -> str:
    """The clause; a row known by its name is named: "linked to the superpower Flight"."""
    table = d.live.table(path[-1].target)
    by_name = table.label == (condition.column.name,) and condition.op == "equal"
    if by_name and not path[-1].up or by_name and _through_link(d, path):
        return d.voice.relative(path, value_text(condition.values[0]), **how)
    return d.voice.relative(path, condition, **how)


def _through_link(d: Draw, path: Path) -> bool:
    return len(path) > 1 and d.live.is_link(path[-2].target)


def several(path: Path) -> bool:
    return any(hop.multiplies for hop in path)


@family(2, by_path=True)
def hop_list(d: Draw, path: Path) -> Draft:
    return _hop_list(d, "hop_list", path, 0)


@family(2, by_path=True)
def hop_list_both(d: Draw, path: Path) -> Draft:
    return _hop_list(d, "hop_list_both", path, 1)


def _hop_list(d: Draw, name: str, path: Path, own: int) -> Draft:
    table, _ = ends(d, path)
    condition, far, clause = far_condition(d, path)
    source = Source.of(path)
    mine = d.conditions(table, own)
    told = [*(c.sql(source.ref(0, c.column.name)) for c in mine), far]
    distinct = "DISTINCT " if several(path) else ""

    def render(kept) -> str:
        return f"SELECT {distinct}{source.labels(0, table)} {source.sql}{where(*kept)}"

    whole = f"{d.voice.whose(mine)} and {clause}" if mine else clause
    questions = []
    if table.named and not mine:
        questions = [f"Which {d.voice.many(table.name)} are there {clause}?"]
        if clause.startswith("that "):
            questions = [f"Which {d.voice.many(table.name)} {clause.removeprefix('that ')}?"]
    return Draft(
        family=name,
        tier=tier_of(path),
        sql=render(told),
        asks=(d.voice.names_of(table, clause=whole),),
        questions=tuple(questions),
        weaker=tuple(without_each(told, render)),
        conditions=(*mine, condition),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_count(d: Draw, path: Path) -> Draft:
    return _hop_count(d, "hop_count", path, 0)


@family(2, by_path=True)
def hop_count_both(d: Draw, path: Path) -> Draft:
    return _hop_count(d, "hop_count_both", path, 1)


def _hop_count(d: Draw, name: str, path: Path, own: int) -> Draft:
    table, _ = ends(d, path, link=True)
    condition, far, clause = far_condition(d, path)
    source, counted = Source.of(path), d.counted(path)
    mine = d.conditions(table, own)
    told = [*(c.sql(source.ref(0, c.column.name)) for c in mine), far]

    def render(kept) -> str:
        return f"SELECT COUNT({counted}) {source.sql}{where(*kept)}"

    many = d.voice.many(table.name)
    whole = f"{d.voice.whose(mine)} and {clause}" if mine else clause
    questions = [f"How many {many} are there {whole}?"]
    if clause.startswith("that ") and not mine:
        questions = [f"How many {many} {clause.removeprefix('that ')}?"]
    thing = mine[0].object_phrase(d.live, d.voice.noun(mine[0].column)) if mine else None
    if thing:
        questions.append(f"Among the {many} {clause}, how many have {thing}?")
    return Draft(
        family=name,
        tier=tier_of(path),
        sql=render(told),
        asks=(f"the number of {many} {whole}",),
        many=False,
        questions=tuple(questions),
        weaker=tuple(without_each(told, render)),
        conditions=(*mine, condition),
        path=path_name(path),
        subject=table.name,
    )


@family(3, by_path=True)
def hop_count_in(d: Draw, path: Path) -> Draft:
    """Rows counted through a subquery, where a join would repeat them."""
    table, _ = ends(d, path, link=True)
    first, rest = path[0], path[1:]
    if not first.up or not several(rest) or len(first.edge.child_columns) > 1:
        raise LookupError("no join that repeats rows")
    condition, _, clause = far_condition(d, path)
    inner, outer = Source.of(rest), Source((table.name,))
    far = condition.sql(inner.ref(-1, condition.column.name))

    def render(kept) -> str:
        inside = f"SELECT {inner.ref(0, first.edge.parent_columns[0])} {inner.sql}{where(*kept)}"
        told = f"{outer.ref(0, first.edge.child_columns[0])} IN ({inside})"
        return f"SELECT COUNT(*) {outer.sql} WHERE {told}"

    many = d.voice.many(table.name)
    return Draft(
        family="hop_count_in",
        tier=3,
        sql=render([far]),
        asks=(f"the number of {many} {clause}",),
        many=False,
        questions=(f"How many {many} are there {clause}?",),
        weaker=(render([]), f"SELECT COUNT(*) {outer.sql}"),
        conditions=(condition,),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_without(d: Draw, path: Path) -> Draft:
    """Rows that have no such partner."""
    table, end = ends(d, path)
    if path[0].up:
        raise LookupError("starts upwards")
    key = d.identity(table.name)
    condition = None
    if len(path) > 1 or d.rng.random() < 0.6:
        condition = far_condition(d, path)[0]
        clause = far_clause(d, path, condition, negated=True)
    else:
        clause = f"that have no {d.voice.one(end.name)} at all"
        if d.live.is_link(end.name) or d.voice.needs_role(path[0]):
            raise LookupError("no word for the relation")
    inner = Source.of(path)
    far = [condition.sql(inner.ref(-1, condition.column.name))] if condition else []
    outer = Source((table.name,))
    everyone = f"SELECT {outer.labels(0, table)} {outer.sql}"

    def render(kept, no="NOT ") -> str:
        inside = f"SELECT {inner.ref(0, key)} {inner.sql}{where(*kept)}"
        return f"{everyone} WHERE {outer.ref(0, key)} {no}IN ({inside})"

    return Draft(
        family="hop_without",
        tier=4 if len(path) > 1 else 2,
        sql=render(far),
        asks=(d.voice.names_of(table, clause=clause),),
        weaker=(
            *without_each(far, render),
            render(far, ""),
            f"SELECT {outer.labels(0, table)} {outer.sql}",
        ),
        conditions=(condition,) if condition else (),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_aggregate(d: Draw, path: Path) -> Draft:
    """A figure over the rows at one end; joins that multiply them stay inside a subquery."""
    table, _ = ends(d, path)
    number = d.number(table)
    function, word = pick_function(d, number)
    condition, far, clause = far_condition(d, path)
    guard = measured(number, function)
    if several(path):
        key, inner, outer = d.identity(table.name), Source.of(path), Source((table.name,))

        def render(kept, used=function) -> str:
            inside = f"SELECT {inner.ref(0, key)} {inner.sql}{where(*kept)}"
            also = [c.sql(outer.ref(0, c.column.name)) for c in guard]
            told = where(f"{outer.ref(0, key)} IN ({inside})", *also)
            return f"SELECT {used}({outer.ref(0, number.name)}) {outer.sql}{told}"
    else:
        source = Source.of(path)

        def render(kept, used=function) -> str:
            also = [c.sql(source.ref(0, c.column.name)) for c in guard]
            return f"SELECT {used}({source.ref(0, number.name)}) {source.sql}{where(*kept, *also)}"

    rows = f"{d.voice.many(table.name)} {clause}"
    return Draft(
        family="hop_aggregate",
        tier=tier_of(path),
        sql=render([far]),
        asks=(f"the {word} {d.voice.measure(number)} of the {rows}{measured_words(d, guard)}",),
        many=False,
        weaker=(render([]), render([far], "MAX" if function != "MAX" else "AVG")),
        conditions=(condition,),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_distinct(d: Draw, path: Path) -> Draft:
    """Different values of a column at one end."""
    table, _ = ends(d, path)
    column = d.column(table, "category", "category", "year")
    condition, far, clause = far_condition(d, path)
    source = Source.of(path)
    ref = source.ref(0, column.name)
    guard = [f"{ref} IS NOT NULL"] if column.nulls else []

    def render(kept) -> str:
        return f"SELECT DISTINCT {ref} {source.sql}{where(*kept, *guard)}"

    return Draft(
        family="hop_distinct",
        tier=tier_of(path),
        sql=render([far]),
        asks=(f"the different {d.voice.nouns(column)} of the {d.voice.many(table.name)} {clause}",),
        weaker=(render([]),),
        conditions=(condition,),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_top(d: Draw, path: Path) -> Draft:
    """The row with the most of a number among those that meet a condition elsewhere."""
    table, _ = ends(d, path)
    key = d.column(table, "number", "date", "year")
    condition, far, clause = far_condition(d, path)
    descending = key.placeholder_low or d.rng.random() < 0.6
    source = Source.of(path)
    column = source.ref(0, key.name)
    guard = [f"{column} IS NOT NULL"] if key.nulls and not descending else []

    def render(kept, down=descending) -> str:
        order = f"ORDER BY {column} {'DESC' if down else 'ASC'} LIMIT 1"
        return f"SELECT {source.labels(0, table)} {source.sql}{where(*kept, *guard)} {order}"

    most = extreme(d, key.kind, descending)
    label = d.voice.label_noun(table, many=False)
    one, many = d.voice.one(table.name), d.voice.many(table.name)
    thing = f"the {one} with the {most} {d.voice.noun(key)} among the {many} {clause}"
    return Draft(
        family="hop_top",
        tier=tier_of(path),
        sql=render([far]),
        asks=(f"the {label} of {thing}" if label else thing,),
        many=False,
        questions=(f"Among the {many} {clause}, which one has the {most} {d.voice.noun(key)}?",)
        if table.named
        else (),
        weaker=(render([]), render([far], not descending)),
        conditions=(condition,),
        path=path_name(path),
        subject=table.name,
    )
