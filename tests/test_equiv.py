"""The program that checks files of pairs: real workers, real exit statuses."""

import json
import sqlite3

import pytest

from jax_t2sql.equiv import main
from jax_t2sql.errors import UserError

DDL = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);"
GOLD = "SELECT name FROM item WHERE price > 1"
WRONG = "SELECT name FROM item WHERE price >= 1"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "db").mkdir()
    connection = sqlite3.connect(tmp_path / "db" / "shop.sqlite")
    connection.executescript(DDL + "INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'ink', 4.0)")
    connection.close()
    return tmp_path


def write(folder, rows):
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check(folder, rows, *options, grading="set"):
    """Verdict lines, read back, and the exit status."""
    out = folder / "verdicts.jsonl"
    words = ["--pairs", write(folder, rows), "--grading", grading, "--timeout", "0.5", "--out", out]
    status = main([str(word) for word in (*words, "--workers", "1", *options)])
    return [json.loads(line) for line in out.read_text().splitlines()], status


def test_lines_come_in_order_with_what_was_found(folder, capsys):
    rows = [
        {"id": "a", "sql1": GOLD, "sql2": WRONG, "schema": DDL, "constraints": {}},
        {"id": 7, "gold": GOLD, "pred": "SELECT name FROM item WHERE 1 < price", "schema": DDL},
        {"gold": GOLD, "pred": "SELECT missing FROM item", "schema": DDL},
        {"id": "again", "gold": GOLD, "pred": WRONG, "schema": DDL},
    ]
    lines, status = check(folder, rows)
    assert status == 0
    assert [line["id"] for line in lines] == ["a", 7, 2, "again"]
    assert [line["verdict"] for line in lines][0::3] == ["refuted", "refuted"]
    assert lines[1]["verdict"] in ("equivalent", "unknown")
    assert lines[2]["verdict"] == "unknown" and "no such column" in lines[2]["reason"]
    names = {"id", "verdict", "reason", "source", "bound", "database", "cpu_seconds"}
    assert all(set(line) == names for line in lines)
    connection = sqlite3.connect(":memory:")
    connection.executescript(lines[0]["database"])
    results = [set(connection.execute(sql).fetchall()) for sql in (GOLD, WRONG)]
    assert results[0] != results[1]
    assert lines[0]["cpu_seconds"] > 0 and lines[1]["database"] is None
    told = capsys.readouterr().out
    assert "refuted" in told and "not runnable" in told and "processor time" in told


def test_the_grading_decides_and_may_stand_in_the_row(folder):
    row = {"gold": "SELECT name FROM item", "pred": "SELECT DISTINCT name FROM item", "schema": DDL}
    rows = [row, row | {"grading_method": "multiset"}]
    for grading, expected in (("set", [False, False]), ("row", [False, True])):
        lines, _ = check(folder, rows, grading=grading)
        assert [line["verdict"] == "refuted" for line in lines] == expected


def test_schemas_by_db_id(folder):
    schemas = folder / "schemas.json"
    schemas.write_text(json.dumps({"shop": {"schema": DDL}, "plain": DDL}))
    rows = [
        {"db_id": db_id, "gold": GOLD, "pred": WRONG} for db_id in ("shop", "plain", "elsewhere")
    ]
    lines, status = check(folder, rows, "--schemas", str(schemas))
    assert [line["verdict"] for line in lines] == ["refuted", "refuted", "unknown"]
    assert "no schema of 'elsewhere'" in lines[2]["reason"] and status == 3


def test_databases_by_db_id(folder):
    rows = [{"db_id": db_id, "gold": GOLD, "pred": WRONG} for db_id in ("shop", "gone")]
    lines, status = check(folder, rows, "--databases", str(folder / "db"))
    assert [line["verdict"] for line in lines] == ["refuted", "unknown"] and status == 3


def test_perturbed_copies_alone(folder):
    rows = [{"db_id": "shop", "gold": GOLD, "pred": "SELECT name FROM item WHERE id < 9"}]
    options = "--databases", str(folder / "db"), "--method", "perturbation"
    (line,), status = check(folder, rows, *options)
    assert status == 0 and line["verdict"] == "unknown" and line["broken"] == 0


