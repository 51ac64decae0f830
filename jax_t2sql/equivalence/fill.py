"""Small random databases that keep the declared constraints."""

import random
from dataclasses import dataclass

from jax_t2sql.equivalence.catalog import Rows
from jax_t2sql.equivalence.mend import mend
from jax_t2sql.equivalence.plan import Cell, Link, Plan, Sheet
from jax_t2sql.equivalence.pools import numbered

_SMALL = 12  # up to so many rows in every table; above, in one alone
_LARGEST = 260
_MANY = 5  # from so many values on, a palette's are all different


@dataclass(frozen=True)
class Profile:
    """What the databases of one draw have in common.

    Attributes:
      low, high: bounds of a table's number of rows.
      large: the one table with `high` rows where that is many; the others have a few.
      hit: how often a palette takes a value that satisfies a comparison; near: that just does not.
      null: how often a palette has a NULL.
      colors: how many values a palette may have, one of these: few make duplicates, ties and joins.
      skewed: whether some values are taken far more often than others: then the largest group is
        one alone.
    """

    low: int
    high: int
    large: str | None
    hit: float
    near: float
    null: float
    colors: tuple[int, ...]
    skewed: bool

    def pick(self, values: list, rng: random.Random) -> object:
        """One of some values."""
        place = rng.random()
        return values[int((place * place if self.skewed else place) * len(values))]

    def rows(self, sheet: Sheet, rng: random.Random) -> int:
        """A number of rows for a table."""
        if self.large is not None:
            return (
                rng.randint(self.low, self.high) if sheet.name == self.large else rng.choice(_FEW)
            )
        return rng.randint(self.low, self.high)


_FEW = (1, 1, 1, 2)


def draw_profile(plan: Plan, rng: random.Random) -> Profile:
    """A profile at random; sizes that the queries ask about get their share."""
    large = None
    if plan.sizes and rng.random() < 0.25:
        size = rng.choice(plan.sizes)
        low, high = max(size - 1, 1), min(size + 2, _LARGEST)
        if (size > _SMALL or rng.random() < 0.5) and plan.sheets:
            large = rng.choice(plan.sheets).name
    else:
        low, high = rng.choice(((1, 1), (0, 2), (1, 3), (2, 4), (2, 5), (3, 8)))
    return Profile(
        low=min(low, high),
        high=high,
        large=large,
        hit=rng.choice((0.2, 0.6, 0.9, 1.0)),
        near=rng.choice((0.0, 0.2, 0.6)),
        null=rng.choice((0.0, 0.0, 0.0, 0.15, 0.4)),
        colors=rng.choice(((1, 1, 2), (1, 2, 2, 3), (1, 2, 3, 5), (1, 1, 1, max(high, 5)))),
        skewed=rng.random() < 0.4,
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
            _row(sheet, colors, linked, profile, rng) for _ in range(profile.rows(sheet, rng))
        ]
    return mend(rows, plan, rng)


def draw_row(sheet: Sheet, rows: Rows, rng: random.Random, profile: Profile) -> tuple:
    """One more row for a table of a database; not yet mended."""
    colors = [_palette(cell, rng, profile, {}) for cell in sheet.cells]
    linked = [(link, rows.get(link.other) or []) for link in sheet.links]
    return _row(sheet, colors, linked, profile, rng)


def draw_value(cell: Cell, rng: random.Random, profile: Profile) -> object:
    """One value for a column."""
    if profile.null and cell.nullable and rng.random() < profile.null:
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
    if not cell.read and cell.nullable:
        return [None]
    if cell.group is not None and cell.group in shared and rng.random() < 0.9:
        return shared[cell.group]
    count = rng.choice(profile.colors)
    if count >= _MANY:
        colors = _different(cell, count, rng)
    else:
        colors = [draw_value(cell, rng, profile) for _ in range(count)]
    if cell.group is not None:
        shared[cell.group] = colors
    return colors


def _different(cell: Cell, count: int, rng: random.Random) -> list[object]:
    """So many values, no two the same as far as there are."""
    values = list(dict.fromkeys((*cell.hits, *cell.near, *cell.base)))
    rng.shuffle(values)
    if not cell.limited:
        values += [numbered(cell.column, n) for n in range(1, count + 1 - len(values))]
    return values[:count] or [None]


def _row(
    sheet: Sheet,
    colors: list[list[object]],
    linked: list[tuple[Link, list[tuple]]],
    profile: Profile,
    rng: random.Random,
) -> tuple:
    row = [c[0] if len(c) == 1 else profile.pick(c, rng) for c in colors]
    fixed: dict[int, object] = {}
    for link, parents in linked:
        if fixed:  # foreign keys that share a column must agree on it
            shared = [pair for pair in link.pairs if pair[0] in fixed]
            parents = [p for p in parents if all(p[theirs] == fixed[o] for o, theirs in shared)]
        if parents and all(row[place] is not None for place in link.places):
            parent = profile.pick(parents, rng)
            for place, other in link.pairs:
                row[place] = parent[other]
                if len(linked) > 1:
                    fixed[place] = parent[other]
    return tuple(row)
