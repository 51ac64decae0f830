"""How tables join: declared and guessed keys, and every path of one to three hops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_pipelines.onedb.words import phrase, singular, split_name
from jax_t2sql.sql import Schema, quote_identifier
from jax_t2sql.sql.schema import fold

if TYPE_CHECKING:
    from data_pipelines.onedb.scan import Scan, Table

MOST_HOPS = 3
_MOST_PATHS = 5_000
_KEY_WORDS = ("id", "uid", "code", "key", "no", "number")


@dataclass(frozen=True)
class Edge:
    """Rows of `child` refer to rows of `parent`, column by column.

    Attributes:
      declared: by a FOREIGN KEY; else guessed.
      confidence: 1.0 where declared.
      matched: share of the child's references that find a row.
      childless: some rows of the parent have no child.
      single: no two children share a parent, so a join does not multiply rows.
    """

    child: str
    child_columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    declared: bool
    confidence: float
    matched: float
    childless: bool
    single: bool

    @property
    def name(self) -> str:
        """child.column -> parent.column"""
        left = f"{self.child}.{'+'.join(self.child_columns)}"
        return f"{left} -> {self.parent}.{'+'.join(self.parent_columns)}"


@dataclass(frozen=True)
class Hop:
    """One step along an edge: upwards from child to parent, or down."""

    edge: Edge
    up: bool

    @property
    def source(self) -> str:
        return self.edge.child if self.up else self.edge.parent

    @property
    def target(self) -> str:
        return self.edge.parent if self.up else self.edge.child

    @property
    def multiplies(self) -> bool:
        """A row may meet several partners."""
        return not self.up and not self.edge.single

    def reversed(self) -> Hop:
        return Hop(self.edge, not self.up)


Path = tuple[Hop, ...]


def reverse(path: Path) -> Path:
    """The same path walked the other way."""
    return tuple(hop.reversed() for hop in reversed(path))


def path_name(path: Path) -> str:
    """A name that both directions share."""

    def told(steps: Path) -> str:
        names = [steps[0].source]
        for hop in steps:
            names.append(f"[{'+'.join(hop.edge.child_columns)}]{hop.target}")
        return "-".join(names)

    return min(told(path), told(reverse(path)))


def _on(edge: Edge, child: str, parent: str) -> str:
    pairs = zip(edge.child_columns, edge.parent_columns, strict=True)
    return " AND ".join(
        f"{child}.{quote_identifier(a)} = {parent}.{quote_identifier(b)}" for a, b in pairs
    )


def _measure(
    child: str, columns: Sequence[str], parent: str, others: Sequence[str], run: Callable
) -> tuple[float, bool, bool]:
    """(matched, childless, single) of a reference."""
    edge = Edge(child, tuple(columns), parent, tuple(others), True, 1.0, 0.0, True, False)
    a, b = quote_identifier(child), quote_identifier(parent)
    filled = " AND ".join(f"c.{quote_identifier(x)} IS NOT NULL" for x in columns)
    total = run(f"SELECT COUNT(*) FROM {a} AS c WHERE {filled}")[0][0]
    found = run(
        f"SELECT COUNT(*) FROM {a} AS c WHERE {filled}"
        f" AND EXISTS (SELECT 1 FROM {b} AS p WHERE {_on(edge, 'c', 'p')})"
    )[0][0]
    childless = run(
        f"SELECT EXISTS (SELECT 1 FROM {b} AS p WHERE NOT EXISTS"
        f" (SELECT 1 FROM {a} AS c WHERE {_on(edge, 'c', 'p')}))"
    )[0][0]
    listed = ", ".join(f"c.{quote_identifier(x)}" for x in columns)
    most = run(
        f"SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM {a} AS c WHERE {filled} GROUP BY {listed})"
    )[0][0]
    return (found / total if total else 0.0), bool(childless), (most or 0) <= 1


def declared_edges(schema: Schema, run: Callable, skipped: list[str]) -> list[Edge]:
    """Edges of the foreign keys that the schema declares."""
    edges: dict[str, Edge] = {}
    for table in schema.tables:
        for key in table.foreign_keys:
            other = schema.table(key.other_table)
            told = f"{table.name}.{'+'.join(key.columns)} -> {key.other_table}"
            if (
                other is None
                or not key.other_columns
                or any(other.column(name) is None for name in key.other_columns)
            ):
                skipped.append(f"{told}: refers to nothing that exists")
                continue
            columns = tuple(table.column(name).name for name in key.columns)
            others = tuple(other.column(name).name for name in key.other_columns)
            try:
                measured = _measure(table.name, columns, other.name, others, run)
            except LookupError as error:
                skipped.append(f"{told}: cannot be measured ({error})")
                continue
            edge = Edge(table.name, columns, other.name, others, True, 1.0, *measured)
            if not edge.matched:
                skipped.append(f"{edge.name}: no reference finds a row")
            edges.setdefault(edge.name, edge)
    return list(edges.values())


def inferred_edges(tables: Sequence[Table], known: Sequence[Edge], run: Callable) -> list[Edge]:
    """Edges that nobody declared: names agree and the values of one are among those of the other.

    The confidence is the share of references that find a row, lowered where names agree less.
    """
    linked = {(fold(e.child), fold(c)) for e in known for c in e.child_columns}
    found = []
    for child in tables:
        for column in child.columns:
            if (fold(child.name), fold(column.name)) in linked or column.kind in ("empty", "date"):
                continue
            if column.distinct < 2:
                continue
            for parent in tables:
                target = parent.identity
                if target is None or parent.rows < 2 or parent is child:
                    continue
                likeness = _likeness(child, column.name, parent, target)
                if likeness < 0.8 or parent.column(target).distinct != parent.rows:
                    continue
                pair = parent.column(target)
                if isinstance(pair.low, str) != isinstance(column.low, str):
                    continue
                try:
                    matched, childless, single = _measure(
                        child.name, [column.name], parent.name, [target], run
                    )
                except LookupError:
                    continue
                if matched >= 0.95:
                    one = child.primary_key == (column.name,)
                    found.append(
                        Edge(
                            child.name, (column.name,), parent.name, (target,), False,
                            round(matched * likeness, 3), matched, childless, single or one,
                        )
                    )  # fmt: skip
    # A column refers to one table; two tables with one key column do not refer to each other twice.
    best: dict[tuple[str, str], Edge] = {}
    for edge in sorted(found, key=lambda e: -e.confidence):
        best.setdefault((edge.child, edge.child_columns[0]), edge)
    pairs = {(e.child, e.parent) for e in (*known, *best.values())}
    return [
        e for e in best.values()
        if not (e.single and (e.parent, e.child) in pairs and e.child > e.parent)
    ]  # fmt: skip


def _likeness(child: Table, column: str, parent: Table, target: str) -> float:
    """How much a column's name says that it refers to a table's key, 0 to 1."""
    own, other = split_name(column), split_name(target)
    thing = singular(phrase(parent.name)).split()
    if other[-1] not in _KEY_WORDS and own != other:
        return 0.0
    stem = own[:-1] if own[-1] in _KEY_WORDS else own
    if own == other and len(other) > 1:
        # The same name in both: the table that it is named after is the parent.
        named = " ".join(stem) in (" ".join(thing), thing[-1])
        return 1.0 if named else 0.8 if child.primary_key != (column,) else 0.0
    if stem == thing or (stem and " ".join(stem) == singular(" ".join(thing))):
        return 1.0
    if len(stem) > 1 and stem[-1:] == thing and own[-1] in ("id", "code"):
        return 0.9
    return 0.0


def is_link(scan: Scan, name: str) -> bool:
    """Whether a table does nothing but link two others: two references, no column of its own."""
    table = scan.table(name)
    outgoing = [e for e in scan.live_edges() if e.child == table.name]
    if len(outgoing) != 2 or any(e.parent == table.name for e in scan.live_edges()):
        return False
    linking = {c for e in outgoing for c in e.child_columns} | set(table.primary_key)
    return all(c.name in linking or c.kind == "empty" for c in table.columns)


def all_paths(scan: Scan, *, most_hops: int = MOST_HOPS) -> list[Path]:
    """Every path of 1 to `most_hops` hops along live edges, each in one direction.

    No edge is used twice and no table is entered twice, save that a path may end where it began
    (two airports of one flight, two colours of one hero).
    """
    edges = scan.live_edges()
    leaving: dict[str, list[Hop]] = {}
    for edge in edges:
        leaving.setdefault(edge.child, []).append(Hop(edge, True))
        leaving.setdefault(edge.parent, []).append(Hop(edge, False))
    found: dict[str, Path] = {}

    def walk(path: Path) -> None:
        if len(found) >= _MOST_PATHS:
            return
        found.setdefault(path_name(path), path)
        end, start = path[-1].target, path[0].source
        if len(path) == most_hops or (end == start):
            return
        seen = {start} | {hop.target for hop in path}
        for hop in leaving[end]:
            if hop.edge in [step.edge for step in path]:
                continue
            if hop.target not in seen or hop.target == start:
                walk((*path, hop))

    for start in sorted(leaving):
        for hop in leaving[start]:
            walk((hop,))
    return sorted(found.values(), key=lambda path: (len(path), path_name(path)))
