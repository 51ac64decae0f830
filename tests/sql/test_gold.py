"""Gold results are run once, and never served for another file or query."""

import sqlite3

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.sql import GoldStore, Outcome, execute, is_empty


@pytest.fixture
def counted(shop):
    """A function that gets a gold outcome from a store, and the queries that it really ran."""
    ran = []

    def get(store, sql):
        def run():
            ran.append(sql)
            return execute(shop, sql)

        return store.get(shop, sql, run)

    return get, ran


def test_each_query_runs_once(counted):
    get, ran = counted
    store = GoldStore()
    first = get(store, "SELECT id FROM item")
    assert get(store, "SELECT id FROM item") is first
    assert get(store, "SELECT nope").status == get(store, "SELECT nope").status == "error"
    assert ran == ["SELECT id FROM item", "SELECT nope"]


def test_a_changed_file_is_another_database(counted, shop):
    get, ran = counted
    store = GoldStore()
    assert get(store, "SELECT price FROM item WHERE id = 1").rows == [(1.5,)]
    with sqlite3.connect(shop) as writer:
        writer.execute("UPDATE item SET price = 2.5 WHERE id = 1")
    writer.close()
    assert get(store, "SELECT price FROM item WHERE id = 1").rows == [(2.5,)]
    shop.unlink()
    with pytest.raises(UserError):
        get(store, "SELECT price FROM item WHERE id = 1")


def test_a_timeout_is_tried_again(shop):
    store = GoldStore()
    answers = iter([Outcome("timeout"), Outcome("ok", ("a",), [(1,)])])
    assert store.get(shop, "q", lambda: next(answers)).status == "timeout"
    assert store.get(shop, "q", lambda: next(answers)).ok
    assert store.get(shop, "q", lambda: next(answers)).ok  # kept: nothing is left to run


def test_memory_is_bounded_and_the_oldest_goes(counted):
    get, ran = counted
    store = GoldStore(max_cells=10)  # each of these has 3 cells and costs 4
    for sql in ("SELECT id FROM item", "SELECT name FROM item", "SELECT id FROM item",
                "SELECT price FROM item"):  # fmt: skip
        get(store, sql)
    assert len(store) == 2
    get(store, "SELECT id FROM item")
    assert len(ran) == 3
    get(store, "SELECT name FROM item")
    assert len(ran) == 4
    get(store, "SELECT a.* FROM item a, item b")  # larger than the whole store: not kept
    assert len(store) == 2


@pytest.mark.parametrize(
    ("rows", "empty"),
    [([], True), ([(None, None)], True), ([(None,), (None,)], True), ([(None, 0)], False),
     ([("",)], False)],
)  # fmt: skip
def test_empty_is_no_row_or_nothing_but_null(rows, empty):
    assert is_empty(Outcome("ok", ("a",), rows)) is empty
