"""Makes any rows satisfy the declared constraints, changing as little as it can.

CHECKs, and what only SQLite can judge, are left to SQLite: rows that it refuses are dropped there.
"""

import random

from jax_t2sql.equivalence.catalog import Rows
from jax_t2sql.equivalence.plan import Cell, Link, Plan, Sheet
from jax_t2sql.equivalence.pools import numbered
from jax_t2sql.equivalence.storing import convert

_ROUNDS = 4  # foreign keys in a circle settle in a few


def mend(rows: Rows, plan: Plan, rng: random.Random, *, grow: bool = False) -> Rows:
    """A database with these rows that keeps NOT NULL, keys and foreign keys.

    Args:
      rows: values as columns store them.
      grow: add the parents that rows lack, instead of pointing the rows elsewhere.
    """
    if grow:
        rows = _with_parents(rows, plan)
    rows = {sheet.name: _valid(rows.get(sheet.name, []), sheet, rng) for sheet in plan.sheets}
    for _ in range(_ROUNDS):
        changed = False
        for sheet in plan.sheets:
            for link in sheet.links:
                changed |= _attach(rows, sheet, link, plan, rng)
        if not changed:
            return rows
    return _without_orphans(rows, plan)


def without_faults(rows: Rows, plan: Plan) -> Rows:
    """The rows that keep the constraints as they are; no value is changed."""
    kept = {}
    for sheet in plan.sheets:
        kept[sheet.name] = _unchanged(rows.get(sheet.name, []), sheet)
    return _without_orphans(kept, plan)


def _unchanged(rows: list[tuple], sheet: Sheet) -> list[tuple]:
    required = [cell.place for cell in sheet.cells if not cell.nullable]
    seen: list[set[tuple]] = [set() for _ in sheet.keys]
    kept = []
    for row in rows:
        found = [_key_of(row, places, sheet) for places in sheet.keys]
        if any(row[place] is None for place in required) or any(
            key in taken for key, taken in zip(found, seen, strict=True) if key is not None
        ):
            continue
        for key, taken in zip(found, seen, strict=True):
            taken.add(key)
        kept.append(row)
    return kept


def _valid(rows: list[tuple], sheet: Sheet, rng: random.Random) -> list[tuple]:
    """The rows that keep NOT NULL and the keys; single keys that collide get another value."""
    required = [cell for cell in sheet.cells if not cell.nullable]
    if required and any(row[cell.place] is None for row in rows for cell in required):
        rows = [_filled(row, required) for row in rows]
    if not sheet.keys:
        return rows
    seen: list[set[tuple]] = [set() for _ in sheet.keys]
    kept = []
    for row in rows:
        for places, taken in zip(sheet.keys, seen, strict=True):
            key = _key_of(row, places, sheet)
            if key is not None and key in taken:
                row = _with_other_key(row, places, sheet, taken, rng)
                if row is None:
                    break
        if row is None:
            continue
        found = [_key_of(row, places, sheet) for places in sheet.keys]
        if any(key in taken for key, taken in zip(found, seen, strict=True) if key is not None):
            continue
        for key, taken in zip(found, seen, strict=True):
            taken.add(key)
        kept.append(row)
    return kept


def _filled(row: tuple, required: list[Cell]) -> tuple:
    changed = list(row)
    for cell in required:
        if changed[cell.place] is None:
            changed[cell.place] = _anything(cell)
    return tuple(changed)


def _anything(cell: Cell) -> object:
    for values in (cell.base, cell.hits, cell.near):
        if values:
            return values[0]
    return numbered(cell.column, 1)


def _key_of(row: tuple, places: tuple[int, ...], sheet: Sheet) -> tuple | None:
    """What must be unique; None where a NULL frees the row."""
    if len(places) == 1:
        value = row[places[0]]
        if value is None:
            return None
        return (_folded(value, sheet.cells[places[0]]),)
    key = tuple(_folded(row[place], sheet.cells[place]) for place in places)
    return None if None in key else key


def _folded(value: object, cell: Cell) -> object:
    if isinstance(value, str):
        if cell.column.collation == "NOCASE":
            return value.lower()
        if cell.column.collation == "RTRIM":
            return value.rstrip(" ")
    return value


