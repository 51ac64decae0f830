"""A verdict is given again only where it would be the same."""

import pytest

from jax_t2sql.grading.memo import VerdictMemo
from jax_t2sql.grading.requests import Grade
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import Mode


def grade(pred, gold="SELECT 1", kind="set"):
    return Grade("x.sqlite", gold, pred, Mode(kind))


def test_all_parts_count():
    memo = VerdictMemo()
    memo.put("file", grade("SELECT 2"), Verdict("equal"))
    assert memo.get("file", grade("SELECT 2")).status == "equal"
    assert memo.get("file, rewritten", grade("SELECT 2")) is None
    assert memo.get("file", grade("SELECT  2")) is None
    assert memo.get("file", grade("SELECT 2", gold="SELECT 3")) is None
    assert memo.get("file", grade("SELECT 2", kind="list")) is None


@pytest.mark.parametrize("status", ["timeout", "crashed", "infrastructure", "gold_error"])
def test_what_may_be_the_machines_fault_is_not_kept(status):
    memo = VerdictMemo()
    memo.put("file", grade("SELECT 2"), Verdict(status))
    assert memo.get("file", grade("SELECT 2")) is None


@pytest.mark.parametrize(
    "sql",
    ["SELECT random()", "SELECT RandomBlob(1)", "SELECT date('now')", "SELECT CURRENT_DATE",
     "SELECT datetime( )", "SELECT julianday()", "SELECT unixepoch()", "SELECT strftime('%Y' )"],
)  # fmt: skip
def test_answers_that_change_by_themselves_are_not_kept(sql):
    memo = VerdictMemo()
    for request in (grade(sql), grade("SELECT 2", gold=sql)):
        memo.put("file", request, Verdict("different"))
        assert memo.get("file", request) is None


def test_the_least_recently_used_go_first():
    memo = VerdictMemo(max_chars=2_000)  # three of about 520 characters each
    for name in ("a", "b", "c"):
        memo.put("file", grade(f"SELECT {name}"), Verdict("equal"))
    assert memo.get("file", grade("SELECT a"))
    memo.put("file", grade("SELECT d"), Verdict("equal"))
    kept = [name for name in "abcd" if memo.get("file", grade(f"SELECT {name}"))]
    assert kept == ["a", "c", "d"]
    memo.put("file", grade("x" * 3_000), Verdict("equal"))
    assert memo.get("file", grade("x" * 3_000)) is None
