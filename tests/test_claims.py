"""The experiments on the recipe's claims: their plans and their table. (They run for hours.)"""

import importlib
import json
import sqlite3
from pathlib import Path

import pytest

from jax_t2sql.config_loading import resolve
from jax_t2sql.train import parse

ROOT = Path(__file__).resolve().parent.parent
SEEDS = range(3)


@pytest.fixture
def claims(monkeypatch):
    """The modules of the program, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "bench" / "claims"))
    names = ("data", "arms", "measure", "table")
    found = {name: importlib.import_module(name) for name in names}
    path = ROOT / "tests" / "bench" / "claims" / "__main__.py"
    spec = importlib.util.spec_from_file_location("claims_program", path)
    found["program"] = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(importlib.sys.modules, "claims_program", found["program"])
    spec.loader.exec_module(found["program"])
    return found


@pytest.fixture
def jobs(claims, tmp_path):
    size = claims["arms"].Size(steps=7)
    return claims["program"].plan(claims["arms"].CLAIMS, tmp_path, SEEDS, size)


def test_every_run_is_planned_once_and_shared_by_claims(claims, jobs):
    assert len({job.workdir for job in jobs}) == len(jobs)
    arms = {arm.name for claim in claims["arms"].CLAIMS for arm in claim.arms}
    warms = len(claims["arms"].WARMS)
    assert len(jobs) == len(SEEDS) * (1 + warms + len(arms))
    assert [claim.letter for claim in claims["arms"].CLAIMS] == list("abcdef")
    assert {job.lag for job in jobs} == {0, 1, 4}


def test_the_options_of_every_run_make_a_configuration(jobs):
    for job in jobs:
        args = parse(["--config", str(ROOT / "configs" / "quickstart.py"), *job.options])
        config = resolve(args.run)
        assert config.adapter.kind == "full" and config.prompt.style == "question"
        assert config.rl.max_staleness == job.lag


def test_spans_of_reasoning_leave_a_query_as_it_was(claims):
    sql = "SELECT count(*) FROM a JOIN b USING (i) WHERE x = 'y'"
    thinking = claims["data"].reasoning(sql)
    assert thinking == f"/* a , b , count */ {sql}"
    with sqlite3.connect(":memory:") as connection:
        connection.executescript("CREATE TABLE a (i, x); CREATE TABLE b (i);")
        assert connection.execute(thinking).fetchall() == [(0,)]
    connection.close()


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT a FROM t WHERE b IS NULL", "WHERE b IS NULL"),
        ("SELECT a, COUNT(*) FROM t GROUP BY a", "GROUP BY a"),
        ("SELECT DISTINCT a FROM t", "SELECT DISTINCT a"),
    ],
)
def test_a_hint_is_a_piece_of_the_query(claims, sql, hint):
    assert claims["data"].hint(sql) == hint


def test_the_table_has_means_intervals_and_paired_differences(claims, tmp_path):
    results = {
        "a": {
            "clean": {0: {"accuracy": (60, 100)}, 1: {"accuracy": (70, 100)}},
            "corrupted": {0: {"accuracy": (50, 100)}, 1: {"accuracy": (56, 100)}},
        },
        "b": {"strict": {0: {"tokens": 20.0}}, "lenient": {0: {"tokens": 25.0}}},
        "c": {"unchecked": {0: {"luck": (0, 0)}}, "checked": {0: {"luck": (0, 0)}}},
    }
    text = claims["table"].write(results, tmp_path, size="Two seeds.")
    lines = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines()[4:]]
    assert lines[0][:3] == ["accuracy", "clean", "65.0% (2)"] and lines[0][4] == ""
    assert lines[0][3] == "58.2% to 71.3%"
    assert lines[1][:3] == ["accuracy", "corrupted", "53.0% (2)"]
    assert lines[1][4] == "-12 points (-37.4 to +13.4)"
    assert lines[3] == ["tokens", "lenient", "25 (1)", "25 to 25 (seeds)", "+5"]
    assert lines[4][2:] == ["none", "", ""], "nothing is said where nothing was right"
    assert (tmp_path / "claims.md").read_text() == text
    assert json.loads((tmp_path / "claims.json").read_text())["b"]["strict"]["0"]["tokens"] == 20
