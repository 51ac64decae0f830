import sqlite3

import pytest

from jax_t2sql.sql import Limits, execute
from jax_t2sql.text2sql.observation import describe_fault, describe_outcome


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("observation") / "zoo.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE zoo (id INTEGER, name TEXT, note TEXT)")
    rows = [(i, f"zoo {i}", None if i % 2 else "NULL") for i in range(60)]
    connection.executemany("INSERT INTO zoo VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def observe(database, sql, *, turns_left=3, limits=None, **bounds):
    outcome = execute(database, sql, limits=limits or Limits())
    text = describe_outcome(outcome, turns_left=turns_left, **bounds)
    text.encode()
    return text


def test_a_table(database):
    assert observe(database, "SELECT id, name, note FROM zoo LIMIT 2") == (
        "<tool_response>\n"
        "id | name | note\n"
        "0 | zoo 0 | 'NULL'\n"
        "1 | zoo 1 | NULL\n"
        "(2 rows)\n"
        "</tool_response>\n"
        "Tool turns left: 3."
    )


def test_one_row_and_no_row(database):
    assert "\nn\n60\n(1 row)\n" in observe(database, "SELECT COUNT(*) AS n FROM zoo")
    assert "\nid\n(0 rows)\n" in observe(database, "SELECT id FROM zoo WHERE 0")


def test_order_and_duplicates_are_kept(database):
    text = observe(database, "SELECT id / 30 AS half FROM zoo WHERE id > 28 ORDER BY id DESC")
    assert "half\n" + "1\n" * 30 + "0\n(31 rows)" in text


def test_a_long_table_is_cut_and_says_so(database):
    text = observe(database, "SELECT id FROM zoo")
    assert "\n49\n(60 rows; only the first 50 are shown)\n" in text
    assert "\n50\n" not in text
    assert "(50 rows)" in observe(database, "SELECT id FROM zoo LIMIT 50")
    assert "\n1\n(60 rows; only the first 2 are" in observe(
        database, "SELECT id FROM zoo", max_rows=2
    )


def test_a_long_cell_is_cut_and_says_so(database):
    text = observe(database, "SELECT printf('%.*c', 1000, 'x') AS a, 'b' AS b")
    assert f"\n{'x' * 200}… [cut, 1000 characters] | b\n" in text
    assert "(1 row; cells are cut at 200 characters)" in text
    wide = observe(database, f'SELECT 1 AS "{"n" * 500}"')
    assert f"\n{'n' * 200}\n1\n" in wide


def test_cells_cannot_make_rows_or_columns(database):
    text = observe(database, "SELECT 'a' || char(10) || 'b | c' AS x, x'00ff' AS y")
    assert "\n'a\\nb | c' | x'00ff'\n(1 row)" in text


def test_bytes_that_are_no_text(database):
    assert "\nM\\xfcller\n" in observe(database, "SELECT CAST(x'4dfc6c6c6572' AS TEXT) AS name")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT absent FROM zoo", ["The query failed: ", "no such column: absent"]),
        ("SELEC 1", ["The query failed: ", "syntax error"]),
        ("DROP TABLE zoo", ["The query was refused: ", "read-only"]),
        ("SELECT 1; SELECT 2", ["The query was refused: ", "one statement"]),
        ("-- nothing", ["There was no query to run"]),
    ],
)
def test_failures_tell_why(database, sql, words):
    text = observe(database, sql)
    assert all(word in text for word in words)
    assert text.endswith("</tool_response>\nTool turns left: 3.")


def test_limits_tell_which(database):
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT"
    text = observe(database, f"{endless} MAX(n) FROM r", limits=Limits(seconds=0.05))
    assert "stopped for running too long" in text
    text = observe(database, f"{endless} n FROM r", limits=Limits(max_rows=1000))
    assert "stopped for returning too much" in text and "1,000 rows" in text


def test_warnings_are_passed_on(database):
    text = observe(database, 'SELECT "nosuch" FROM zoo LIMIT 1')
    assert "\nWarning: " in text and "nosuch" in text.split("Warning:")[1]


def test_a_long_error_is_cut(database):
    text = observe(database, f"SELECT {'x' * 5000}")
    assert len(text) < 1500 and "…" in text


def test_the_last_turn_asks_for_the_answer(database):
    text = observe(database, "SELECT 1", turns_left=0)
    assert "No tool turns left" in text and "<solution>" in text


def test_a_fault_tells_how_to_send_it_again():
    text = describe_fault("The tool call is not JSON.", turns_left=2)
    assert "The tool call is not JSON." in text
    assert '<tool_call>{"name": "execute_sql_query", "arguments": {"query": ' in text
    assert "Nothing was run" in text and text.endswith("Tool turns left: 2.")
