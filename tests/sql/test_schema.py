"""Schema introspection, odd names included."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Column, ForeignKey, quote_identifier, read_schema, sample_values
from jax_t2sql.sql.database import connect_readonly


def test_tables_columns_and_keys(shop):
    schema = read_schema(shop)
    assert [(t.name, t.is_view) for t in schema.tables] == [
        ("item", False),
        ("sale", False),
        ("dear", True),
    ]
    item = schema.table("ITEM")
    assert item.primary_key == ("id",)
    assert item.column("Price") == Column("price", "REAL")
    assert item.column("nope") is None and schema.table("nope") is None
    # "REFERENCES item" names no column: its primary key is meant.
    assert schema.table("sale").foreign_keys == (ForeignKey(("item_id",), "item", ("id",)),)


def test_compound_keys_keep_their_order(make_database):
    path = make_database(
        """
        CREATE TABLE a (x INT, y INT NOT NULL DEFAULT 3, PRIMARY KEY (y, x));
        CREATE TABLE b (p INT, q INT, FOREIGN KEY (p, q) REFERENCES A (y, x),
                        FOREIGN KEY (q) REFERENCES gone);
        """
    )
    a, b = read_schema(path).tables
    assert a.primary_key == ("y", "x")
    assert a.column("y") == Column("y", "INT", not_null=True, default="3", primary_key=1)
    assert set(b.foreign_keys) == {
        ForeignKey(("p", "q"), "A", ("y", "x")),
        ForeignKey(("q",), "gone", ()),
    }


ODD = ["order", "Home Town", "%_Change_2007", 'say "x"', "a`b", "c]d", "it's", "é;--", "From", "1"]


def test_odd_names(make_database):
    columns = ", ".join(f"{quote_identifier(name)} TEXT" for name in ODD)
    script = "".join(f"CREATE TABLE {quote_identifier(name)} ({columns});" for name in ODD)
    values = ", ".join("'" + name.replace("'", "''") + "'" for name in ODD)
    path = make_database(script + f"INSERT INTO {quote_identifier(ODD[3])} VALUES ({values});")
    schema = read_schema(path)
    assert [table.name for table in schema.tables] == ODD
    assert all([column.name for column in table.columns] == ODD for table in schema.tables)
    for name in ODD:
        assert sample_values(path, 'SAY "X"', name) == (name,)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@settings(deadline=None)
def test_quoted_identifiers_read_back(name):
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({quote_identifier(name)} TEXT)")
    assert [row[1] for row in connection.execute("PRAGMA table_info(t)")] == [name]
    connection.close()


def test_own_tables_and_broken_views_are_left_out(make_database):
    path = make_database(
        """
        CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a);
        CREATE VIEW v AS SELECT a FROM gone;
        """
    )
    assert [table.name for table in read_schema(path).tables] == ["t"]


def test_sample_values(make_database):
    path = make_database(
        """
        CREATE TABLE t (a, b);
        INSERT INTO t VALUES (NULL, NULL), ('x', NULL), ('x', NULL), (2, NULL), (x'ff', NULL);
        """
    )
    assert sample_values(path, "t", "a") == ("x", 2, b"\xff")
    assert sample_values(path, "T", "A", 1) == ("x",)
    assert sample_values(path, "t", "a", max_scan=2) == ("x",)
    assert sample_values(path, "t", "b") == ()
    for table, column in [("t", "nope"), ("nope", "a")]:
        with pytest.raises(UserError, match=f"{table}.{column}"):
            sample_values(path, table, column)


def test_latin_1_bytes_do_not_stop_anything(make_database):
    path = make_database("CREATE TABLE t(a); INSERT INTO t VALUES (CAST(x'4dfc6c' AS TEXT))")
    assert sample_values(path, "t", "a") == ("M\udcfcl",)
    connect_readonly(path).close()


def test_a_name_that_is_not_utf8(make_database):
    path = make_database(
        "CREATE TABLE tXb (a); CREATE TABLE u (cXl, d); CREATE VIEW vXb AS SELECT d FROM u;"
    )
    data = path.read_bytes()
    for name in (b"tXb", b"cXl", b"vXb"):
        data = data.replace(name, name.replace(b"X", b"\xfc"))
    path.write_bytes(data)
    tables = read_schema(path).tables
    assert [table.name for table in tables] == ["u"]
    assert [column.name for column in tables[0].columns] == ["c\udcfcl", "d"]
