"""What to fill for a pair of queries: tables, and for each column the values worth trying.

Only what the queries read matters. Tables that neither reads stay empty unless a foreign key needs
their rows; columns that neither reads hold NULL where they may.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jax_t2sql.equivalence.atoms import Outline, Ref
from jax_t2sql.equivalence.catalog import Catalog, Column, Table
from jax_t2sql.equivalence.literals import values_for
from jax_t2sql.equivalence.outline import outline_of_check
from jax_t2sql.equivalence.pools import fitting, usual_values
from jax_t2sql.sql.schema import fold


@dataclass(frozen=True)
class Pool:
    """What stands in a column of the real database.

    Attributes:
      values: some of them; holds: whether a value is there.
      has_null, unique: whether NULL is there, and whether nothing is twice.
    """

    values: tuple[object, ...]
    holds: Callable[[object], bool]
    has_null: bool = True
    unique: bool = False


@dataclass(frozen=True)
class Cell:
    """One column to fill.

    Attributes:
      column: the column; place: where it stands in a row.
      hits: values that probably satisfy a comparison; near: that just do not; base: others.
      read: whether a query reads it.
      group: columns of one group are compared with each other and draw from one palette; None
        alone.
      limited: whether no other values may be used.
      nullable: whether it may hold NULL.
    """

    column: Column
    place: int
    hits: tuple[object, ...]
    near: tuple[object, ...]
    base: tuple[object, ...]
    read: bool
    group: int | None
    limited: bool = False
    nullable: bool = True


@dataclass(frozen=True)
class Link:
    """A foreign key by places in the rows of the two tables."""

    places: tuple[int, ...]
    other: str
    other_places: tuple[int, ...]

    @functools.cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Place by place."""
        return tuple(zip(self.places, self.other_places, strict=True))


@dataclass(frozen=True)
class Sheet:
    """One table to fill.

    Attributes:
      keys: places of the columns of each key.
      links: foreign keys that are not free through a NULL.
    """

    table: Table
    cells: tuple[Cell, ...]
    keys: tuple[tuple[int, ...], ...]
    links: tuple[Link, ...]

    @property
    def name(self) -> str:
        """The table's name as declared."""
        return self.table.name

    def relevant(self, row: tuple) -> tuple:
        """A row with NULL in columns that nobody reads, which may refer to tables left empty."""
        return tuple(
            value if cell.read or cell.column.not_null else None
            for value, cell in zip(row, self.cells, strict=True)
        )