def _with_other_key(
    row: tuple, places: tuple[int, ...], sheet: Sheet, taken: set[tuple], rng: random.Random
) -> tuple | None:
    """The row with a key that is free; None where the key's values come from elsewhere."""
    linked = {place for link in sheet.links for place in link.places}
    free = [place for place in places if place not in linked]
    if not free:
        return None
    cell = sheet.cells[rng.choice(free)]
    values = [*cell.hits, *cell.near, *cell.base]
    rng.shuffle(values)
    if not cell.read:
        values = values[:2]
    if not cell.limited:
        values += [numbered(cell.column, n) for n in range(1, len(taken) + 3)]
    for value in values:
        changed = row[: cell.place] + (value,) + row[cell.place + 1 :]
        if _key_of(changed, places, sheet) not in taken:
            return changed
    return None


def _attach(rows: Rows, sheet: Sheet, link: Link, plan: Plan, rng: random.Random) -> bool:
    """Points the rows without a parent to one, or to none. Whether anything changed."""
    mine = rows[sheet.name]
    if not mine:
        return False
    parents = rows[link.other]
    other = plan.by_name[link.other]
    keys = {tuple(row[place] for place in link.other_places) for row in parents}
    orphans = [i for i, row in enumerate(mine) if not _has_parent(row, link, other, keys)]
    if not orphans:
        return False
    changed = list(mine)
    nullable = [p for p in link.places if sheet.cells[p].nullable]
    for i in orphans:
        row = list(changed[i])
        usable = [key for key in keys if None not in key]
        if usable and (not nullable or rng.random() < 0.8):
            usable.sort(key=repr)
            if len(link.places) > 1:  # other foreign keys may share a column: change few
                usable = _closest(usable, [row[place] for place in link.places])
            key = rng.choice(usable)
            for place, value in zip(link.places, key, strict=True):
                row[place] = convert(value, sheet.cells[place].column.affinity)
            changed[i] = tuple(row)
            if _has_parent(changed[i], link, other, keys):
                continue
        if nullable:
            row[rng.choice(nullable)] = None
            changed[i] = tuple(row)
        else:
            changed[i] = None
    rows[sheet.name] = _valid([row for row in changed if row is not None], sheet, rng)
    return True


def _closest(keys: list[tuple], values: list[object]) -> list[tuple]:
    """The keys that agree with most of the values."""
    agree = [sum(a == b for a, b in zip(key, values, strict=True)) for key in keys]
    return [key for key, count in zip(keys, agree, strict=True) if count == max(agree)]


def _has_parent(row: tuple, link: Link, other: Sheet, keys: set[tuple]) -> bool:
    values = tuple(row[place] for place in link.places)
    if None in values:
        return True
    if values in keys:
        return True
    wanted = tuple(
        convert(value, other.cells[place].column.affinity)
        for value, place in zip(values, link.other_places, strict=True)
    )
    return wanted in keys


def _without_orphans(rows: Rows, plan: Plan) -> Rows:
    """What is left when rows without parents go, and those that pointed to them, and so on."""
    while True:
        gone = False
        for sheet in plan.sheets:
            for link in sheet.links:
                keys = {tuple(r[p] for p in link.other_places) for r in rows[link.other]}
                other = plan.by_name[link.other]
                kept = [r for r in rows[sheet.name] if _has_parent(r, link, other, keys)]
                gone = gone or len(kept) < len(rows[sheet.name])
                rows[sheet.name] = kept
        if not gone:
            return rows


def _with_parents(rows: Rows, plan: Plan) -> Rows:
    """The rows and the parents that they lack; children come last among the sheets."""
    grown = {name: list(kept) for name, kept in rows.items()}
    for sheet in reversed(plan.sheets):
        for link in sheet.links:
            other = plan.by_name[link.other]
            parents = grown.setdefault(link.other, [])
            keys = {tuple(row[place] for place in link.other_places) for row in parents}
            for row in list(grown.get(sheet.name, ())):
                if _has_parent(row, link, other, keys):
                    continue
                parent = [_anything(c) if not c.nullable else None for c in other.cells]
                for place, theirs in zip(link.places, link.other_places, strict=True):
                    parent[theirs] = convert(row[place], other.cells[theirs].column.affinity)
                parents.append(tuple(parent))
                keys.add(tuple(parent[place] for place in link.other_places))
    return grown
