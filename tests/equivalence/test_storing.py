"""Values as SQLite stores them."""

import sqlite3

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.storing import convert, literal, storable

NUMERALS = st.from_regex(r"\A ?[+-]?[0-9]{0,20}\.?[0-9]{0,3}(e[+-]?[0-9]{1,2})? ?\Z")
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    NUMERALS,
    st.binary(max_size=3),
)
TYPES = {"INTEGER": "INT", "TEXT": "TEXT", "BLOB": "", "REAL": "REAL", "NUMERIC": "DATE"}
CONNECTION = sqlite3.connect(":memory:")
for affinity, declared in TYPES.items():
    CONNECTION.execute(f"CREATE TABLE {affinity}_t (v {declared})")


def stored(value, affinity):
    CONNECTION.execute(f"DELETE FROM {affinity}_t")
    CONNECTION.execute(f"INSERT INTO {affinity}_t VALUES (?)", (value,))
    return CONNECTION.execute(f"SELECT v FROM {affinity}_t").fetchone()[0]


@given(value=VALUES, affinity=st.sampled_from(sorted(TYPES)))
@example(value="0x10", affinity="INTEGER")
@example(value="1e3", affinity="INTEGER")
@example(value=" 12 ", affinity="NUMERIC")
@example(value="9223372036854775808", affinity="INTEGER")
@example(value=1e15, affinity="TEXT")
@example(value=123456789.123456, affinity="TEXT")
@example(value=1e-5, affinity="TEXT")
@example(value=-0.0, affinity="TEXT")
@example(value=7, affinity="REAL")
@example(value="", affinity="REAL")
def test_conversion_is_sqlites(value, affinity):
    expected = stored(value, affinity)
    found = convert(value, affinity)
    assert (type(found), found) == (type(expected), expected)


@given(value=VALUES)
@example(value="a'b\0c")
@example(value=float("inf"))
@example(value=-0.1)
def test_a_literal_reads_back(value):
    back = sqlite3.connect(":memory:").execute(f"SELECT {literal(value)}").fetchone()[0]
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("a INTEGER PRIMARY KEY", "x"),
        ("a INTEGER PRIMARY KEY", 1.5),
        ("a INTEGER NOT NULL", None),
        ("a INTEGER", float("inf")),
        ("a INTEGER", 2**63),
    ],
)
def test_what_a_column_refuses_is_known(ddl, value):
    table = read_catalog(f"CREATE TABLE t ({ddl})").tables[0]
    assert not storable(value, table.columns[0], table)
    assert storable(1, table.columns[0], table)


@pytest.mark.parametrize("declared", ["INTEGER", "INT", "REAL", "TEXT", "BLOB", "ANY"])
@pytest.mark.parametrize("value", [1, 1.5, "x", b"x"])
def test_strict_tables_refuse_as_sqlite_does(declared, value):
    ddl = f"CREATE TABLE t (a {declared}) STRICT"
    table = read_catalog(ddl).tables[0]
    connection = sqlite3.connect(":memory:")
    connection.execute(ddl)
    converted = convert(value, table.columns[0].affinity)
    try:
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        accepted = True
    except sqlite3.Error:
        accepted = False
    assert storable(converted, table.columns[0], table) == accepted
