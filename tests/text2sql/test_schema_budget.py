import sqlite3

import pytest

from jax_t2sql.text2sql.ddl import read_ddl
from jax_t2sql.text2sql.schema_budget import fit_schema, relevance, words

SHOP = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, first_name TEXT, shoe_size INT -- size of the feet
);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INT REFERENCES customer, price REAL,
  note TEXT);
CREATE TABLE weather (day DATE PRIMARY KEY, rain REAL, wind REAL, cloud REAL, sun REAL,
  mist REAL, hail REAL, snow REAL, frost REAL, pressure_at_sea_level REAL, humidity REAL);
"""
ABOUT = "What is the highest price paid by customers of a shoe size over 44?"


def columns(text):
    return {(t.name, c.name) for t in read_ddl(text).schema.tables for c in t.columns}


def test_words():
    assert words("the StarRatings of full_names, 2016") == ["star", "rat", "full", "nam", "2016"]
    assert words("countries") == words("Country")
    assert words("ÉtéCount x2") == ["été", "count", "x", "2"]
    assert words("HTMLPage userID") == ["html", "pag", "user", "id"]


def test_a_schema_within_the_budget_is_whole():
    doc = read_ddl(SHOP)
    fitted = fit_schema(doc, budget=10_000, count=len, about=ABOUT)
    assert fitted.is_whole and fitted.columns == fitted.all == 18
    assert fitted.text.startswith("CREATE TABLE customer")
    assert fitted.tokens == len(fitted.text)


def test_what_the_question_names_stays_and_the_text_says_what_is_gone():
    fitted = fit_schema(read_ddl(SHOP), budget=345, count=len, about=ABOUT)
    assert columns(fitted.text) >= {
        ("customer", "id"),
        ("customer", "shoe_size"),
        ("purchase", "customer_id"),
        ("purchase", "price"),
    }
    assert "FOREIGN KEY (customer_id) REFERENCES customer (id)" in fitted.text
    assert fitted.tables_left_out == ("weather",)
    first = fitted.text.split("\n")[0]
    assert first.startswith(f"-- {fitted.columns} of 18 columns are shown")
    assert "1 of 3 tables are left out" in first
    shown = sum(table == "purchase" for table, _ in columns(fitted.text))
    assert f"CREATE TABLE purchase ( -- {shown} of 4 columns shown" in fitted.text


def test_the_text_shrinks_with_the_budget_and_never_to_nothing():
    doc = read_ddl(SHOP)
    sizes = []
    for budget in (700, 500, 400, 300, 200, 100, 0):
        fitted = fit_schema(doc, budget=budget, count=len, about=ABOUT)
        assert fitted.tokens <= budget or fitted.columns == 1
        assert columns(fitted.text) <= columns(SHOP)
        sizes.append(fitted.columns)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


def test_comments_and_rare_words_count():
    doc = read_ddl(SHOP)
    scores = relevance(doc, "feet")
    assert max(scores, key=scores.get) == ("customer", "shoe_size")
    scores = relevance(doc, "id of the wind")
    assert max(scores, key=scores.get) == ("weather", "wind")


@pytest.mark.parametrize("about", ["", "the of", "日本"])
def test_a_question_that_shares_nothing_still_gets_a_schema(about):
    fitted = fit_schema(read_ddl(SHOP), budget=250, count=len, about=about)
    assert 1 <= fitted.columns < 18
    sqlite3.connect(":memory:").executescript(fitted.text)
