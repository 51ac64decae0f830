"""Tier four: set operations, two counts side by side, dates, and growth between years."""

from __future__ import annotations

from dataclasses import dataclass

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where
from data_pipelines.onedb.families_paths import ends, far_clause, far_condition
from data_pipelines.onedb.joins import Hop, Path, path_name
from data_pipelines.onedb.scan import Table


def _two_far(d: Draw, path: Path) -> tuple[Condition, Condition]:
    """Two conditions on one column at the far end that no single row there meets."""
    first = far_condition(d, path)[0]
    if first.op != "equal":
        raise LookupError("no two values to tell apart")
    others = [v for v in d.live.values(first.column) if v != first.values[0]]
    return first, Condition(first.column, "equal", (d.choose(others),), first.pick)


def _set_operation(d: Draw, name: str, path: Path, word: str) -> Draft:
    table, _ = ends(d, path)
    if not any(hop.multiplies for hop in path):
        raise LookupError("one partner cannot meet both")
    key = d.identity(table.name)
    first, second = _two_far(d, path)
    inner, outer = Source.of(path), Source((table.name,))

    def ids(condition: Condition) -> str:
        told = condition.sql(inner.ref(-1, condition.column.name))
        return f"SELECT {inner.ref(0, key)} {inner.sql}{where(told)}"

    def render(inside: str) -> str:
        shown = f"SELECT {outer.labels(0, table)} {outer.sql}"
        return f"{shown} WHERE {outer.ref(0, key)} IN ({inside})"

    one, two = far_clause(d, path, first), far_clause(d, path, second)
    if word == "EXCEPT":
        verb = two.removeprefix("that ")
        if not path[0].up and two.startswith("that "):
            two = far_clause(d, path, second, negated=True)
            clause = f"{one} but {two}"
        else:
            raise LookupError(f"no words for the opposite of {verb!r}")
    else:
        both = d.voice.pick("and also", "and also") if word == "INTERSECT" else "or"
        clause = f"{one} {both} {two.removeprefix('that ')}"
        if not (one.startswith("that ") and two.startswith("that ")):
            raise LookupError("only relations that allow several partners")
    combined = f"{ids(first)} {word} {ids(second)}"
    near = [render(ids(first)), render(ids(second))]
    return Draft(
        family=name,
        tier=4,
        sql=render(combined),
        asks=(d.voice.names_of(table, clause=clause),),
        weaker=tuple(near),
        conditions=(first, second),
        path=path_name(path),
        subject=table.name,
    )


@family(4, by_path=True)
def hop_both_of(d: Draw, path: Path) -> Draft:
    return _set_operation(d, "hop_both_of", path, "INTERSECT")


@family(4, by_path=True)
def hop_one_not_other(d: Draw, path: Path) -> Draft:
    return _set_operation(d, "hop_one_not_other", path, "EXCEPT")


@family(4, by_path=True)
def hop_either_of(d: Draw, path: Path) -> Draft:
    return _set_operation(d, "hop_either_of", path, "UNION")


@dataclass(frozen=True)
class _Pair:
    """Two values of one property: of a column of the table, or of its parent's name."""

    source: Source
    conditions: tuple[Condition, Condition]
    told: tuple[str, str]
    clauses: tuple[str, str]
    column: Column
    path: Path = ()

    def swapped(self) -> _Pair:
        turned = (self.conditions[::-1], self.told[::-1], self.clauses[::-1])
        return _Pair(self.source, *turned, self.column, self.path)


def _two_values(d: Draw, table: Table) -> _Pair:
    options: list[tuple[Path, Column]] = [
        ((), c) for c in d.live.usable(table, "category", "flag", "year")
    ]
    for edge in d.live.edges:
        parent = d.live.table(edge.parent)
        if edge.child == table.name and parent.named and len(parent.label) == 1:
            options.append(((Hop(edge, True),), parent.column(parent.label[0])))
    path, column = d.choose(options)
    source = Source.of(path) if path else Source((table.name,))
    ref = source.ref(-1, column.name)
    counts = d.live.run(
        f"SELECT {ref}, COUNT(*) {source.sql} GROUP BY {ref} ORDER BY COUNT(*) DESC, {ref} LIMIT 30"
    ).rows
    values = [value for value, _ in counts if value in d.live.values(column)]
    if len(values) < 2:
        raise LookupError("too few values")
    chosen = d.rng.sample(values, 2)
    # The commoner one first.
    chosen.sort(key=lambda value: [v for v, _ in counts].index(value))
    conditions = tuple(Condition(column, "equal", (value,)) for value in chosen)
    told = tuple(c.sql(ref) for c in conditions)
    clauses = tuple(far_clause(d, path, c) if path else d.voice.whose([c]) for c in conditions)
    return _Pair(source, conditions, told, clauses, column, path)


