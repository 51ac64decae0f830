"""Families that group along join paths: one figure for each row at the far end."""

from __future__ import annotations

from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.families_figures import measured, measured_words, pick_function
from data_pipelines.onedb.families_paths import ends, several, tier_of
from data_pipelines.onedb.joins import Path, path_name, reverse
from data_pipelines.onedb.scan import Table
from data_pipelines.onedb.words import spelled


def _groups(d: Draw, path: Path) -> tuple[Table, Table, str]:
    """Both ends and the clause that ties a row to "that publisher"; LookupError if pointless."""
    table, end = ends(d, path, link=True)
    d.subject(end.name)
    back = reverse(path)
    # The far end is reached upwards or through a link, and several rows can share it.
    reached = path[-1].up
    if not reached or not several(back) or not end.named:
        raise LookupError("a group would have one row")
    return table, end, d.voice.relative(path, f"that {d.voice.one(end.name)}")


def _short(d: Draw, path: Path, table: Table, clause: str) -> str:
    """ "superheroes" where the far end is their own parent under its own name, else with clause."""
    many = d.voice.many(table.name)
    only = len(path) == 1 and d.voice.role(path[0].edge) == d.voice.one(path[0].target)
    return many if only and not d.voice.needs_role(path[0]) else f"{many} {clause}"


def _missing_groups(d: Draw, sql: str, end: Table) -> bool:
    """Whether some rows of the far end have no group, because they have nothing to count."""
    return len(d.live.run(sql).rows) < end.rows


def _how_many(noun: str, rows: str, clause: str, left_out: str) -> str:
    """For each gender, how many publishers have at least one superhero …?"""
    if clause.startswith("that ") and rows.endswith(clause) and " and that " not in rows:
        rows = rows.removesuffix(clause) + clause.removeprefix("that ")
        return f"For each {noun}, how many {rows}{left_out}?"
    return f"For each {noun}, how many {rows} are there{left_out}?"


