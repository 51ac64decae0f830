"""Checks of pairs in the pool: kept, shared, watched."""

from concurrent.futures import Future

import pytest

from jax_t2sql.equivalence import equivalent, unknown
from jax_t2sql.equivalence.verdict import Answer
from jax_t2sql.errors import UserError
from jax_t2sql.grading import CacheCounts, EquivalenceRule, GradingPool
from jax_t2sql.grading.equivalence import (
    PairChecks,
    canonical,
    equivalence_request,
    pair_key,
    seconds_until_stuck,
)
from jax_t2sql.grading.fates import unfailed, when_dead, when_stuck
from jax_t2sql.grading.requests import Failed
from jax_t2sql.sql import Mode

DDL = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);"
RULE = EquivalenceRule(seconds=5)
GOLD = "SELECT name FROM item WHERE price > 1"
WRONG = "SELECT name FROM item WHERE price >= 1"


def request(pred=WRONG, *, gold=GOLD, schema=DDL, kind="set", rule=RULE):
    return equivalence_request(gold, pred, schema, None, Mode(kind), rule)


def test_layout_comments_and_case_of_names_make_no_other_pair():
    assert canonical("select NAME -- what\n FROM item;") == canonical("SELECT name FROM Item")
    assert canonical("SELECT 'A'") != canonical("SELECT 'a'")
    assert canonical('SELECT "A"') != canonical('SELECT "a"')
    assert canonical("SELECT 1; SELECT 2") != canonical("SELECT 1")


def test_every_part_of_a_pair_counts():
    base = pair_key(request(), "schema")
    assert base == pair_key(request(WRONG.lower().replace("'", "'")), "schema")
    others = [
        pair_key(request(), "other"),
        pair_key(request("SELECT 1"), "schema"),
        pair_key(request(gold="SELECT 1"), "schema"),
        pair_key(request(kind="list"), "schema"),
        pair_key(request(rule=EquivalenceRule(seconds=19)), "schema"),
    ]
    assert base not in others and len(set(others)) == len(others)


def done(verdict):
    future = Future()
    future.set_result(verdict)
    return future


def test_a_verdict_is_kept_and_then_costs_nothing():
    checks = PairChecks()
    found = equivalent(reason="r", source="proof", bound=2, cpu_seconds=0.3)
    assert checks.ask(("a",), lambda: done(found)).result() is found
    again = checks.ask(("a",), lambda: pytest.fail("asked twice")).result()
    assert (again.kind, again.bound, again.cpu_seconds) == ("equivalent", 2, 0.0)
    assert checks.counts == CacheCounts(asked=2, known=1)


def test_a_check_that_runs_is_shared():
    checks, running = PairChecks(), Future()
    first = checks.ask(("a",), lambda: running)
    second = checks.ask(("a",), lambda: pytest.fail("begun twice"))
    assert not second.done()
    running.set_result(unknown("open", cpu_seconds=0.2))
    assert (first.result().cpu_seconds, second.result().cpu_seconds) == (0.2, 0.0)


def test_failures_are_shared_and_not_kept():
    checks, running = PairChecks(), Future()
    checks.ask(("a",), lambda: running)
    second = checks.ask(("a",), lambda: pytest.fail("begun twice"))
    running.set_exception(UserError("no schema"))
    with pytest.raises(UserError, match="no schema"):
        second.result()
    stuck = unknown("the check was stopped")  # took no time that anybody knows of
    assert checks.ask(("a",), lambda: done(stuck)).result() is stuck
    assert (
        checks.ask(("a",), lambda: done(unknown("new", cpu_seconds=1.0))).result().reason == "new"
    )


def test_the_least_recently_used_goes_first():
    checks = PairChecks(most=2)
    verdict = unknown("open", cpu_seconds=0.1)
    for key in "abac":
        checks.ask((key,), lambda: done(verdict))
    begun = []
    for key in "acb":
        checks.ask((key,), lambda key=key: begun.append(key) or done(verdict))
    assert begun == ["b"]


def test_what_becomes_of_a_check_that_does_not_end():
    stuck = when_stuck(request(), "equivalence", seconds_until_stuck(request()))
    assert stuck.kind == "unknown" and "stopped after 25 s" in stuck.reason
    assert when_dead(request(), "equivalence", "exit status -9").kind == "unknown"
    failed = unfailed(request(), Failed("Traceback\nValueError: what", is_users=False))
    assert failed.kind == "unknown" and failed.reason == "the checker failed: ValueError: what"
    with pytest.raises(UserError, match="no schema"):
        unfailed(request(), Failed("no schema", is_users=True))


def test_perturbation_needs_a_database():
    with pytest.raises(UserError, match="needs a real database"):
        request(rule=EquivalenceRule(method="perturbation"))


@pytest.fixture(scope="module")
def pool():
    with GradingPool(workers=1) as pool:
        yield pool


def test_the_pool_checks_pairs(pool):
    before = pool.equivalence_cache
    verdict = pool.check_equivalence(GOLD, WRONG, schema=DDL, rule=RULE).result()
    assert verdict.kind == "refuted" and isinstance(verdict.gold, Answer)
    again = pool.check_equivalence(GOLD, f"{WRONG} -- so", schema=DDL, rule=RULE).result()
    assert again.kind == "refuted" and again.cpu_seconds == 0.0
    counts = pool.equivalence_cache
    assert (counts.asked - before.asked, counts.known - before.known) == (2, 1)


def test_the_mode_decides(pool):
    pair = "SELECT name FROM item", "SELECT DISTINCT name FROM item"
    kinds = {
        mode: pool.check_equivalence(*pair, schema=DDL, mode=mode, rule=RULE).result().kind
        for mode in ("set", "multiset")
    }
    assert kinds["multiset"] == "refuted" and kinds["set"] != "refuted"


def test_a_database_is_schema_and_rows(pool, shop):
    verdict = pool.check_equivalence(GOLD, WRONG, schema=shop, rule=RULE).result()
    assert verdict.kind == "refuted"
    rule = EquivalenceRule(method="perturbation", seconds=0.5)
    pred = "SELECT name FROM item WHERE id < 3"
    verdict = pool.check_equivalence(GOLD, pred, schema=shop, rule=rule).result()
    assert verdict.broken is not None and verdict.source in (None, "perturbation")


def test_a_check_that_is_stuck_inside_sqlite_is_killed(pool):
    bomb = f"SELECT name FROM item WHERE hex(zeroblob(450000)) LIKE '%{'0' * 40_000}1'"
    pids = pool.worker_pids
    rule = EquivalenceRule(seconds=0.05)
    verdict = pool.check_equivalence(GOLD, bomb, schema=DDL, rule=rule).result()
    assert verdict.kind == "unknown" and "stopped after 5.2 s" in verdict.reason
    assert pool.worker_pids != pids
    assert pool.check_equivalence(GOLD, WRONG, schema=DDL, rule=RULE).result().kind == "refuted"


def test_bad_schemas_are_the_users(pool, tmp_path):
    for schema in ("CREATE TABLE item (id,", tmp_path / "none.sqlite"):
        with pytest.raises(UserError):
            pool.check_equivalence(GOLD, WRONG, schema=schema, rule=RULE).result()
