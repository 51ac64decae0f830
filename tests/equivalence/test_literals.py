"""Values near a literal."""

import sqlite3

import pytest

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.literals import values_for
from jax_t2sql.equivalence.outline import outline

CATALOG = read_catalog("CREATE TABLE t (n INTEGER, s TEXT, d DATE)")
CONDITIONS = [
    "n = 5", "n > 5", "n <= 5", "n BETWEEN 3 AND 9", "n IN (2, 4)", "n <> 7", "s = 'Ab c'",
    "s LIKE 'ab%c_'", "s LIKE '%x%'", "s GLOB 'a*'", "s > 'm'", "d = '2012-05-06'",
    "d < '2012-05-06'", "strftime('%Y', d) = '1990'", "strftime('%m', d) = '07'",
    "strftime('%Y-%m', d) > '1990-12'", "substr(s, 1, 4) = '2009'", "length(s) > 3",
    "CAST(strftime('%Y', d) AS INTEGER) >= 1999", "instr(s, 'zz') > 0", "lower(s) = 'abc'",
    "d LIKE '2001%'", "CAST(replace(s, ',', '') AS REAL) > 100",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_some_value_satisfies_and_some_does_not(condition):
    atom = outline(f"SELECT 1 FROM t WHERE {condition}", CATALOG).atoms[0]
    values = values_for(atom)
    connection = sqlite3.connect(":memory:")
    connection.executescript(CATALOG.ddl)
    column = next(c for _, c in atom.refs)
    kept = []
    for value in (*values.hits, *values.near):
        connection.execute("DELETE FROM t")
        connection.execute(f"INSERT INTO t ({column}) VALUES (?)", (value,))
        kept.append(bool(connection.execute(f"SELECT 1 FROM t WHERE {condition}").fetchall()))
    assert any(kept) and not all(kept), list(zip((*values.hits, *values.near), kept, strict=True))
    assert any(kept[: len(values.hits)]) or "instr" in condition
