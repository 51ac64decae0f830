"""A small library with what templates trip over, open for drawing."""

import sqlite3

import pytest

from data_pipelines.onedb.build import open_live

SCHEMA = """
CREATE TABLE country (id INTEGER PRIMARY KEY, country_name TEXT);
CREATE TABLE author (
  author_id INTEGER PRIMARY KEY, name TEXT, birth_year INTEGER,
  country_id INTEGER REFERENCES country(id)
);
CREATE TABLE book (
  book_id INTEGER PRIMARY KEY, title TEXT, genre TEXT, pages INTEGER, height_cm INTEGER,
  published TEXT, "order" TEXT, shelf_no TEXT,
  author_id INTEGER REFERENCES author(author_id),
  translator_id INTEGER REFERENCES author(author_id)
);
CREATE TABLE reader (reader_id INTEGER PRIMARY KEY, name TEXT, age INTEGER, status TEXT);
CREATE TABLE borrowed (
  book_id INTEGER REFERENCES book(book_id), reader_id INTEGER REFERENCES reader(reader_id)
);
CREATE TABLE note (note_id INTEGER PRIMARY KEY, reader_id INTEGER, text TEXT);
"""
COUNTRIES = ["Chile", "Norway", "Japan", "Kenya"]
GENRES = ["novel", "poetry", "essay"]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The database file."""
    path = tmp_path_factory.mktemp("library") / "library.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(SCHEMA)
        db.executemany("INSERT INTO country VALUES (?, ?)", enumerate(COUNTRIES, start=1))
        db.executemany(
            "INSERT INTO author VALUES (?, ?, ?, ?)",
            [(i, f"Author {chr(64 + i)}", 1900 + 7 * i, 1 + i * i % 3) for i in range(1, 15)],
        )
        db.executemany(
            "INSERT INTO book VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    i,
                    f"Book {i:02d}",
                    GENRES[(i * i + i // 3) % 3],
                    90 + 37 * i % 611,
                    0 if i % 7 == 0 else 15 + i % 13 + i // 9,
                    None if i % 11 == 0 else f"{1990 + i % 20}-0{1 + i % 9}-1{i % 10}",
                    "first" if i % 4 else "second",
                    str(5 + i * 3),
                    1 + (i * 5) % 13,
                    None if i % 3 else 1 + i % 9,
                )
                for i in range(1, 61)
            ],
        )
        db.executemany(
            "INSERT INTO reader VALUES (?, ?, ?, ?)",
            [
                (i, f"Reader {chr(64 + i)}", 15 + 3 * i, ["member", "guest", "-", None][i % 4])
                for i in range(1, 21)
            ],
        )
        db.executemany(
            "INSERT INTO borrowed VALUES (?, ?)",
            [(b, r) for b in range(1, 61) for r in range(1, 18) if (b * r + b // 4) % 9 == 1],
        )
        db.executemany(
            "INSERT INTO note VALUES (?, ?, ?)",
            [(i, 1 + i % 12, f"note number {i}") for i in range(1, 31)],
        )
    db.close()
    return path


@pytest.fixture(scope="session")
def live(library):
    with open_live(library, None) as opened:
        yield opened
