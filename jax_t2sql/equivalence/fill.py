"""Small random databases that keep the declared constraints."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from jax_t2sql.equivalence.catalog import Rows
from jax_t2sql.equivalence.mend import mend
from jax_t2sql.equivalence.plan import Cell, Link, Plan, Sheet

_LARGEST = 64


@dataclass(frozen=True)
class Profile:
    """What the databases of one draw have in common.

    Attributes:
      sizes: picks a table's number of rows.
      hit: how often a palette takes a value that satisfies a comparison; near: that just does not.
      null: how often a palette has a NULL.
      colors: how many values a palette may have, one of these: few make duplicates, ties and joins.
    """

    sizes: Callable[[random.Random], int]
    hit: float
    near: float
    null: float
    colors: tuple[int, ...]


def draw_profile(plan: Plan, rng: random.Random) -> Profile:
    """A profile at random; sizes that the queries ask about get their share."""
    style = rng.random()
    if plan.sizes and style < 0.25:
        size = rng.choice(plan.sizes)
        low, high = max(size - 1, 1), min(size + 2, _LARGEST)
    else:
        low, high = rng.choice(((1, 1), (0, 2), (1, 3), (2, 4), (2, 5), (3, 8)))
    return Profile(
        sizes=lambda r: r.randint(low, high) if low < high else low,
        hit=rng.choice((0.2, 0.6, 0.9, 1.0)),
        near=rng.choice((0.0, 0.2, 0.6)),
        null=rng.choice((0.0, 0.0, 0.0, 0.15, 0.4)),
        colors=rng.choice(((1, 1, 2), (1, 2, 2, 3), (1, 2, 3, 5), (1, 1, 1, max(high, 5)))),
    )


def draw(plan: Plan, rng: random.Random, profile: Profile | None = None) -> Rows:
    """A database at random."""
    profile = profile or draw_profile(plan, rng)
    rows: Rows = {}
    palettes: dict[int, list[object]] = {}
    for sheet in plan.sheets:
        colors = [_palette(cell, rng, profile, palettes) for cell in sheet.cells]
        linked = [(link, rows.get(link.other) or []) for link in sheet.links]
        rows[sheet.name] = [
            _row(sheet, colors, linked, rng, number) for number in range(profile.sizes(rng))
        ]
    return mend(rows, plan, rng)


def draw_row(sheet: Sheet, rows: Rows, rng: random.Random, profile: Profile) -> tuple:
    """One more row for a table of a database; not yet mended."""
    colors = [_palette(cell, rng, profile, {}) for cell in sheet.cells]
    linked = [(link, rows.get(link.other) or []) for link in sheet.links]
    return _row(sheet, colors, linked, rng, len(rows.get(sheet.name, ())))


def draw_value(cell: Cell, rng: random.Random, profile: Profile) -> object:
    """One value for a column."""
    if profile.null and not cell.column.not_null and rng.random() < profile.null:
        return None
    if cell.hits and rng.random() < profile.hit:
        return rng.choice(cell.hits)
    if cell.near and rng.random() < profile.near:
        return rng.choice(cell.near)
    return rng.choice(cell.base) if cell.base else None


def _palette(
    cell: Cell, rng: random.Random, profile: Profile, shared: dict[int, list[object]]
) -> list[object]:
    """The values that a column takes in one database."""
    if not cell.read and not cell.column.not_null:
        return [None]
    if cell.group is not None and cell.group in shared and rng.random() < 0.9:
        return shared[cell.group]
    colors = [draw_value(cell, rng, profile) for _ in range(rng.choice(profile.colors))]
    if cell.group is not None:
        shared[cell.group] = colors
    return colors


def _row(
    sheet: Sheet,
    colors: list[list[object]],
    linked: list[tuple[Link, list[tuple]]],
    rng: random.Random,
    number: int,
) -> tuple:
    row = [c[0] if len(c) == 1 else c[int(rng.random() * len(c))] for c in colors]
    for link, parents in linked:
        if parents and all(row[place] is not None for place in link.places):
            parent = parents[int(rng.random() * len(parents))]
            for place, other in zip(link.places, link.other_places, strict=True):
                row[place] = parent[other]
    return tuple(row)
