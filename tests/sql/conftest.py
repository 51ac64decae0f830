"""Small databases made on the spot."""

import sqlite3
from pathlib import Path

import pytest


@pytest.fixture
def make_database(tmp_path):
    """A function that writes a database file from a script and gives its path."""

    def make(script: str, name: str = "made.sqlite") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path)
        connection.executescript(script)
        connection.close()
        return path

    return make


@pytest.fixture
def shop(make_database) -> Path:
    """Two tables, a view, five rows."""
    return make_database(
        """
        CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
        INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'ink', 4.0), (3, 'pad', NULL);
        CREATE TABLE sale (item_id INTEGER REFERENCES item, day TEXT);
        INSERT INTO sale VALUES (1, 'Mon'), (2, 'Tue');
        CREATE VIEW dear AS SELECT name, price FROM item WHERE price > 2;
        """
    )