@dataclass(frozen=True)
class Plan:
    """What to fill.

    Attributes:
      sheets: parents before children where foreign keys form no circle.
      sizes: numbers of rows that the queries ask about, ascending.
    """

    sheets: tuple[Sheet, ...]
    sizes: tuple[int, ...] = ()
    by_name: Mapping[str, Sheet] = field(default_factory=dict, repr=False)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables to fill."""
        return tuple(sheet.table for sheet in self.sheets)


def make_plan(
    catalog: Catalog,
    reads: Iterable[tuple[str, str]],
    outlines: Sequence[Outline],
    *,
    pool_of: Callable[[Table, int], Pool] | None = None,
) -> Plan:
    """Plans for queries.

    Args:
      reads: folded (table, column) pairs that the queries read.
      outlines: of the queries.
      pool_of: gives the only values for a table's column of that place, for realistic databases.
    """
    reads = set(reads)
    tables = _needed(catalog, reads)
    values = _Values(catalog, [*outlines, *_checks(catalog, tables)])
    # A column that a foreign key refers to gives that key its values.
    referred = {
        (fold(key.other_table), fold(column))
        for table in tables
        for key in table.foreign_keys
        for column in key.other_columns
    }
    sheets = []
    for table in tables:
        name = fold(table.name)
        cells = []
        computed = len(table.stored) < len(table.columns)  # from whichever columns
        for place, column in enumerate(table.stored):
            key = (name, fold(column.name))
            read = key in reads or computed or key in referred
            pool = None if pool_of is None else pool_of(table, place)
            cells.append(_cell(table, column, place, read, values, key, pool))
        keys = tuple(
            tuple(table.places[fold(c)] for c in key.columns)
            for key in table.keys
            if all(fold(c) in table.places for c in key.columns)
        )
        if pool_of is not None:
            unique = (c for c in cells if c.read and pool_of(table, c.place).unique)
            keys += tuple((c.place,) for c in unique if (c.place,) not in keys)
        sheets.append(Sheet(table, tuple(cells), keys, _links(catalog, table, tables)))
    sizes = sorted({n for o in outlines for n in o.sizes if 0 < n <= 1000})
    return Plan(tuple(sheets), tuple(sizes), {sheet.name: sheet for sheet in sheets})


def _needed(catalog: Catalog, reads: set[tuple[str, str]]) -> list[Table]:
    """The tables that are read and, where a foreign key needs rows in them, their parents."""
    wanted = {table for table, _ in reads if catalog.table(table) is not None}
    todo = list(wanted)
    while todo:
        table = catalog.table(todo.pop())
        for key in table.foreign_keys:
            other = fold(key.other_table)
            if other not in wanted and not _free(table, key.columns, reads):
                wanted.add(other)
                todo.append(other)
    return _parents_first(catalog, wanted)


def _free(table: Table, columns: Iterable[str], reads: set[tuple[str, str]]) -> bool:
    """Whether a foreign key can be left NULL because nobody looks at one of its columns."""
    return any(
        (fold(table.name), fold(name)) not in reads and not table.column(name).not_null
        for name in columns
    )


def _parents_first(catalog: Catalog, wanted: set[str]) -> list[Table]:
    ordered: list[Table] = []
    waiting = [table for table in catalog.tables if fold(table.name) in wanted]
    while waiting:
        names = {fold(table.name) for table in waiting}
        ready = [
            table
            for table in waiting
            if not any(
                fold(key.other_table) in names and fold(key.other_table) != fold(table.name)
                for key in table.foreign_keys
            )
        ] or waiting[:1]
        ordered += ready
        waiting = [table for table in waiting if table not in ready]
    return ordered


def _links(catalog: Catalog, table: Table, tables: Sequence[Table]) -> tuple[Link, ...]:
    links = []
    for key in table.foreign_keys:
        other = catalog.table(key.other_table)
        ours = [table.places.get(fold(name)) for name in key.columns]
        theirs = [other.places.get(fold(name)) for name in key.other_columns]
        if other in tables and None not in ours and None not in theirs:
            links.append(Link(tuple(ours), other.name, tuple(theirs)))
    return tuple(links)


def _checks(catalog: Catalog, tables: Iterable[Table]) -> list[Outline]:
    return [outline_of_check(c, table.name, catalog) for table in tables for c in table.checks]


class _Values:
    """Values by column and groups of columns, out of the outlines."""

    def __init__(self, catalog: Catalog, outlines: Sequence[Outline]) -> None:
        self.hits: dict[tuple[str, str], list[object]] = {}
        self.near: dict[tuple[str, str], list[object]] = {}
        self.leader: dict[tuple[str, str], tuple[str, str]] = {}
        for found in outlines:
            for atom in found.atoms:
                values = values_for(atom)
                for ref in atom.refs:
                    key = _key(found, ref)
                    self.hits.setdefault(key, []).extend(values.hits)
                    self.near.setdefault(key, []).extend(values.near)
            for a, b in found.equal + found.unequal:
                self._join(_key(found, a), _key(found, b))
        for table in catalog.tables:
            for key in table.foreign_keys:
                for mine, theirs in zip(key.columns, key.other_columns, strict=True):
                    self._join(
                        (fold(table.name), fold(mine)), (fold(key.other_table), fold(theirs))
                    )
        self.numbers: dict[tuple[str, str], int] = {}
        self.members: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for key in self.leader:
            self.members.setdefault(self._lead(key), []).append(key)

    def group(self, key: tuple[str, str]) -> int | None:
        """A number for the columns that a column is compared with."""
        if key not in self.leader:
            return None
        return self.numbers.setdefault(self._lead(key), len(self.numbers))

    def of(self, key: tuple[str, str]) -> tuple[list[object], list[object]]:
        """Hits and near values of a column and of those that it is compared with."""
        members = self.members[self._lead(key)] if key in self.leader else [key]
        hits = [value for member in members for value in self.hits.get(member, ())]
        near = [value for member in members for value in self.near.get(member, ())]
        return hits, near

    def _lead(self, key: tuple[str, str]) -> tuple[str, str]:
        while self.leader[key] != key:
            key = self.leader[key]
        return key

    def _join(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        for key in (a, b):
            self.leader.setdefault(key, key)
        self.leader[self._lead(a)] = self._lead(b)


def _key(found: Outline, ref: Ref) -> tuple[str, str]:
    return found.tables[ref[0]], ref[1]


def _cell(
    table: Table,
    column: Column,
    place: int,
    read: bool,
    values: _Values,
    key: tuple[str, str],
    pool: Pool | None,
) -> Cell:
    hits, near = values.of(key)
    if pool is not None:
        base: Sequence[object] = pool.values
        hits = [value for value in fitting(hits, column, table) if pool.holds(value)]
        near = [value for value in fitting(near, column, table) if pool.holds(value)]
    else:
        base = usual_values(column, [*hits, *near])
    fits = [fitting(kind, column, table) for kind in (hits, near, base)]
    nullable = not column.not_null and (pool is None or pool.has_null or not read)
    limited = pool is not None
    return Cell(column, place, *fits, read, values.group(key), limited, nullable)