@family(2, by_path=True)
def hop_group(d: Draw, path: Path) -> Draft:
    table, end, clause = _groups(d, path)
    source, counted = Source.of(path), d.counted(path)
    mine = d.conditions(table, 1) if d.rng.random() < 0.3 and table.of_kind("category") else []
    told = [c.sql(source.ref(0, c.column.name)) for c in mine]

    def render(kept) -> str:
        shown = f"{source.labels(-1, end)}, COUNT({counted})"
        group = f"GROUP BY {d.grouped(source, -1, end)}"
        return f"SELECT {shown} {source.sql}{where(*kept)} {group}"

    rows = _short(d, path, table, clause)
    if mine:
        rows = f"{d.voice.many(table.name)} {d.voice.whose(mine)} and {clause}"
    left_out = ""
    if _missing_groups(d, render(told), end):
        left_out = f", leaving out {d.voice.many(end.name)} with none"
    noun = d.voice.one(end.name)
    return Draft(
        family="hop_group",
        tier=tier_of(path),
        sql=render(told),
        asks=(f"each {noun} with the number of {rows}{left_out}",),
        questions=(_how_many(noun, rows, clause, left_out),),
        many=False,
        weaker=tuple(without_each(told, render)),
        conditions=tuple(mine),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_group_top(d: Draw, path: Path) -> Draft:
    table, end, clause = _groups(d, path)
    source, counted = Source.of(path), d.counted(path)
    limit = d.rng.choice((1, 1, 1, 3, 5))

    def render(down=True, count=limit) -> str:
        order = f"ORDER BY COUNT({counted}) {'DESC' if down else 'ASC'} LIMIT {count}"
        group = f"GROUP BY {d.grouped(source, -1, end)}"
        return f"SELECT {source.labels(-1, end)} {source.sql} {group} {order}"

    rows = _short(d, path, table, clause)
    one, many = d.voice.one(end.name), d.voice.many(end.name)
    plain = rows == d.voice.many(table.name)
    if limit == 1:
        thing = f"the {one} with the most {rows}" if plain else (
            f"the {one} for which the number of {rows} is highest"
        )  # fmt: skip
        questions = (f"Which {one} has the most {rows}?",) if plain else (
            f"For which {one} is the number of {rows} highest?",
        )  # fmt: skip
    else:
        thing = f"the {spelled(limit)} {many} with the most {rows}" if plain else (
            f"the {spelled(limit)} {many} for which the number of {rows} is highest"
        )  # fmt: skip
        thing += ", the highest number first"
        questions = ()
    label = d.voice.label_noun(end, many=limit > 1)
    return Draft(
        family="hop_group_top",
        tier=tier_of(path),
        sql=render(),
        asks=(f"the {label} of {thing}" if label else thing,),
        many=limit > 1,
        questions=questions,
        weaker=(render(False),),
        path=path_name(path),
        grading="set" if limit == 1 else "list",
        subject=table.name,
    )


@family(2, by_path=True)
def hop_having(d: Draw, path: Path) -> Draft:
    table, end, clause = _groups(d, path)
    source, counted = Source.of(path), d.counted(path)
    counts = f"SELECT COUNT({counted}) {source.sql} GROUP BY {d.grouped(source, -1, end)}"
    found = sorted({row[0] for row in d.live.run(counts).rows})
    if len(found) < 3:
        raise LookupError("too few different counts")
    least = d.choose(found[:-1])

    def render(bound=least) -> str:
        group = f"GROUP BY {d.grouped(source, -1, end)} HAVING COUNT({counted}) > {bound}"
        return f"SELECT {source.labels(-1, end)} {source.sql} {group}"

    rows = _short(d, path, table, clause)
    many = d.voice.many(end.name)
    if rows == d.voice.many(table.name):
        tail = f"with more than {d.voice.counted(least, table.name)}"
        questions = (f"Which {many} have {tail.removeprefix('with ')}?",)
    else:
        tail = f"for which there are more than {least} {rows}"
        if least == 1:
            tail = f"for which there is more than one of the {rows}"
        questions = (f"For which {many} are there {tail.partition(' are ')[2]}?",)
        if least == 1:
            questions = ()
    label = d.voice.label_noun(end, many=True)
    return Draft(
        family="hop_having",
        tier=tier_of(path),
        sql=render(),
        asks=(f"the {label} of the {many} {tail}" if label else f"the {many} {tail}",),
        questions=questions if end.named else (),
        weaker=(render(0), render(least + 1 if least + 1 in found[:-1] else 0)),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_group_figure(d: Draw, path: Path) -> Draft:
    """An average for each row at the far end."""
    table, end, clause = _groups(d, path)
    if several(path):
        raise LookupError("a row would count in a group more than once")
    number = d.number(table)
    function, word = pick_function(d, number)
    guard = measured(number, function)
    source = Source.of(path)
    told = [c.sql(source.ref(0, c.column.name)) for c in guard]
    if number.nulls:
        told.append(f"{source.ref(0, number.name)} IS NOT NULL")

    def render(used=function) -> str:
        shown = f"{source.labels(-1, end)}, {used}({source.ref(0, number.name)})"
        group = f"GROUP BY {d.grouped(source, -1, end)}"
        return f"SELECT {shown} {source.sql}{where(*told)} {group}"

    rows = _short(d, path, table, clause)
    noun = d.voice.one(end.name)
    left_out = ""
    if _missing_groups(d, render(), end):
        left_out = f", leaving out {d.voice.many(end.name)} without such a figure"
    figure = f"{word} {d.voice.measure(number)} of the {rows}"
    tail = measured_words(d, guard) + left_out
    return Draft(
        family="hop_group_figure",
        tier=tier_of(path),
        sql=render(),
        asks=(f"each {noun} with the {figure}{tail}",),
        questions=(f"For each {noun}, what is the {figure}{tail}?",),
        many=False,
        weaker=(render("MAX" if function != "MAX" else "AVG"),),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_group_top_figure(d: Draw, path: Path) -> Draft:
    """The row at the far end with the highest average or total."""
    table, end, clause = _groups(d, path)
    if several(path):
        raise LookupError("a row would count in a group more than once")
    number = d.number(table)
    function, word = pick_function(d, number, extremes=False)
    guard = measured(number, function)
    source = Source.of(path)
    told = [c.sql(source.ref(0, c.column.name)) for c in guard]
    descending = d.rng.random() < 0.7

    def render(down=descending, used=function) -> str:
        figure = f"{used}({source.ref(0, number.name)})"
        some = [] if down or not number.nulls else [f"{source.ref(0, number.name)} IS NOT NULL"]
        order = f"ORDER BY {figure} {'DESC' if down else 'ASC'} LIMIT 1"
        group = f"GROUP BY {d.grouped(source, -1, end)}"
        return f"SELECT {source.labels(-1, end)} {source.sql}{where(*told, *some)} {group} {order}"

    rows = _short(d, path, table, clause)
    most = "highest" if descending else "lowest"
    noun = d.voice.one(end.name)
    # "the publisher whose superheroes have the highest average height"
    tail = measured_words(d, guard)
    thing = f"the {noun} for which the {word} {d.voice.noun(number)} of the {rows} is {most}{tail}"
    label = d.voice.label_noun(end, many=False)
    return Draft(
        family="hop_group_top_figure",
        tier=3,
        sql=render(),
        asks=(f"the {label} of {thing}" if label else thing,),
        many=False,
        questions=(
            f"For which {noun} is the {word} {d.voice.noun(number)} of the {rows} {most}{tail}?",
        ),
        weaker=(render(not descending),),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_fact(d: Draw, path: Path) -> Draft:
    """A fact of the parent (or grandparent) of a row that is known by its name."""
    table, end = ends(d, path)
    if not all(hop.up for hop in path):
        raise LookupError("several rows could answer")
    named, told = d.named_row(table)
    source = Source.of(path)
    condition = named.sql(source.ref(0, named.column.name))
    chain = "'s ".join(d.voice.role(hop.edge) for hop in path)
    row = f"{d.voice.one(table.name)} {told}"
    facts = d.live.usable(end, "category", "number", "year", "date")
    if end.named and (not facts or d.rng.random() < 0.6):
        shown, ask = source.labels(-1, end), f"the {chain} of the {row}"
    else:
        column = d.choose(facts)
        shown = source.ref(-1, column.name)
        ask = f"the {d.voice.measure(column)} of the {chain} of the {row}"
    return Draft(
        family="hop_fact",
        tier=tier_of(path),
        sql=f"SELECT {shown} {source.sql}{where(condition)}",
        asks=(ask,),
        many=False,
        weaker=(f"SELECT {shown} {source.sql}",),
        conditions=(named,),
        path=path_name(path),
        subject=table.name,
    )


@family(2, by_path=True)
def hop_pairs(d: Draw, path: Path) -> Draft:
    """Names of rows, each beside its parent's."""
    table, end = ends(d, path)
    if not all(hop.up for hop in path) or not end.named or not table.named:
        raise LookupError("no pairs of names")
    mine = d.conditions(table, 1)
    source = Source.of(path)
    told = [c.sql(source.ref(0, c.column.name)) for c in mine]

    def render(kept) -> str:
        shown = f"{source.labels(0, table)}, {source.labels(-1, end)}"
        return f"SELECT {shown} {source.sql}{where(*kept)}"

    if any(hop.edge.matched < 1 or d.live.scan.column(hop.edge.child, c).nulls
           for hop in path for c in hop.edge.child_columns):  # fmt: skip
        raise LookupError("some rows have no parent, and an inner join would drop them")
    names = d.voice.names_of(table, clause=d.voice.whose(mine))
    chain = "'s ".join(d.voice.role(hop.edge) for hop in path)
    return Draft(
        family="hop_pairs",
        tier=tier_of(path),
        sql=render(told),
        asks=(f"{names}, each with its {chain}",),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(mine),
        path=path_name(path),
        subject=table.name,
    )
