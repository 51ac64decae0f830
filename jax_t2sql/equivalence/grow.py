"""Databases grown from the queries: a row for every table in a FROM, joined as the query joins.

For queries that join, compare and do no more this is the canonical database of Chandra and Merlin
("Optimal implementation of conjunctive queries in relational data bases", 1977), on which such a
query gives a row for sure, and another one only if it contains it. Here it is a beginning: copies
share values or not, and now and then one comparison is broken, which tells the queries apart where
one of them does not make it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from jax_t2sql.equivalence.atoms import Outline, Ref
from jax_t2sql.equivalence.catalog import Rows
from jax_t2sql.equivalence.fill import Profile, draw_profile, draw_value
from jax_t2sql.equivalence.mend import mend
from jax_t2sql.equivalence.plan import Cell, Plan, Sheet
from jax_t2sql.equivalence.pools import numbered
from jax_t2sql.equivalence.storing import convert
from jax_t2sql.sql.schema import fold


@dataclass(frozen=True)
class Pattern:
    """The rows that one query asks for.

    Attributes:
      sheets: the table of each row, None where it is not filled.
      classes: columns that must be equal, by the number of their class; the rest stand alone.
      size: of how many copies the query speaks, 0 if of none.
    """

    sheets: tuple[Sheet | None, ...]
    classes: dict[Ref, int]
    size: int


def pattern(found: Outline, plan: Plan) -> Pattern:
    """The rows that a query asks for, subqueries included."""
    by_name = {fold(sheet.name): sheet for sheet in plan.sheets}
    leader: dict[Ref, Ref] = {}

    def lead(ref: Ref) -> Ref:
        while leader.setdefault(ref, ref) != ref:
            ref = leader[ref]
        return ref

    for a, b in found.equal:
        leader[lead(a)] = lead(b)
    numbers: dict[Ref, int] = {}
    classes = {ref: numbers.setdefault(lead(ref), len(numbers)) for ref in list(leader)}
    size = max((n for n in found.sizes if n <= 12), default=0)
    return Pattern(tuple(by_name.get(table) for table in found.tables), classes, size)


def grow(patterns: Sequence[Pattern], plan: Plan, rng: random.Random) -> Rows:
    """A database at random out of one or more patterns."""
    profile = draw_profile(plan, rng)
    rows: Rows = {sheet.name: [] for sheet in plan.sheets}
    for chosen in patterns if rng.random() < 0.3 else [rng.choice(patterns)]:
        copies = rng.choice((1, 1, 2, 2, 3, 4, chosen.size, chosen.size + 1))
        sharing = rng.choice((0.0, 0.5, 0.8, 1.0))
        breaking = rng.choice((0.0, 0.0, 0.05, 0.15))
        values: dict[tuple, object] = {}
        for _ in range(max(copies, 1)):
            # What one copy shares with those before: the values of some of its classes.
            values = {key: v for key, v in values.items() if rng.random() < sharing}
            for number, sheet in enumerate(chosen.sheets):
                if sheet is not None and (copies == 1 or rng.random() < 0.95):
                    row = _row(chosen, number, sheet, values, breaking, profile, rng)
                    rows[sheet.name].append(row)
    return mend(rows, plan, rng, grow=True)


def _row(
    chosen: Pattern,
    number: int,
    sheet: Sheet,
    values: dict[tuple, object],
    breaking: float,
    profile: Profile,
    rng: random.Random,
) -> tuple:
    row = []
    for cell in sheet.cells:
        if not cell.read and cell.nullable:
            row.append(None)
            continue
        ref = (number, fold(cell.column.name))
        key = (chosen.classes.get(ref, ref),)
        if breaking and rng.random() < breaking:
            row.append(_other(cell, profile, rng))
            continue
        if key not in values:
            values[key] = _satisfying(cell, rng)
        row.append(convert(values[key], cell.column.affinity))
    return tuple(row)


def _satisfying(cell: Cell, rng: random.Random) -> object:
    """A value that fits the comparisons of a column, and of those that must be equal to it."""
    if cell.hits:
        return rng.choice(cell.hits)
    if cell.limited or rng.random() < 0.5:
        return rng.choice(cell.base) if cell.base else None
    return numbered(cell.column, rng.randrange(1, 7))


def _other(cell: Cell, profile: Profile, rng: random.Random) -> object:
    if cell.nullable and rng.random() < 0.3:
        return None
    if cell.near and rng.random() < 0.5:
        return rng.choice(cell.near)
    return draw_value(cell, rng, profile)
