import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.sql.schema import read_schema
from jax_t2sql.text2sql import schema_text
from jax_t2sql.text2sql.ddl import read_ddl, read_ddl_file
from jax_t2sql.text2sql.schema_budget import fit_schema
from jax_t2sql.text2sql.schema_doc import read_doc
from jax_t2sql.text2sql.schema_text import print_schema

HARD = """
CREATE TABLE "order" ("From" INTEGER PRIMARY KEY, "No" TEXT NOT NULL, "Home Town" VARCHAR(20),
  "%_Change_2007" DECIMAL(10, 2), "a""b" TEXT, "line
break" TEXT, plain "weird type", untyped, "名前" TEXT);
CREATE TABLE link (a INTEGER, b TEXT, PRIMARY KEY (b, a),
  FOREIGN KEY (a) REFERENCES "order" ("From"), FOREIGN KEY (a, b) REFERENCES link (a, b),
  FOREIGN KEY (b) REFERENCES nowhere);
CREATE VIEW "select" AS SELECT "No" AS "group" FROM "order";
"""


def create(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;")
    connection.executescript(script)
    connection.close()
    return path


def load_back(text: str, path: Path) -> Path:
    path.unlink(missing_ok=True)
    return create(path, text)


def shape(path: Path):
    """Everything the text promises to keep: names, types, keys, in order."""
    return shape_of(read_schema(path))


def shape_of(schema):
    return [
        (
            table.name,
            [(c.name, c.type, c.primary_key, c.not_null) for c in table.columns],
            sorted((f.columns, f.other_table, f.other_columns) for f in table.foreign_keys),
        )
        for table in schema.tables
    ]


def test_the_text_of_a_small_database(tmp_path):
    path = create(
        tmp_path / "a.sqlite",
        """CREATE TABLE zoo (id INTEGER PRIMARY KEY, name TEXT NOT NULL, "group" TEXT);
        CREATE TABLE visit (zoo_id INT REFERENCES zoo (id), day TEXT);
        INSERT INTO zoo VALUES (1, 'Artis', NULL), (2, 'Blijdorp', '7');""",
    )
    assert schema_text(path) == (
        "CREATE TABLE zoo (\n"
        "  id INTEGER PRIMARY KEY, -- 1, 2\n"
        "  name TEXT NOT NULL, -- 'Artis', 'Blijdorp'\n"
        "  \"group\" TEXT -- '7'\n"
        ");\n\n"
        "CREATE TABLE visit (\n"
        "  zoo_id INT,\n"
        "  day TEXT,\n"
        "  FOREIGN KEY (zoo_id) REFERENCES zoo (id)\n"
        ");"
    )
    rows = schema_text(path, sample_values=0, sample_rows=1)
    expected = ');\n-- SELECT * FROM zoo LIMIT 1;\n-- id | name | "group"\n-- 1 | Artis | NULL\n'
    assert expected in rows
    assert rows.endswith(");"), "an empty table shows no rows"
    assert "Blijdorp" not in rows


def test_hard_names_load_back(tmp_path):
    path = create(tmp_path / "hard.sqlite", HARD + 'INSERT INTO "order" ("No") VALUES (7);')
    for rows in (0, 1):
        text = schema_text(path, sample_rows=rows)
        assert ("LIMIT 1" in text) == bool(rows)
        assert shape(load_back(text, tmp_path / "back.sqlite")) == shape(path)


def test_sample_rows_have_the_columns_of_their_table(tmp_path):
    script = """CREATE TABLE t (a INT, twice INT GENERATED ALWAYS AS (2 * a) VIRTUAL, b TEXT);
    INSERT INTO t (a, b) VALUES (1, 'x');"""
    text = schema_text(create(tmp_path / "a.sqlite", script), sample_values=0, sample_rows=1)
    columns, row = text.splitlines()[-2:]
    assert (columns, row) in [("-- a | b", "-- 1 | x"), ("-- a | twice | b", "-- 1 | 2 | x")]


def test_values_cannot_leave_their_comment(tmp_path):
    path = create(tmp_path / "a.sqlite", "CREATE TABLE t (a TEXT, b BLOB)")
    connection = sqlite3.connect(path)
    nasty = "x\n); DROP TABLE t; --\r\u2028" + "y" * 500
    connection.execute("INSERT INTO t VALUES (?, ?)", (nasty, b"\xff" * 500))
    connection.execute("INSERT INTO t VALUES (CAST(x'4dfc' AS TEXT), NULL)")
    connection.commit()
    connection.close()
    for text in (schema_text(path), schema_text(path, sample_values=0, sample_rows=2)):
        text.encode()
        assert r"M\xfc" in text and r"x\n)" in text
        assert max(map(len, text.splitlines())) < 250
        assert shape(load_back(text, tmp_path / "back.sqlite")) == shape(path)


def test_the_text_follows_the_file(tmp_path):
    path = create(tmp_path / "a.sqlite", "CREATE TABLE t (a)")
    assert "CREATE TABLE t" in schema_text(path)
    assert read_doc(path) is read_doc(path)
    create(path, "CREATE TABLE u (b)")
    assert "CREATE TABLE u" in schema_text(path)


def test_files_that_are_no_database(tmp_path):
    (tmp_path / "a.sqlite").write_text("hello")
    for name in ("a.sqlite", "none.sqlite"):
        with pytest.raises(UserError, match=name):
            schema_text(tmp_path / name)


_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
_USABLE = _NAMES.filter(lambda name: not name.lower().startswith("sqlite_"))


@settings(max_examples=50, deadline=None)
@given(
    table=_USABLE,
    columns=st.lists(_USABLE, min_size=1, max_size=3, unique_by=str.lower),
    value=st.none() | st.integers(-9, 9) | st.text() | st.binary(),
)
def test_any_name_loads_back(tmp_path_factory, table, columns, value):
    folder = tmp_path_factory.getbasetemp()
    path, back = folder / "any.sqlite", folder / "back.sqlite"
    path.unlink(missing_ok=True)
    quoted = ['"' + name.replace('"', '""') + '"' for name in (table, *columns)]
    create(path, f"CREATE TABLE {quoted[0]} ({' TEXT, '.join(quoted[1:])})")
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"INSERT INTO {quoted[0]} VALUES ({', '.join('?' * len(columns))})",
            [value] * len(columns),
        )
    connection.close()
    for rows in (0, 1):
        assert shape(load_back(schema_text(path, sample_rows=rows), back)) == shape(path)


