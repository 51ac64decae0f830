import contextlib
import sqlite3

import pytest

from jax_t2sql.grading import GradingPool
from jax_t2sql.scores.records import AnswerRow, Gold, QuestionRow
from jax_t2sql.sql import Limits


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with one database."""
    folder = tmp_path_factory.mktemp("databases")
    with contextlib.closing(sqlite3.connect(folder / "shop.sqlite")) as file, file:
        file.executescript(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, kind TEXT);"
            "CREATE TABLE sale (item INTEGER REFERENCES item (id), year INTEGER);"
        )
        rows = [(1, "tea", 2.5, "drink"), (2, "rye", 3.0, "food"), (3, "ale", 4.0, "drink")]
        file.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", rows)
        file.executemany(
            "INSERT INTO sale VALUES (?, ?)", [(1, 2020), (1, 2020), (2, 2020), (3, 2021)]
        )
    return folder


@pytest.fixture(scope="session")
def pool():
    with GradingPool(1, limits=Limits(seconds=5.0)) as pool:
        yield pool


@pytest.fixture(scope="session")
def question():
    """Makes a QuestionRow over the shop: ``question("q1", "SELECT …", grading="list")``."""

    def make(name, sql, *, grading="set", db_id="shop", difficulty=None, text="What is sold?"):
        golds = {"gold": Gold(sql=sql, grading=grading)}
        return QuestionRow(
            question_id=name, db_id=db_id, question=text, golds=golds, difficulty=difficulty
        )

    return make


@pytest.fixture(scope="session")
def answer():
    """Makes an AnswerRow: ``answer("q1", "SELECT …")``; None is no answer."""

    def make(name, sql, *, candidate=0, **fields):
        ending = "no_query" if sql is None else "answer"
        decoding = "sample" if candidate else "greedy"
        fields = {"ending": ending, "decoding": decoding} | fields
        return AnswerRow(question_id=name, candidate=candidate, sql=sql, **fields)

    return make
