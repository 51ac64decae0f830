"""Database files are found by id, checked, and opened whatever their path holds."""

import contextlib
import shutil
import sqlite3

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.sql import execute, resolve_database
from jax_t2sql.sql.database import check_database, connect_readonly, file_identity


def test_three_layouts(shop, tmp_path):
    root = tmp_path / "dbs"
    (root / "a").mkdir(parents=True)
    shutil.copy(shop, root / "a" / "a.sqlite")
    shutil.copy(shop, root / "b.sqlite")
    assert resolve_database(root, "a") == root / "a" / "a.sqlite"
    assert resolve_database(str(root), "b") == root / "b.sqlite"
    assert resolve_database(shop, "any id") == shop


@pytest.mark.parametrize("db_id", ["../made", "a/b", "a\\b", "..", ".", "", "a\0b"])
def test_an_id_is_no_path(shop, db_id):
    with pytest.raises(UserError, match="no plain name"):
        resolve_database(shop.parent, db_id)


def test_missing_names_both_places_and_near_ids(shop):
    with pytest.raises(UserError, match=r"made_.*made_\.sqlite.*near names here: made"):
        resolve_database(shop.parent, "made_")
    with pytest.raises(UserError, match="no such directory"):
        resolve_database(shop.parent / "nowhere", "made")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip", "starts with b'PK"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    ],
)
def test_what_is_no_database(tmp_path, content, fault):
    (tmp_path / "x.sqlite").write_bytes(content)
    with pytest.raises(UserError, match=fault):
        resolve_database(tmp_path, "x")


def test_an_unfinished_log_is_refused_not_ignored(shop):
    writer = sqlite3.connect(shop)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO item VALUES (4, 'cap', 1)")
    writer.commit()
    with contextlib.closing(writer), pytest.raises(UserError, match="wal_checkpoint"):
        check_database(shop)
    check_database(shop)  # closing the last writer folds the log in
    assert execute(shop, "SELECT count(*) FROM item").rows == [(4,)]


def test_a_change_that_was_broken_off_is_seen(shop, tmp_path):
    """A copy taken in the middle of a transaction whose pages are in the file already."""
    writer = sqlite3.connect(shop, isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")
    writer.execute("BEGIN")
    writer.execute("UPDATE item SET name = hex(zeroblob(5000))")
    torn = tmp_path / "torn" / "torn.sqlite"
    torn.parent.mkdir()
    shutil.copy(shop, torn)
    shutil.copy(f"{shop}-journal", f"{torn}-journal")
    writer.execute("ROLLBACK")
    writer.close()
    with pytest.raises(UserError, match="half changed"):
        check_database(torn)
    with contextlib.closing(sqlite3.connect(torn)) as healer:
        healer.execute("SELECT count(*) FROM item").fetchall()
    check_database(torn)
    (torn.parent / "torn.sqlite-journal").write_bytes(bytes(512))  # a persistent one, done with
    check_database(torn)


@pytest.mark.parametrize(
    "name", ["a#b", "a?b=c", "a%20b", "a b", "ä&ö", "a%", "#?% x", "a'b\"c", "a?mode=rwc"]
)
def test_odd_paths(make_database, name):
    path = make_database("CREATE TABLE t(a); INSERT INTO t VALUES (7)", f"{name}/{name}.sqlite")
    assert execute(resolve_database(path.parents[1], name), "SELECT a FROM t").rows == [(7,)]
    assert sorted(p.name for p in path.parents[1].iterdir()) == [name]


def test_read_only_at_the_lowest_level_too(shop):
    with contextlib.closing(connect_readonly(shop)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("INSERT INTO sale VALUES (1, 'x')")
        with pytest.raises(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("PRAGMA user_version = 7")


def test_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="none.sqlite"):
        execute(tmp_path / "none.sqlite", "SELECT 1")
    with pytest.raises(UserError, match="none.sqlite"):
        file_identity(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_identity_changes_with_the_file(shop):
    before = file_identity(shop)
    assert file_identity(shop) == before
    with sqlite3.connect(shop) as writer:
        writer.execute("UPDATE item SET price = 2.5 WHERE id = 1")  # same size
    writer.close()
    assert file_identity(shop) != before


@pytest.mark.parametrize("name", ["x" * 5_000, "é" * 200, "\ud800" * 100])
def test_a_name_too_long_for_any_file_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="is no plain name"):
        resolve_database(tmp_path, name)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_link_hides_no_unfinished_change(make_database, tmp_path, suffix):
    path = make_database("CREATE TABLE t (a)")
    link = tmp_path / "links" / "shop.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    assert resolve_database(tmp_path / "links", "shop") == link
    # SQLite keeps its log beside the file, not beside the link.
    hot = bytes.fromhex("d9d505f920a163d7") + bytes(24)
    path.with_name(path.name + suffix).write_bytes(hot)
    with pytest.raises(UserError, match=f"made.sqlite{suffix} holds"):
        resolve_database(tmp_path / "links", "shop")