def test_real_databases_load_back(data_dir, sample, tmp_path):
    """Whole, and cut down to half of their length."""
    hazards = json.loads((data_dir / "hazards.json").read_text())
    assert len(hazards) > 100
    odd = [row for row in hazards if row["reserved"] or row["odd_names"] or row["bad_utf8"]]
    for row in odd + sample(hazards, 20):
        path, back = data_dir / row["path"], tmp_path / "back.sqlite"
        doc = read_doc(path)
        text = print_schema(doc)
        assert shape(load_back(text, back)) == shape(path), path
        load_back(schema_text(path, sample_values=0, sample_rows=1), back)
        fitted = fit_schema(doc, budget=len(text) // 2, count=len, about=row["path"])
        assert fitted.tokens == len(fitted.text) <= max(len(text) // 2, 300), path
        cut = {(name, column[0]) for name, columns, _ in shape(path) for column in columns}
        load_back(fitted.text, back)
        assert {(t, c[0]) for t, columns, _ in shape(back) for c in columns} <= cut


def test_real_ddls_load_back(data_dir, sample, tmp_path):
    """Also those that SQLite itself refuses, which are most of them."""
    folder = data_dir / "bird_platinum"
    status = json.loads((folder / "ddl_load_status.json").read_text())
    refused = [folder / "ddls" / f"{name}.sql" for name, error in status.items() if error]
    others = sorted(set((folder / "ddls").glob("*.sql")) - set(refused))
    clean = sorted((folder / "ddls_clean").glob("*.sql"))
    assert len(refused) > 40
    for path in sample(refused, 25) + sample(others, 8) + sample(clean, 8):
        doc, back = read_ddl_file(path), tmp_path / "back.sqlite"
        load_back(print_schema(doc), back)
        assert shape_of(read_schema(back)) == shape_of(doc.schema), path


def test_ddls_that_sqlite_takes_are_read_as_sqlite_reads_them(data_dir, sample, tmp_path):
    for path in sample(sorted((data_dir / "bird_platinum" / "ddls_clean").glob("*.sql")), 12):
        if path.stem == "language_corpus":  # WITHOUT ROWID makes a key NOT NULL
            continue
        back = load_back(path.read_text(), tmp_path / "back.sqlite")
        assert shape_of(read_ddl_file(path).schema) == shape(back), path


def test_snowflake_names_are_quoted_by_its_rules():
    doc = read_ddl(
        'CREATE OR REPLACE TABLE GA4.PUBLIC."events_1" (EVENT_DATE VARCHAR(10), "event.Name" TEXT,'
        " SIZE NUMBER(38,0) COMMENT 'bytes')"
    )
    assert print_schema(doc, dialect="snowflake") == (
        'CREATE TABLE GA4.PUBLIC."events_1" (\n'
        "  EVENT_DATE VARCHAR(10),\n"
        '  "event.Name" TEXT,\n'
        "  SIZE NUMBER(38,0)\n"
        ");"
    )
