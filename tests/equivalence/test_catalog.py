"""Schemas as SQLite understands them."""

import json
import sqlite3
from pathlib import Path

import pytest

from jax_t2sql.equivalence import read_catalog
from jax_t2sql.equivalence.catalog import ForeignKey, Key, affinity_of
from jax_t2sql.errors import UserError


def one(ddl: str):
    return read_catalog(ddl).tables[0]


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [
        ("INTEGER", "INTEGER"),
        ("UNSIGNED BIG INT", "INTEGER"),
        ("FLOATING POINT", "INTEGER"),  # holds INT
        ("CHARINT", "INTEGER"),
        ("VARCHAR(20)", "TEXT"),
        ("clob", "TEXT"),
        ("", "BLOB"),
        ("BLOB", "BLOB"),
        ("DOUBLE PRECISION", "REAL"),
        ("float", "REAL"),
        ("DATE", "NUMERIC"),
        ("DECIMAL(10,5)", "NUMERIC"),
        ("STRING", "NUMERIC"),
    ],
)
def test_affinity_is_what_sqlite_does_with_values(declared, affinity):
    assert affinity_of(declared) == affinity
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t (a {declared})")
    kept = {}
    for value in ("7", 7, 7.0, 7.5):
        connection.execute("DELETE FROM t")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        kept[repr(value)] = connection.execute("SELECT typeof(a) FROM t").fetchone()[0]
    expected = {
        "INTEGER": ["integer", "integer", "integer", "real"],
        "NUMERIC": ["integer", "integer", "integer", "real"],
        "REAL": ["real", "real", "real", "real"],
        "TEXT": ["text", "text", "text", "text"],
        "BLOB": ["text", "integer", "real", "real"],
    }
    assert list(kept.values()) == expected[affinity]


def test_row_id_is_never_null_and_other_primary_keys_may_be():
    assert one("CREATE TABLE t (a INTEGER PRIMARY KEY)").row_id == "a"
    assert one("CREATE TABLE t (a INTEGER PRIMARY KEY)").columns[0].not_null
    for ddl in (
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "CREATE TABLE t (a INTEGER PRIMARY KEY DESC)",
        "CREATE TABLE t (a TEXT PRIMARY KEY)",
    ):
        table = one(ddl)
        assert table.row_id is None and not table.columns[0].not_null
        assert table.keys == (Key(("a",), primary=True),)
    table = one("CREATE TABLE t (a INTEGER, PRIMARY KEY (a))")
    assert table.row_id == "a" and table.keys == (Key(("a",), primary=True),)


def test_without_rowid_keys_are_not_null():
    table = one("CREATE TABLE t (a TEXT, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID")
    assert table.without_rowid and table.row_id is None
    assert [column.not_null for column in table.columns] == [True, True]


def test_unique_indexes_are_keys_unless_partial_or_over_expressions():
    catalog = read_catalog(
        "CREATE TABLE t (a, b UNIQUE, c, UNIQUE (a, b));"
        "CREATE UNIQUE INDEX i ON t (c);"
        "CREATE UNIQUE INDEX j ON t (a) WHERE a > 0;"
        "CREATE UNIQUE INDEX k ON t (lower(a));"
        "CREATE INDEX l ON t (a);"
    )
    assert {key.columns for key in catalog.tables[0].keys} == {("b",), ("a", "b"), ("c",)}


def test_checks_defaults_generated_columns_and_collations():
    table = one(
        "CREATE TABLE t (a INTEGER CHECK (a > (1) -- why\n), b TEXT DEFAULT 'x' COLLATE nocase,"
        " c AS (a + 1), d INT GENERATED ALWAYS AS (a) STORED, CHECK (b <> ')'))"
    )
    assert table.checks == ("a > (1) -- why", "b <> ')'")
    assert [column.generated for column in table.columns] == [False, False, True, True]
    assert [column.name for column in table.stored] == ["a", "b"]
    assert table.column("B").default == "'x'" and table.column("b").collation == "NOCASE"
    assert table.column("a").collation == "BINARY"


