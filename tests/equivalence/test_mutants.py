"""The faults that are planted, and the plain search that shows them."""

import enumerator
import golds
import mutants
import pytest
import replayer

DDL = """
CREATE TABLE p (id INTEGER PRIMARY KEY, name TEXT, n INTEGER);
CREATE TABLE c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES p (id), n INTEGER);
"""
GOLD = golds.Gold(
    "g",
    "SELECT DISTINCT p.name, COUNT(c.n) FROM p JOIN c ON c.p = p.id WHERE p.n > 3 AND c.n < 5"
    " GROUP BY p.id, p.name",
    DDL,
)


def test_each_kind_is_made_once_and_runs():
    made = mutants.mutants_of(GOLD)
    assert {m.kind for m in made} == set(mutants._KINDS)
    texts = [m.sql for m in made]
    assert len(set(texts)) == len(texts) and GOLD.sql not in texts
    for mutant in made:
        assert not replayer.replay(DDL, mutant.sql, mutant.sql).holds
        assert "fails" not in replayer.replay(DDL, mutant.sql, mutant.sql).why


@pytest.mark.parametrize(
    ("first", "second", "grading"),
    [
        ("SELECT name FROM p WHERE n > 7", "SELECT name FROM p WHERE n >= 7", "set"),
        ("SELECT name FROM p WHERE name = 'Rome'", "SELECT name FROM p WHERE name = 'rome'", "set"),
        (
            "SELECT p.name FROM p JOIN c ON c.p = p.id",
            "SELECT p.name FROM p LEFT JOIN c ON c.p = p.id",
            "set",
        ),
        ("SELECT name FROM p", "SELECT DISTINCT name FROM p", "multiset"),
        ("SELECT COUNT(n) FROM p", "SELECT COUNT(*) FROM p", "set"),
    ],
)
def test_the_search_finds_what_differs(first, second, grading):
    script = enumerator.Enumerator(DDL).witness(first, second, grading=grading)
    assert replayer.replay(script, first, second, grading=grading).holds


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SELECT name FROM p WHERE n > 7", "SELECT name FROM p WHERE 7 < n"),
        # SQLite chooses which of tied rows, and which row stands for a group.
        ("SELECT name FROM p LIMIT 1", "SELECT name FROM p ORDER BY id - id LIMIT 1"),
        ("SELECT name, n FROM p GROUP BY name", "SELECT name, n FROM p GROUP BY name"),
    ],
)
def test_the_search_leaves_alone_what_does_not(first, second):
    assert enumerator.Enumerator(DDL).witness(first, second) is None


def test_what_it_finds_keeps_the_keys():
    script = enumerator.Enumerator(DDL).witness(
        "SELECT p FROM c WHERE p IS NOT NULL", "SELECT p FROM c WHERE p IN (SELECT id FROM p) AND 0"
    )
    assert replayer.replay(script, "SELECT 1 FROM c", "SELECT 2").holds
    never = "SELECT p FROM c WHERE p IS NOT NULL AND p NOT IN (SELECT id FROM p)"
    assert enumerator.Enumerator(DDL).witness(never, "SELECT 1 WHERE 0") is None


def test_ties_are_broken_at_random():
    # Two groups of one row each tie; by name or by id, which of them comes first is chance.
    first = "SELECT name FROM p GROUP BY id ORDER BY COUNT(*) DESC LIMIT 1"
    second = "SELECT name FROM p GROUP BY name ORDER BY COUNT(*) DESC LIMIT 1"
    script = enumerator.Enumerator(DDL).witness(first, second)
    if script is not None:  # two rows of one name win by name, and tie with a third by id
        assert script.count("INSERT") > 2
    loose = enumerator.loosened("SELECT a FROM t ORDER BY b LIMIT 2", ordered=False)
    assert loose == "SELECT a FROM t ORDER BY b, RANDOM() LIMIT 2"
    assert enumerator.loosened("SELECT a FROM t", ordered=True) == "SELECT a FROM t"
