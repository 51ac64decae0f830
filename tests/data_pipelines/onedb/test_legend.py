"""Drafts of legends, their file, and faults in it."""

import pytest
import yaml

from data_pipelines.onedb.legend import draft
from data_pipelines.onedb.legend_file import dump, from_plain, load
from jax_t2sql.errors import UserError


def test_draft_names_things_as_people_do(live):
    legend = draft(live.scan)
    assert legend.tables["country"].plural == "countries"
    assert legend.column("country", "country_name").noun == "name"
    assert legend.column("book", "height_cm").noun == "height"
    assert legend.joins["book.translator_id -> author.author_id"].role == "translator"
    assert legend.joins["book.author_id -> author.author_id"].role == "author"
    assert set(legend.links) == {"borrowed"}


def test_descriptions_become_meanings(live):
    legend = draft(live.scan, {("book", "pages"): "page count; pages without the cover"})
    pages = legend.column("book", "pages")
    assert pages.meaning == "page count; pages without the cover"
    assert "page count" in pages.other_nouns


def test_file_reads_back_as_it_was_written(live, tmp_path):
    path = tmp_path / "legend.yaml"
    path.write_text(dump(live.legend, live.scan))
    again = load(path, live.scan)
    assert again == live.legend


def test_what_a_file_leaves_out_is_as_drafted(live):
    plain = {
        "tables": {"book": {"noun": "volume", "columns": {"genre": {"values": {"novel": "a"}}}}}
    }
    legend = from_plain(plain, live.scan, where="legend")
    assert legend.tables["book"].plural == "volumes"
    assert legend.column("book", "genre").values == {"novel": "a"}
    assert legend.tables["reader"] == live.legend.tables["reader"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("tables: {bok: {noun: x}}", "'bok' is not known here; there are book"),
        ("tables: {book: {columns: {genre: {values: {novell: x}}}}}", "no row has the value"),
        ("tables: {book: {columns: {pages: {use: 3}}}}", "must be true or false"),
        ("tables: [book]", "expected names with values"),
        ("tables: {book: {noun: ''}}", "expected a word or phrase"),
        ("joins: {x: {role: y}}", "'x' is not known"),
        ("tables: {book: {purpose: [}", "is no YAML"),
    ],
)
def test_faults_are_named(live, tmp_path, text, message):
    path = tmp_path / "legend.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load(path, live.scan)


def test_draft_is_plain_yaml(live):
    assert set(yaml.safe_load(dump(live.legend, live.scan))) == {"tables", "joins", "links"}
