"""Gold results are run once, and never served for another file or query."""

import os
import sqlite3
import threading

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.sql import GoldFiles, GoldStore, Limits, Outcome, execute, is_empty


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


def test_a_gold_of_todays_date_is_never_served_tomorrow(counted, tmp_path):
    get, ran = counted
    ages = "SELECT strftime('%Y', CURRENT_TIMESTAMP) - 1990 FROM item"
    for _ in range(2):
        files = GoldFiles(tmp_path / "gold", limits=Limits())
        store = GoldStore(files=files)
        assert get(store, ages).ok and get(store, ages).ok
        assert get(store, "SELECT strftime('%Y', name) FROM item").ok
    assert ran.count(ages) == 4 and len(ran) == 5
    assert len(list((tmp_path / "gold").iterdir())) == 1


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


@pytest.mark.parametrize(
    "failure",
    [Outcome("timeout"), Outcome("error", code="SQLITE_IOERR_READ"),
     Outcome("too_large", code="SQLITE_NOMEM")],
)  # fmt: skip
def test_what_may_pass_is_tried_again(shop, failure):
    store = GoldStore()
    answers = iter([failure, Outcome("ok", ("a",), [(1,)])])
    assert store.get(shop, "q", lambda: next(answers)) is failure
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


LIMITS = Limits()


@pytest.fixture
def counted_files(shop, tmp_path):
    """A function like `counted`'s, through a folder and a memory that is new every time."""
    ran = []

    def get(sql, *, limits=LIMITS, path=shop):
        def run():
            ran.append(sql)
            return execute(path, sql, limits=limits)

        store = GoldStore(files=GoldFiles(tmp_path / "golds", limits=limits))
        return store.get(path, sql, run)

    return get, ran


def test_files_outlive_the_memory_and_give_the_same(counted_files):
    get, ran = counted_files
    sql = (
        "SELECT 1, 1.0, 0.1, -0.0, 9e999, NULL, x'ff00', 'é', CAST(x'4DFC' AS TEXT), 1 << 62, name"
    )
    sql += " FROM item"
    first, second = get(sql), get(sql)
    assert ran == [sql]
    assert second == first and repr(second.rows) == repr(first.rows)
    assert (second.size, second.reads) == (first.size, frozenset({"name"}))


def test_files_belong_to_one_content_query_and_limit(counted_files, shop, tmp_path):
    get, ran = counted_files
    sql = "SELECT price FROM item WHERE id = 1"
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(shop.read_bytes())
    get(sql)
    get(sql, path=copy)
    assert len(ran) == 1  # the same content under another name
    get(sql, limits=Limits(seconds=7))
    assert len(ran) == 2
    with sqlite3.connect(copy) as writer:
        writer.execute("UPDATE item SET price = 9.5 WHERE id = 1")
    writer.close()
    assert get(sql, path=copy).rows == [(9.5,)]
    assert get(sql).rows == [(1.5,)]
    get("SELECT nope"), get("SELECT nope")
    assert ran[3:] == ["SELECT nope"] * 2  # failures are not kept


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:-1], lambda data: data.replace(b"1.5", b"2.5"),
     lambda data: b"\xff" * len(data), lambda data: data + b" ", lambda data: b"{}\n{}"],
)  # fmt: skip
def test_damaged_files_are_ignored_and_mended(counted_files, tmp_path, damage):
    get, ran = counted_files
    sql = "SELECT price FROM item WHERE id = 1"
    get(sql)
    (file,) = (tmp_path / "golds").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert get(sql).rows == [(1.5,)] and len(ran) == 2
    assert get(sql).rows == [(1.5,)] and len(ran) == 2


def test_a_file_under_anothers_name_is_ignored(counted_files, tmp_path):
    get, ran = counted_files
    get("SELECT 1")
    (first,) = (tmp_path / "golds").iterdir()
    get("SELECT 2")
    (second,) = set((tmp_path / "golds").iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert get("SELECT 2").rows == [(2,)] and len(ran) == 3


def test_many_writers_and_readers_at_once(shop, tmp_path):
    sql = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 20000)"
    sql += " SELECT * FROM r"
    whole = execute(shop, sql)
    faults = []

    def work():
        files = GoldFiles(tmp_path / "golds", limits=LIMITS)
        for _ in range(10):
            files.write(shop, sql, whole)
            if files.read(shop, sql) != whole:
                faults.append("a torn file")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(list((tmp_path / "golds").iterdir())) == 1  # no temporary file


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(shop, tmp_path):
    files = GoldFiles(tmp_path / "golds", limits=LIMITS)
    (tmp_path / "golds").rmdir()
    files.write(shop, "SELECT 1", execute(shop, "SELECT 1"))
    assert files.read(shop, "SELECT 1") is None
    with pytest.raises(UserError, match="cannot be made"):
        GoldFiles(shop / "golds", limits=LIMITS)


def test_leftovers_of_killed_writers_go(tmp_path):
    new, old = tmp_path / "new.tmp", tmp_path / "old.tmp"
    for file in (new, old):
        file.write_text("x")
    os.utime(old, (0, 0))
    GoldFiles(tmp_path, limits=LIMITS)
    assert new.exists() and not old.exists()


def test_predictions_have_room_for_twice_the_gold():
    limits = Limits(max_rows=10, max_bytes=1_000)
    assert limits.with_room_for(Outcome("ok", ("a",), [(1,)] * 5, size=500)) is limits
    wider = limits.with_room_for(Outcome("ok", ("a",), [(1,)] * 6, size=800))
    assert (wider.max_rows, wider.max_bytes) == (12, 1_600)
