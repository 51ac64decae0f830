"""A small shop: questions with good, bad, slow and empty golds, in two databases."""

import json
import sqlite3

import pytest

GOOD = [
    {
        "question_id": i,
        "db_id": "shop" if i % 2 else "depot",
        "question": f"Which items cost more than {i}?",
        "evidence": f"cost refers to price; more refers to > {i}",
        "SQL": f"SELECT name FROM item WHERE price > {i}",
        "difficulty": "simple",
    }
    for i in range(20)
]
BAD = [
    {"db_id": "shop", "question": "No such table?", "SQL": "SELECT a FROM nowhere"},
    {"db_id": "none", "question": "No such database?", "SQL": "SELECT 1"},
    {"db_id": "shop", "question": "Random?", "SQL": "SELECT random()"},
]
EMPTY = [{"db_id": "shop", "question": "Nothing?", "SQL": "SELECT name FROM item WHERE price < 0"}]


@pytest.fixture
def shop(tmp_path):
    """A folder with questions.jsonl and databases/, the second of them in BIRD's layout."""
    databases = tmp_path / "databases"
    for name, path in (
        ("shop", databases / "shop.sqlite"),
        ("depot", databases / "depot" / "depot.sqlite"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE item (name TEXT, price REAL)")
            rows = [(f"{name} {i}", i * 1.5) for i in range(30)]
            connection.executemany("INSERT INTO item VALUES (?, ?)", rows)
        connection.close()
    described = databases / "depot" / "database_description"
    described.mkdir()
    (described / "item.csv").write_text(
        "original_column_name,column_name,column_description,data_format,value_description\n"
        "price,,what it costs,real,in euros\n"
    )
    write_rows(tmp_path / "questions.jsonl", GOOD + BAD + EMPTY)
    return tmp_path


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
