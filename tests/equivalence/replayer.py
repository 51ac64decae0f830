"""An independent judge of refutations: real SQLite, the texts as given, its own comparison.

Written apart from the checker: nothing of `jax_t2sql` is imported.
"""

import math
import sqlite3
from collections import Counter
from dataclasses import dataclass

_REL_TOL = 1e-9
_STEPS = 20_000_000  # virtual machine instructions of SQLite: some seconds


@dataclass(frozen=True)
class Replay:
    """What became of a refutation.

    Attributes:
      holds: the database loads, keeps its constraints, and the queries differ on it.
      why: what is wrong with it unless it holds.
      first, second: the two results, where they were obtained.
    """

    holds: bool
    why: str = ""
    first: list[tuple] | None = None
    second: list[tuple] | None = None


def replay(script: str, first: str, second: str, *, grading: str = "set") -> Replay:
    """Loads a database from its script, and compares the two queries on it.

    Args:
      script: SQL that creates and fills the database.
      first, second: the queries, byte for byte.
      grading: "set", "multiset", "list" or "bird".
    """
    connection = sqlite3.connect(":memory:")
    left = _STEPS // 10_000

    def count() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(count, 10_000)
    try:
        try:
            connection.executescript(script)
        except sqlite3.Error as error:
            return Replay(False, f"the script does not load: {error}")
        connection.execute("PRAGMA ignore_check_constraints = OFF")  # whatever the script says
        try:
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        except sqlite3.OperationalError as error:
            # A key that SQLite itself cannot check constrains nothing, but hides the others.
            if "foreign key mismatch" not in str(error):
                return Replay(False, f"foreign keys cannot be checked: {error}")
            broken = _orphans(connection)
        if broken:
            return Replay(False, f"foreign keys are broken: {broken[:3]}")
        integrity = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if integrity != "ok":  # NOT NULL, UNIQUE and CHECK, too
            return Replay(False, f"integrity: {integrity}")
        results = []
        for query in (first, second):
            try:
                results.append(connection.execute(query).fetchall())
            except (sqlite3.Error, sqlite3.Warning) as error:
                return Replay(False, f"a query fails: {error}")
    finally:
        connection.close()
    if same(results[0], results[1], grading):
        return Replay(False, "the results are equal", *results)
    return Replay(True, "", *results)


def _orphans(connection: sqlite3.Connection) -> list[tuple]:
    """(table, parent) of each foreign key that can be checked and is broken."""
    found = []
    for (table,) in _tables(connection):
        keys: dict[int, list[tuple]] = {}
        for key in connection.execute(f"PRAGMA foreign_key_list({_quote(table)})"):
            keys.setdefault(key[0], []).append(key)
        for parts in keys.values():
            parent = parts[0][2]
            unique = _unique_keys(connection, parent)
            columns = [part[3] for part in parts]
            others = [part[4] for part in parts]
            if None in others:
                others = unique[0] if unique and len(unique[0]) == len(columns) else []
            if sorted(map(str.lower, others)) not in [sorted(map(str.lower, u)) for u in unique]:
                continue
            given = " AND ".join(f"c.{_quote(column)} IS NOT NULL" for column in columns)
            match = " AND ".join(
                f"p.{_quote(other)} = c.{_quote(column)}"
                for column, other in zip(columns, others, strict=True)
            )
            query = (
                f"SELECT 1 FROM {_quote(table)} AS c WHERE {given}"
                f" AND NOT EXISTS (SELECT 1 FROM {_quote(parent)} AS p WHERE {match})"
            )
            if connection.execute(query).fetchone():
                found.append((table, parent))
    return found


def _tables(connection: sqlite3.Connection) -> list[tuple[str]]:
    return connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()


def _unique_keys(connection: sqlite3.Connection, table: str) -> list[list[str]]:
    """Columns of a table's unique keys, the primary one first."""
    info = connection.execute(f"PRAGMA table_info({_quote(table)})").fetchall()
    primary = sorted((row[5], row[1]) for row in info if row[5])
    keys = [[name for _, name in primary]] if primary else []
    for _, name, is_unique, _, is_partial in connection.execute(
        f"PRAGMA index_list({_quote(table)})"
    ).fetchall():
        if is_unique and not is_partial:
            columns = connection.execute(f"PRAGMA index_info({_quote(name)})").fetchall()
            keys.append([column[2] for column in columns])
    return [key for key in keys if None not in key]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def same(first: list[tuple], second: list[tuple], grading: str) -> bool:
    """Whether two results are equal under a grading mode.

    Numbers of which one is REAL agree to a relative 1e-9, except under "bird".
    """
    if grading == "bird":
        return set(first) == set(second)
    if grading == "list":
        return len(first) == len(second) and all(map(_rows_agree, first, second))
    if grading == "set":
        return _covers(first, second) and _covers(second, first)
    if grading == "multiset":
        return len(first) == len(second) and _pairs_up(first, second)
    raise ValueError(f"grading {grading!r}")


def _cells_agree(a, b) -> bool:
    if a is None or b is None:
        return a is b
    numbers = (int, float)
    if isinstance(a, numbers) != isinstance(b, numbers) or isinstance(a, bytes) != isinstance(
        b, bytes
    ):
        return False
    if isinstance(a, float) or isinstance(b, float):
        return a == b or (
            math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=_REL_TOL)
        )
    return a == b


def _rows_agree(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(map(_cells_agree, a, b))


def _covers(rows: list[tuple], others: list[tuple]) -> bool:
    """Whether each row has an equal among the others."""
    known = set(others)
    return all(row in known or any(_rows_agree(row, other) for other in known) for row in set(rows))


def _pairs_up(first: list[tuple], second: list[tuple]) -> bool:
    """Whether the rows can be paired, all pairs equal: rows alike to the bit first, then the few
    that are left by augmenting paths."""
    left = list((Counter(first) - Counter(second)).elements())
    right = list((Counter(second) - Counter(first)).elements())
    partner: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j, row in enumerate(right):
            if j not in seen and _rows_agree(left[i], row):
                seen.add(j)
                if j not in partner or place(partner[j], seen):
                    partner[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(left)))
