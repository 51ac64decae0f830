"""Kinds of columns, keys, joins and paths."""

import pytest

from data_pipelines.onedb.joins import all_paths, is_link, path_name, reverse
from data_pipelines.onedb.scan import scan_database
from data_pipelines.onedb.show import print_comparison, print_scan, scan_record
from jax_t2sql.errors import UserError


def test_kinds_are_judged_by_values(live):
    kinds = {c.name: c.kind for c in live.table("book").columns}
    assert kinds == {
        "book_id": "key",
        "title": "name",
        "genre": "category",
        "pages": "number",
        "height_cm": "number",
        "published": "date",
        "order": "category",
        "shelf_no": "key",
        "author_id": "key",
        "translator_id": "key",
    }
    book = live.table("book")
    assert book.column("height_cm").placeholder_low
    assert book.column("height_cm").unit == "cm"
    assert book.column("shelf_no").notes == ("numbers as text: they sort as text",)
    assert book.label == ("title",) and book.label_unique
    assert live.table("author").column("birth_year").kind == "year"


def test_undeclared_key_is_guessed_with_its_confidence(live):
    (edge,) = [e for e in live.edges if e.child == "note"]
    assert edge.name == "note.reader_id -> reader.reader_id"
    assert not edge.declared and 0.9 <= edge.confidence <= 1.0
    assert edge.childless and not edge.single


def test_number_that_is_a_reference_is_no_number(tmp_path):
    import sqlite3

    path = tmp_path / "world.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT)")
        db.execute("CREATE TABLE land (name TEXT PRIMARY KEY, seat INTEGER, height INTEGER)")
        db.executemany("INSERT INTO town VALUES (?, ?)", [(i, f"t{i}") for i in range(1, 200)])
        lands = [(f"l{i}", 7 * i, 250 + 7 * i) for i in range(1, 25)]
        db.executemany("INSERT INTO land VALUES (?, ?, ?)", lands)
    db.close()
    land = scan_database(path).table("land")
    assert land.column("seat").kind == "key"
    assert land.column("seat").notes == ("looks like a reference to town.id",)
    assert land.column("height").kind == "number"


def test_link_table_is_told_from_an_entity(live):
    assert is_link(live.scan, "borrowed")
    assert not is_link(live.scan, "note")


def test_paths_are_simple_and_complete(live):
    paths = all_paths(live.scan)
    assert len({path_name(p) for p in paths}) == len(paths)
    for path in paths:
        assert path_name(path) == path_name(reverse(path))
        assert len({hop.edge for hop in path}) == len(path) <= 3
    one_hop = {path_name(p) for p in paths if len(p) == 1}
    assert len(one_hop) == len(live.edges) == 6
    # Two keys from book to author make a path from author to author.
    assert any(p[0].source == p[-1].target == "author" for p in paths)


def test_scan_is_told_to_people_and_programs(live, capsys):
    record = scan_record(live.scan)
    assert record["db_id"] == "library" and record["paths"]["1"] == 6
    reserved = [c["name"] for t in record["tables"] for c in t["columns"] if c["reserved"]]
    assert reserved == ["order"]
    print_scan(live.scan)
    print_comparison([live.scan, live.scan])
    printed = capsys.readouterr().out
    assert "guessed" in printed and "must be quoted" in printed


def test_a_database_without_tables_is_refused(tmp_path):
    import sqlite3

    path = tmp_path / "void.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE VIEW v AS SELECT 1 AS a")
    db.close()
    with pytest.raises(UserError, match="holds no table"):
        scan_database(path)