def test_foreign_keys_are_resolved():
    catalog = read_catalog(
        "CREATE TABLE p (x INTEGER PRIMARY KEY, y, z, UNIQUE (y, z));"
        "CREATE TABLE c (a REFERENCES P, b, d, FOREIGN KEY (b, d) REFERENCES p (Y, z))"
    )
    assert catalog.ignored == ()
    assert catalog.table("C").foreign_keys == (
        ForeignKey(("a",), "p", ("x",)),
        ForeignKey(("b", "d"), "p", ("y", "z")),
    )


UNCHECKED = [
    "a REFERENCES p (y)",
    "a CONSTRAINT k REFERENCES p (y) ON DELETE SET NULL ON UPDATE CASCADE NOT NULL",
    "a, b REFERENCES p, FOREIGN KEY (a) REFERENCES p (y) DEFERRABLE INITIALLY DEFERRED",
    "a, CONSTRAINT k FOREIGN KEY (a) REFERENCES p (y) NOT DEFERRABLE, CHECK (a > 1)",
    "a INT REFERENCES missing (x) MATCH FULL CHECK (a > 1)",
    "a, b, FOREIGN KEY (a, b) REFERENCES p (x, x)",
    "a, b, FOREIGN KEY (a, b) REFERENCES p",
    "a, UNIQUE (a) FOREIGN KEY (a) REFERENCES q (y)",
]


@pytest.mark.parametrize("columns", UNCHECKED)
def test_foreign_keys_that_sqlite_cannot_check_are_named_and_cut_out(columns):
    catalog = read_catalog(f"CREATE TABLE p (x INTEGER PRIMARY KEY, y); CREATE TABLE c ({columns})")
    assert len(catalog.ignored) == 1 and "foreign key c(a" in catalog.ignored[0]
    connection = sqlite3.connect(":memory:")
    connection.executescript(catalog.ddl)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("INSERT INTO c (a) VALUES (7)")
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    again = read_catalog(catalog.ddl)
    assert again.ignored == () and again.tables == catalog.tables


def test_ddl_that_does_not_load_is_a_user_error():
    with pytest.raises(UserError, match="syntax error.*CREATE TABLE t"):
        read_catalog("CREATE TABLE t (a,)")
    with pytest.raises(UserError, match="no table"):
        read_catalog("CREATE VIEW v AS SELECT 1")
    with pytest.raises(UserError, match="cannot be opened"):
        read_catalog(Path("nowhere.sqlite"))
    with pytest.raises(UserError):
        read_catalog("CREATE TABLE t AS SELECT 1 FROM nothing")


def test_what_creates_nothing_is_passed_over(tmp_path):
    catalog = read_catalog(
        "PRAGMA foreign_keys = OFF; BEGIN; CREATE TABLE t (a); INSERT INTO t VALUES (1);"
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM t; SELECT 1; END; COMMIT;"
    )
    assert [table.name for table in catalog.tables] == ["t"]
    assert catalog.ddl == "CREATE TABLE t (a);\n"


def test_a_file_and_its_ddl_give_one_catalog(tmp_path):
    ddl = (
        'CREATE TABLE p (x INTEGER PRIMARY KEY);CREATE TABLE "c d" (a REFERENCES p);'
        'CREATE VIEW v AS SELECT a FROM "c d"; CREATE UNIQUE INDEX i ON p (x);'
    )
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(ddl)
    connection.close()
    assert read_catalog(path) == read_catalog(ddl)


def test_real_schemas_load(data_dir):
    schemas = json.loads((data_dir / "equivalence" / "bird_schemas.json").read_text())
    for name, entry in schemas.items():
        catalog = read_catalog(entry["schema"])
        connection = sqlite3.connect(":memory:")
        connection.executescript(catalog.ddl)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == [], name
        connection.close()
