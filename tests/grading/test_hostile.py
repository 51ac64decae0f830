"""Attacks on the pool: each ends in the verdict that it should, and leaves nothing behind."""

import hashlib
import runpy
import time
from pathlib import Path

import pytest

from jax_t2sql.grading import GradingPool
from jax_t2sql.sql import Limits

CORPUS = runpy.run_path(str(Path(__file__).with_name("hostile.py")))["CORPUS"]
GOLD = "SELECT name FROM item"
SECONDS = 0.3
# A stall lasts for ever; a machine with other work to do is late by less than this.
PATIENCE = 60.0


def test_the_corpus_is_large_and_its_names_are_unique():
    assert len({attack.name for attack in CORPUS}) == len(CORPUS) >= 60


@pytest.fixture
def guarded(shop, monkeypatch, tmp_path):
    """The shop, in a folder and with a temporary folder that must stay as they are."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    for variable in ("TMPDIR", "SQLITE_TMPDIR"):
        monkeypatch.setenv(variable, str(scratch))
    before = hashlib.sha256(shop.read_bytes()).digest(), sorted(tmp_path.rglob("*"))
    yield shop
    assert (hashlib.sha256(shop.read_bytes()).digest(), sorted(tmp_path.rglob("*"))) == before


def grade_all(pool, path, attacks):
    """The attacks whose verdict is not among theirs, with it."""
    futures = [(attack, pool.grade(path, GOLD, attack.sql, "set")) for attack in attacks]
    wrong = {}
    for attack, future in futures:
        verdict = future.result(timeout=len(attacks) * (SECONDS + 1) + PATIENCE)
        if verdict.status not in attack.statuses or verdict.matches:
            wrong[attack] = verdict
    return wrong


@pytest.mark.parametrize("memory", [4 * 2**30, 300 * 2**20])
def test_every_attack_ends_in_its_verdict(guarded, memory):
    """With little memory, too: a query that meets the bound is too large, its process lives."""
    with GradingPool(2, limits=Limits(seconds=SECONDS), memory_bytes=memory) as pool:
        wrong = grade_all(pool, guarded, CORPUS)
        # It serves as before: each worker, with the right answers.
        futures = [pool.grade(guarded, GOLD, f"SELECT /*{i}*/ name FROM item") for i in range(20)]
        assert {future.result(timeout=PATIENCE).status for future in futures} == {"equal"}
    # On a busy machine so short a time may not do for what is merely large: once more, with more.
    late = [attack for attack, verdict in wrong.items() if verdict.status == "timeout"]
    assert {attack.name: v for attack, v in wrong.items() if attack not in late} == {}
    with GradingPool(2, limits=Limits(seconds=PATIENCE / 4), memory_bytes=memory) as pool:
        assert not grade_all(pool, guarded, late)


@pytest.mark.parametrize("name", ["endless", "like_bomb", "doubling_ctes", "deep_minus", "rows"])
def test_no_attack_outlives_its_limit_by_much(guarded, name):
    (attack,) = [attack for attack in CORPUS if attack.name == name]
    with GradingPool(1, limits=Limits(seconds=SECONDS)) as pool:
        pool.execute(guarded, "SELECT 1").result()
        start = time.monotonic()
        assert pool.execute(guarded, attack.sql).result().status in attack.statuses
        assert time.monotonic() - start < SECONDS + 1 + PATIENCE
