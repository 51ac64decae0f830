"""Pairs from the literature: those published as equal at bound 2 or more are proved.

Of the 23 that run in SQLite and have no counterexample on record, one is in fact different: a
column that is declared INTEGER may hold the text that its query asks for.
"""

import json
import random
import sqlite3

import pytest
from querying import fill

from jax_t2sql.equivalence.catalog import read_catalog
from jax_t2sql.equivalence.symbolic import Model, Proved, prove
from jax_t2sql.sql.compare import results_equal

_DIFFERENT = "literature-5"
_ONLY_AS_SETS = {"literature-56"}


@pytest.fixture(scope="module")
def pairs(data_dir) -> list[dict]:
    lines = (data_dir / "equivalence" / "literature.jsonl").read_text().splitlines()
    found = []
    for pair in map(json.loads, lines):
        bound = (pair.get("published_verieql") or {}).get("max_equ_bound") or 0
        if pair["sqlite_prepare_error"] is None and bound >= 2 and pair["label"] != "NEQ":
            found.append(pair)
    assert len(found) == 23
    return found


def _prove(pair: dict, mode: str):
    catalog = read_catalog(pair["schema"])
    return prove(pair["sql1"], pair["sql2"], catalog, mode=mode, bound=2, seconds=20)


def test_they_are_proved(pairs):
    """As multisets, which is more, or at least as sets."""
    proved = {}
    for pair in pairs:
        for mode in ("multiset", "set"):
            if pair["id"] not in proved and isinstance(_prove(pair, mode), Proved):
                proved[pair["id"]] = mode
    assert {p["id"] for p in pairs} - set(proved) == {_DIFFERENT}
    assert {id for id, mode in proved.items() if mode == "set"} == _ONLY_AS_SETS


def test_the_one_that_differs(pairs):
    pair = next(p for p in pairs if p["id"] == _DIFFERENT)
    proof = _prove(pair, "set")
    assert isinstance(proof, Model)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(pair["schema"])
    for name, rows in proof.rows.items():
        for row in rows:
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    first, second = (connection.execute(pair[key]).fetchall() for key in ("sql1", "sql2"))
    assert not results_equal(first, second, "set")


def test_no_small_random_database_contradicts_a_proof(pairs):
    rng = random.Random(0)
    values = [None, 0, 1, 10, 20, 86, 1001, "CS", 5, 60_000, 1.5, "x"]
    for pair in pairs:
        if pair["id"] == _DIFFERENT:
            continue
        tables = read_catalog(pair["schema"]).tables
        mode = "set" if pair["id"] in _ONLY_AS_SETS else "multiset"
        for _ in range(60):
            connection = sqlite3.connect(":memory:", isolation_level=None)
            connection.executescript(pair["schema"])
            few = rng.sample(values, 3)
            rows = {}
            for table in tables:
                count = rng.choice([0, 1, 2, 2])
                made = [tuple(rng.choice(few) for _ in table.columns) for _ in range(count)]
                rows[f'"{table.name}"'] = made
            fill(connection, rows)
            first, second = (connection.execute(pair[key]).fetchall() for key in ("sql1", "sql2"))
            assert results_equal(first, second, mode), pair["id"]
            connection.close()
