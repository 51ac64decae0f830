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
PATIENCE = 10.0


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


@pytest.mark.parametrize("memory", [4 * 2**30, 300 * 2**20])
def test_every_attack_ends_in_its_verdict(guarded, memory):
    """With little memory, too: a query that meets the bound is too large, its process lives."""
    wrong = []
    with GradingPool(2, limits=Limits(seconds=SECONDS), memory_bytes=memory) as pool:
        futures = [(attack, pool.grade(guarded, GOLD, attack.sql, "set")) for attack in CORPUS]
        for attack, future in futures:
            verdict = future.result(timeout=len(CORPUS) * (SECONDS + 1) + PATIENCE)
            if verdict.status not in attack.statuses or verdict.matches:
                wrong.append((attack.name, verdict))
        assert not wrong
        # It serves as before: each worker, with the right answers.
        futures = [pool.grade(guarded, GOLD, f"{GOLD} -- {i}", "list") for i in range(20)]
        assert {future.result(timeout=PATIENCE).status for future in futures} == {"equal"}


@pytest.mark.parametrize("name", ["endless", "like_bomb", "doubling_ctes", "deep_minus", "rows"])
def test_no_attack_outlives_its_limit_by_much(guarded, name):
    (attack,) = [attack for attack in CORPUS if attack.name == name]
    with GradingPool(1, limits=Limits(seconds=SECONDS)) as pool:
        pool.execute(guarded, "SELECT 1").result()
        start = time.monotonic()
        assert pool.execute(guarded, attack.sql).result().status in attack.statuses
        assert time.monotonic() - start < SECONDS + 1 + PATIENCE
