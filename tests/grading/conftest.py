"""A small database, and queries that misbehave in known ways."""

import sqlite3

import pytest


@pytest.fixture
def shop(tmp_path):
    """Two tables, one empty."""
    path = tmp_path / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
        INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'ink', 4.0), (3, 'pad', NULL);
        CREATE TABLE gone (id INTEGER);
        """
    )
    connection.close()
    return path
