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

_SEEDS = 320
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