@family(4)
def count_difference(d: Draw) -> Draft:
    """How many more rows have one value than another."""
    table = d.table()
    pair = _two_values(d, table)
    source, (one, two), (first, second) = pair.source, pair.told, pair.clauses

    def render(a: str, b: str) -> str:
        return (
            f"SELECT SUM(CASE WHEN {a} THEN 1 ELSE 0 END) - SUM(CASE WHEN {b} THEN 1 ELSE 0 END)"
            f" {source.sql}"
        )

    many = d.voice.many(table.name)
    ask = f"the number of {many} {first} minus the number of {many} {second}"
    return Draft(
        family="count_difference",
        tier=4,
        sql=render(one, two),
        asks=(ask,),
        many=False,
        questions=(f"How many more {many} are there {first} than {many} {second}?",),
        weaker=(render(two, one), f"SELECT COUNT(*) {source.sql}{where(one)}"),
        conditions=pair.conditions,
        path=path_name(pair.path) if pair.path else "",
        subject=table.name,
    )


@family(4)
def count_ratio(d: Draw) -> Draft:
    """The number of rows with one value divided by that with another."""
    table = d.table()
    pair = _two_values(d, table)
    pair = pair if d.rng.random() < 0.5 else pair.swapped()
    source, (one, two), (first, second) = pair.source, pair.told, pair.clauses

    def render(a: str, b: str) -> str:
        return (
            f"SELECT CAST(SUM(CASE WHEN {a} THEN 1 ELSE 0 END) AS REAL)"
            f" / SUM(CASE WHEN {b} THEN 1 ELSE 0 END) {source.sql}"
        )

    many = d.voice.many(table.name)
    return Draft(
        family="count_ratio",
        tier=4,
        sql=render(one, two),
        asks=(f"the ratio of the number of {many} {first} to the number of {many} {second}",),
        many=False,
        questions=(f"How many {many} {first} are there for every one {second}?",),
        weaker=(render(two, one),),
        conditions=pair.conditions,
        path=path_name(pair.path) if pair.path else "",
        subject=table.name,
    )


@family(4)
def average_difference(d: Draw) -> Draft:
    """How much averages of two groups differ."""
    table = d.table()
    pair = _two_values(d, table)
    number = d.number(table, but=[pair.column])
    if number.placeholder_low:
        raise LookupError("placeholders would count in the average")
    source, (one, two), (first, second) = pair.source, pair.told, pair.clauses
    ref = source.ref(0, number.name)

    def render(a: str, b: str) -> str:
        return (
            f"SELECT AVG(CASE WHEN {a} THEN {ref} END) - AVG(CASE WHEN {b} THEN {ref} END)"
            f" {source.sql}"
        )

    many, noun = d.voice.many(table.name), d.voice.measure(number)
    ask = f"the average {noun} of {many} {first} minus the average {noun} of {many} {second}"
    return Draft(
        family="average_difference",
        tier=4,
        sql=render(one, two),
        asks=(ask,),
        many=False,
        weaker=(render(two, one),),
        conditions=pair.conditions,
        path=path_name(pair.path) if pair.path else "",
        subject=table.name,
    )


@family(4)
def two_counts(d: Draw) -> Draft:
    """Two counts in two columns: conditional aggregation."""
    table = d.table()
    pair = _two_values(d, table)
    source, (first, second) = pair.source, pair.clauses
    shown = ", ".join(f"SUM(CASE WHEN {c} THEN 1 ELSE 0 END)" for c in pair.told)
    many = d.voice.many(table.name)
    ask = f"the number of {many} {first} and, in a second column, the number of {many} {second}"
    return Draft(
        family="two_counts",
        tier=4,
        sql=f"SELECT {shown} {source.sql}",
        asks=(ask,),
        many=False,
        conditions=pair.conditions,
        path=path_name(pair.path) if pair.path else "",
        subject=table.name,
    )
