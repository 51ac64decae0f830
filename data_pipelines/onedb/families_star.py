"""Tier three: conditions on two branches of the join graph at once."""

from __future__ import annotations

from dataclasses import replace

from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.families_paths import far_clause, far_condition, several
from data_pipelines.onedb.families_shares import percentage
from data_pipelines.onedb.joins import Hop, Path, path_name
from data_pipelines.onedb.scan import Table


def branches(d: Draw) -> tuple[Table, Path, Path]:
    """A table and two ways up from it, straight or through a link table."""
    table = d.table(lambda t: bool(t.label))
    ways: list[Path] = []
    for edge in d.live.edges:
        if edge.child == table.name:
            ways.append((Hop(edge, True),))
        if edge.parent == table.name and d.live.is_link(edge.child):
            others = [e for e in d.live.edges if e.child == edge.child and e is not edge]
            ways += [(Hop(edge, False), Hop(other, True)) for other in others]
    if len(ways) < 2:
        raise LookupError(f"{table.name} has fewer than two ways up")
    first, second = d.rng.sample(ways, 2)
    return table, first, second


def two_ends(d: Draw) -> tuple[Table, Path, Path, list[Condition], list[str], str, Source]:
    """Conditions at the ends of two branches, their SQL and the clause that says both."""
    table, first, second = branches(d)
    source = Source.of(first, second)
    places = (len(first), len(first) + len(second))
    conditions = [far_condition(d, path)[0] for path in (first, second)]
    conditions = together(d, source, places, conditions)
    pairs = list(zip((first, second), places, conditions, strict=True))
    told = [c.sql(source.ref(place, c.column.name)) for _, place, c in pairs]
    clauses = [far_clause(d, path, c) for path, _, c in pairs]
    if clauses[0].startswith("that ") and clauses[1].startswith("that "):
        # Two "at least one …" in a row: say which row both speak of.
        clauses[1] = "and that also " + clauses[1].removeprefix("that ")
        return table, first, second, conditions, told, " ".join(clauses), source
    clauses.sort(key=lambda text: not text.startswith("whose"))
    return table, first, second, conditions, told, " and ".join(clauses), source


def together(
    d: Draw, source: Source, places: tuple[int, ...], conditions: list[Condition]
) -> list[Condition]:
    """The same conditions, those for equality with values that some row really has together."""
    if any(c.op != "equal" for c in conditions):
        return conditions
    refs = [source.ref(p, c.column.name) for p, c in zip(places, conditions, strict=True)]
    filled = where(*(f"{ref} IS NOT NULL" for ref in refs))
    found = d.live.run(
        f"SELECT DISTINCT {', '.join(refs)} {source.sql}{filled} ORDER BY {', '.join(refs)}"
    ).rows
    row = d.choose(found)
    if any(v not in d.live.values(c.column) for v, c in zip(row, conditions, strict=True)):
        raise LookupError("a value that no question can name")
    return [replace(c, values=(v,)) for v, c in zip(row, conditions, strict=True)]


@family(3)
def star_list(d: Draw) -> Draft:
    table, first, second, conditions, told, clause, source = two_ends(d)
    distinct = "DISTINCT " if several((*first, *second)) else ""

    def render(kept) -> str:
        return f"SELECT {distinct}{source.labels(0, table)} {source.sql}{where(*kept)}"

    return Draft(
        family="star_list",
        tier=3,
        sql=render(told),
        asks=(d.voice.names_of(table, clause=clause),),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        path=path_name(first),
        subject=table.name,
    )


@family(3)
def star_count(d: Draw) -> Draft:
    table, first, second, conditions, told, clause, source = two_ends(d)
    counted = d.counted((*first, *second)) if several((*first, *second)) else "*"

    def render(kept) -> str:
        return f"SELECT COUNT({counted}) {source.sql}{where(*kept)}"

    many = d.voice.many(table.name)
    return Draft(
        family="star_count",
        tier=3,
        sql=render(told),
        asks=(f"the number of {many} {clause}",),
        many=False,
        questions=(f"How many {many} are there {clause}?",),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(conditions),
        path=path_name(first),
        subject=table.name,
    )


@family(3)
def star_percent(d: Draw) -> Draft:
    """Among rows with one parent, the share that has another."""
    table, first, second = branches(d)
    source = Source.of(first, second)
    pair = [far_condition(d, path)[0] for path in (first, second)]
    among, condition = together(d, source, (len(first), len(first) + len(second)), pair)
    clause, own = far_clause(d, first, among), far_clause(d, second, condition)
    if any(not hop.up for hop in second):
        raise LookupError("rows without a link would be in doubt")
    if any(d.live.scan.column(h.edge.child, c).nulls for h in second for c in h.edge.child_columns):
        raise LookupError("rows without a parent would be in doubt")
    inner = among.sql(source.ref(len(first), among.column.name))
    told = condition.sql(source.ref(-1, condition.column.name))
    key = source.ref(0, d.identity(table.name)) if several(first) else ""
    rows = f"the {d.voice.many(table.name)} {clause}"
    return Draft(
        family="star_percent",
        tier=3,
        sql=f"SELECT {percentage(told, of=key)} {source.sql}{where(inner)}",
        asks=(f"the percentage, among {rows}, of those {own}",),
        questions=(f"Among {rows}, what percentage are ones {own}?",),
        many=False,
        weaker=(f"SELECT {percentage(told, of=key)} {source.sql}",),
        conditions=(among, condition),
        path=path_name(first),
        subject=table.name,
    )


@family(3)
def star_group(d: Draw) -> Draft:
    """Counts by one parent among rows that have another parent's property."""
    table, first, second = branches(d)
    if any(not hop.up for hop in first):
        raise LookupError("groups along a straight way only")
    end = d.subject(first[-1].target)
    if not end.named:
        raise LookupError("groups without a name")
    condition, _, clause = far_condition(d, second)
    source = Source.of(first, second)
    told = condition.sql(source.ref(-1, condition.column.name))
    counted = d.counted((*first, *second)) if several(second) else "*"

    def render(kept) -> str:
        shown = f"{source.labels(1, end)}, COUNT({counted})"
        return f"SELECT {shown} {source.sql}{where(*kept)} GROUP BY {d.grouped(source, 1, end)}"

    noun = d.voice.role(first[0].edge)
    rows = f"{d.voice.many(table.name)} {clause}"
    left_out = ""
    if len(d.live.run(render([told])).rows) < end.rows:
        left_out = f", leaving out any {noun} with none"
    return Draft(
        family="star_group",
        tier=3,
        sql=render([told]),
        asks=(f"the number of {rows} for each {noun} (give the {noun} and the number{left_out})",),
        questions=(f"For each {noun}, how many {rows} are there{left_out}?",),
        many=False,
        weaker=(render([]),),
        conditions=(condition,),
        path=path_name(first),
        subject=table.name,
    )