def test_a_schema_that_does_not_load_is_told_in_its_line(folder):
    rows = [{"gold": GOLD, "pred": WRONG, "schema": "CREATE TABLE item (id,"}]
    (line,), status = check(folder, rows)
    assert line["verdict"] == "unknown" and "does not load" in line["reason"] and status == 3


@pytest.mark.parametrize("in_row", [True, False])
def test_a_path_is_no_schema(folder, in_row):
    path = str(folder / "db" / "shop.sqlite")
    (folder / "schemas.json").write_text(json.dumps({"shop": path}))
    row = {"db_id": "shop", "gold": GOLD, "pred": WRONG} | ({"schema": path} if in_row else {})
    options = () if in_row else ("--schemas", str(folder / "schemas.json"))
    (line,), status = check(folder, [row], *options)
    assert line["verdict"] == "unknown" and "no CREATE TABLE" in line["reason"] and status == 3


def test_one_pair_shown_for_people(folder, capsys):
    rows = [{"id": "a", "gold": "SELECT 1", "pred": "SELECT 2", "schema": DDL},
            {"id": 12, "gold": GOLD, "pred": WRONG, "schema": DDL}]  # fmt: skip
    words = ["--pairs", str(write(folder, rows)), "--grading", "set", "--show", "12"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.startswith("12: refuted")
    for part in (GOLD, WRONG, "gold: 0 rows", "prediction: 1 rows", "INSERT INTO", "price"):
        assert part in told
    assert "SELECT 2" not in told


def test_texts_of_users_files_do_nothing_to_the_terminal(folder, capsys):
    sql = "SELECT '\x1b[2J[red]' FROM item"
    rows = [{"id": 1, "gold": GOLD, "pred": sql, "schema": DDL}]
    assert main(["--pairs", str(write(folder, rows)), "--grading", "set", "--show", "1"]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told and "[red]" in told


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--grading", "bag"], "grading mode 'bag' is unknown"),
        (["--grading", "set", "--show", "x"], "has no pair of this id"),
        (["--grading", "set", "--timeout", "0"], "--timeout is 0.0"),
        (["--grading", "set", "--bound", "0"], "--bound is 0"),
        (["--grading", "set", "--method", "perturbation"], "needs --databases"),
        (["--grading", "set", "--strictness", "realistic"], "needs --databases"),
        (["--grading", "set", "--schemas", "s", "--databases", "d"], "give one of them"),
        (["--grading", "set", "--schemas", "none.json"], "cannot be read"),
        (["--grading", "set", "--out", "pairs.jsonl"], "would write over --pairs"),
    ],
)
def test_bad_options_are_told_before_anything_is_checked(folder, options, says, monkeypatch):
    monkeypatch.chdir(folder)
    write(folder, [{"gold": GOLD, "pred": WRONG, "schema": DDL}])
    with pytest.raises(UserError, match=says.replace("(", r"\(")):
        main(["--pairs", "pairs.jsonl", *options])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"gold": GOLD, "pred": WRONG}, "pair 1 has no schema; give --schemas"),
        ({"gold": GOLD, "pred": WRONG, "db_id": "shop"}, "has no schema; give --schemas"),
        ({"gold": GOLD, "pred": WRONG, "schema": 3}, "'schema' must be text"),
        ({"gold": GOLD, "schema": DDL}, "has neither gold and pred"),
    ],
)
def test_rows_that_cannot_be_checked_are_told_first(folder, row, says):
    good = {"gold": GOLD, "pred": WRONG, "schema": DDL}
    with pytest.raises(UserError, match=says):
        check(folder, [good, row])
    assert not (folder / "verdicts.jsonl").exists()


@pytest.mark.parametrize("content", ["[1]", "{", '{"a": 3}', '{"a": {"ddl": ""}}'])
def test_schemas_of_another_form_are_refused(folder, content):
    path = folder / "schemas.json"
    path.write_text(content)
    with pytest.raises(UserError, match="--schemas"):
        check(folder, [{"db_id": "a", "gold": GOLD, "pred": WRONG}], "--schemas", str(path))
