"""The encoding against SQLite: random queries on random databases, cell by cell.

The same symbolic rows that go to the solver are looked at on databases that are known; what they
say must be what SQLite gives: values, their types, how often each row comes, and in which order.
"""

import random
import sqlite3

import pytest
from interpreting import Encoding, given
from querying import fill, random_query, random_rows, random_schema

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.terms import TooLarge

_SEEDS = 640
_SLICES = 8


def _filled(ddl: str, rows: dict[str, list[tuple]]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(ddl)
    fill(connection, rows)
    return connection


def _check(sql: str, ddl: str, databases: list[dict], bound: int) -> tuple[int, int]:
    """Compares on each database; returns how many were compared, and how many gave rows."""
    encoding = Encoding(sql, read_catalog(ddl), bound=bound)
    compared = fruitful = 0
    for rows in databases:
        connection = _filled(ddl, rows)
        try:
            connection.execute(sql).fetchall()
        except (sqlite3.Error, OverflowError):
            continue
        reading = encoding.on(connection)
        assert not reading.broken, (sql, rows)
        if reading.in_doubt:
            continue
        placed = reading.placed
        assert placed == given(connection, sql, placed), (sql, ddl, rows)
        compared += 1
        fruitful += bool(placed)
        connection.close()
    return compared, fruitful


@pytest.mark.parametrize("part", range(_SLICES))
def test_random_queries_give_what_sqlite_gives(part):
    compared = fruitful = encoded = 0
    for seed in range(part, _SEEDS, _SLICES):
        rng = random.Random(seed)
        schema = random_schema(rng)
        sql = random_query(rng, schema)
        bound = rng.choice([1, 2, 2, 3])
        databases = [random_rows(rng, schema, bound) for _ in range(6)]
        try:
            found = _check(sql, schema.ddl, databases, bound)
        except (Unsupported, TooLarge):
            continue
        encoded += 1
        compared += found[0]
        fruitful += found[1]
    # That the test tests: most queries are encoded, and many give rows.
    assert encoded > 0.6 * _SEEDS / _SLICES
    assert fruitful > 0.3 * compared > 0


# (DDL, rows, query): shapes in which SQLite has surprised us.
_CASES = {
    "an INTEGER that UNION puts into a REAL column is read as REAL, in FROM": (
        "CREATE TABLE t (a REAL, b INTEGER);",
        {"t": [(0.5, 2)]},
        "SELECT -k FROM (SELECT a AS k FROM t UNION SELECT b FROM t)",
    ),
    "UNION gives a column two affinities": (
        "CREATE TABLE t (a INTEGER, b TEXT);",
        {"t": [(1, "1")]},
        "SELECT a FROM t WHERE a IN (SELECT b FROM t UNION SELECT a FROM t)",
    ),
    "an empty pattern leaves even NULL as replacement without effect": (
        "CREATE TABLE t (a);",
        {"t": [(5,)]},
        "SELECT REPLACE(a, '', NULL), TYPEOF(REPLACE(a, '', 'x')) FROM t",
    ),
    "a blob is like nothing": (
        "CREATE TABLE t (a, b);",
        {"t": [(b"a", None)]},
        "SELECT a LIKE b, b LIKE a, a LIKE 'a' FROM t",
    ),
    "TEXT and a column without type are not converted": (
        "CREATE TABLE t (a TEXT, b);",
        {"t": [("1", 1)]},
        "SELECT a = b, a = 1, a = b + 0, b = '1', a IN (1), b IN ('1') FROM t",
    ),
    "LIKE in the ON of a LEFT JOIN, looked up by the key": (
        "CREATE TABLE t (a INTEGER PRIMARY KEY); CREATE TABLE u (b INTEGER PRIMARY KEY);",
        {"t": [(1,)], "u": [(1,)]},
        "SELECT * FROM t LEFT JOIN u ON u.b LIKE 'a%'",
    ),
    "blobs are not converted": (
        "CREATE TABLE t (a INTEGER, b BLOB, c TEXT);",
        {"t": [(1, b"1", "1"), (b"1", 1, b"1")]},
        "SELECT a = b, b = c, c = x'31', a = x'31', a IN (x'31', '1'), ROUND(b),"
        " SUBSTR(b, 1, 1), b || c, CAST(b AS TEXT) = c, a + b, SUBSTR(a, 1, 1) = c FROM t",
    ),
    "collations": (
        "CREATE TABLE t (a TEXT COLLATE NOCASE, b TEXT COLLATE RTRIM, c TEXT);",
        {"t": [("x", "x ", "X"), ("X ", "x", "x")]},
        "SELECT a = c, c = a, b = c, c = b, a = b, b = a, CAST(a AS TEXT) = c,"
        " a = c COLLATE BINARY, c COLLATE NOCASE = a, a || '' = c, a IN ('X'), c IN (a),"
        " c || (a COLLATE NOCASE) = 'XX', UPPER(c COLLATE NOCASE) = 'x',"
        " CASE WHEN 1 THEN c COLLATE NOCASE END = 'X', (c COLLATE NOCASE || '') IN ('X', 'y'),"
        " a IN (SELECT c FROM t), MIN(a, c), MAX(c, a), NULLIF(a, c), NULLIF(c, a),"
        " CASE a WHEN c THEN 1 END, CASE c WHEN a THEN 1 END, c BETWEEN a AND a FROM t",
    ),
    "groups and order under a collation": (
        "CREATE TABLE t (a TEXT COLLATE NOCASE, b);",
        {"t": [("x", 1), ("B", 2), ("X", 1)]},
        "SELECT COUNT(DISTINCT a), MIN(b), COUNT(*) FROM t GROUP BY UPPER(a) ORDER BY UPPER(a)",
    ),
    "the least INTEGER by -1": (
        "CREATE TABLE t (a INTEGER);",
        {"t": [(-(2**63) + 1,)]},
        "SELECT a / -1, -a, a - 2, a + a, TYPEOF(a - 2) FROM t",
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_surprises_are_modelled_or_refused(name):
    ddl, rows, sql = _CASES[name]
    try:
        compared, _ = _check(sql, ddl, [rows], 3)
    except Unsupported as error:
        assert any(name in str(error) for name in ("set operation", "affinities", "LIKE")), error
    else:
        assert compared == 1


# (DDL, rows, query): answers that SQLite is free to give in several ways.
_CHANCE = {
    "the number that stands for a group": (
        "CREATE TABLE t (a);", {"t": [(1,), (1.0,)]}, "SELECT a FROM t GROUP BY a",
    ),
    "the number that DISTINCT keeps": (
        "CREATE TABLE t (a);", {"t": [(1,), (1.0,)]}, "SELECT DISTINCT a FROM t",
    ),
    "the number that UNION keeps": (
        "CREATE TABLE t (a);", {"t": [(1,), (1.0,)]}, "SELECT a FROM t UNION SELECT a FROM t",
    ),
    "the greatest of equals": (
        "CREATE TABLE t (a);", {"t": [(1,), (1.0,)]}, "SELECT MAX(a) FROM t",
    ),
    "a bare column": (
        "CREATE TABLE t (a, b);", {"t": [(1, 2), (1, 3)]}, "SELECT b FROM t GROUP BY a",
    ),
    "a bare column's kind": (
        "CREATE TABLE t (a, b);", {"t": [(1, 2), (1, 2.0)]}, "SELECT b FROM t GROUP BY a",
    ),
    "the spelling under a collation": (
        "CREATE TABLE t (a TEXT COLLATE NOCASE);", {"t": [("x",), ("X",)]},
        "SELECT a FROM t GROUP BY a",
    ),
    "a scalar subquery of two rows": (
        "CREATE TABLE t (a);", {"t": [(1,), (2,)]}, "SELECT (SELECT a FROM t)",
    ),
    "a tie that LIMIT cuts": (
        "CREATE TABLE t (a, b);", {"t": [(1, 2), (1, 3)]}, "SELECT b FROM t ORDER BY a LIMIT 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _CHANCE)
def test_chance_is_noticed(name):
    ddl, rows, sql = _CHANCE[name]
    assert Encoding(sql, read_catalog(ddl), bound=2).on(_filled(ddl, rows)).in_doubt
    alike = {table: [some[0], some[0]] for table, some in rows.items()}
    assert not Encoding(sql, read_catalog(ddl), bound=2).on(_filled(ddl, alike)).in_doubt
