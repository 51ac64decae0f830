"""Tier four: rows in the middle of a join path, with subqueries on both sides."""

from __future__ import annotations

from data_pipelines.onedb.conditions import Condition
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where, without_each
from data_pipelines.onedb.families_paths import far_clause
from data_pipelines.onedb.joins import Path, path_name, reverse


def _inside(d: Draw, path: Path) -> tuple[str, str, Condition | None]:
    """A condition on the far end put as `… IN (SELECT …)`, the same without it, its words."""
    table = d.live.table(path[-1].target)
    first = path[0]
    condition = None
    if not d.live.is_link(table.name):
        condition = d.end_condition(table)
        clause = far_clause(d, path, condition)
    else:
        clause = d.voice.relative(path, None)
    if not first.up:
        key, inner, rest = d.identity(first.source), d.identity(first.source), path
    elif len(first.edge.child_columns) > 1:
        raise LookupError("a key of several columns")
    else:
        key, inner, rest = first.edge.child_columns[0], first.edge.parent_columns[0], path[1:]
    source = Source.of(rest) if rest else Source((first.target,))
    told = condition.sql(source.ref(-1, condition.column.name)) if condition else ""
    outer = Source((first.source,)).ref(0, key)
    return (
        f"{outer} IN (SELECT {source.ref(0, inner)} {source.sql}{where(told)})",
        clause,
        condition,
    )


@family(3, by_path=True)
def hop_middle(d: Draw, path: Path) -> Draft:
    """Rows in the middle of a path, counted or averaged under conditions on both sides."""
    if len(path) < 2:
        raise LookupError("no middle")
    cut = d.rng.randrange(1, len(path))
    table = d.subject(path[cut].source, link=True)
    sides = [_inside(d, side) for side in (reverse(path[:cut]), path[cut:])]
    told = [sql for sql, _, _ in sides]
    clauses = sorted((clause for _, clause, _ in sides), key=lambda c: not c.startswith("whose"))
    if all(clause.startswith("that ") for clause in clauses):
        clauses[1] = f"that also {clauses[1].removeprefix('that ')}"
    numbers = [
        c for c in d.live.usable(table, "number") if c.distinct > 3 and not c.placeholder_low
    ]
    number = d.choose(numbers) if numbers and d.rng.random() < 0.5 else None
    source = Source((table.name,))
    shown = f"AVG({source.ref(0, number.name)})" if number else "COUNT(*)"

    def render(kept) -> str:
        return f"SELECT {shown} {source.sql}{where(*kept)}"

    rows = f"{d.voice.many(table.name)} {' and '.join(clauses)}"
    ask = f"the average {d.voice.measure(number)} of the {rows}" if number else (
        f"the number of {rows}"
    )  # fmt: skip
    return Draft(
        family="hop_middle",
        tier=4,
        sql=render(told),
        asks=(ask,),
        many=False,
        questions=() if number else (f"How many {rows} are there?",),
        weaker=tuple(without_each(told, render)),
        conditions=tuple(c for _, _, c in sides if c is not None),
        path=path_name(path),
        subject=table.name,
    )
