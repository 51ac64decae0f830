"""Gold queries are tried before anything is learnt from them."""

import shutil
from types import SimpleNamespace

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool, check_golds
from jax_t2sql.sql import Limits


def problem(sql, *, db_id="shop", grading="set"):
    return SimpleNamespace(db_id=db_id, gold_sql=sql, grading=grading)


def test_kept_quarantined_and_empty(shop):
    other = shop.with_name("other.sqlite")
    shutil.copy(shop, other)
    good = [
        problem("SELECT name FROM item"),
        problem("SELECT name FROM item ORDER BY id LIMIT 2;", grading="list"),
        problem("SELECT count(*) FROM gone"),
        problem("SELECT id FROM item", db_id="other", grading="subset,=,3"),
    ]
    bad = {
        "SELECT nope FROM item": "no such column: nope",
        # Two of Spider's train golds have this form, which is no SQLite.
        "SELECT id FROM item ORDER BY id INTERSECT SELECT id FROM gone": "should come after",
        "SELECT random()": "two different results",
        "SELECT 1; SELECT 2": "second one",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT max(n) FROM r":
            "stopped after",
    }  # fmt: skip
    unusable = [
        (problem("SELECT id FROM item", grading="subset,=,9"), "can never be met"),
        (problem("SELECT id FROM item", grading="bag"), "'bag' is unknown"),
        (problem("SELECT id FROM item", db_id="shp"), "near names here: shop"),
    ]
    empty = [problem("SELECT id FROM gone"), problem("SELECT price FROM item WHERE id = 3")]
    quarantined = [(problem(sql), reason) for sql, reason in bad.items()] + unusable
    with GradingPool(1, limits=Limits(seconds=0.5)) as pool:
        everything = [*empty, *[p for p, _ in quarantined], *good]
        report = check_golds(everything, shop.parent, pool)
    assert report.kept == good
    assert report.empty == empty
    assert [p for p, _ in report.quarantined] == [p for p, _ in quarantined]
    for (_, told), (_, reason) in zip(report.quarantined, quarantined, strict=True):
        assert reason in told


def test_a_wrong_folder_is_not_the_datas_fault(tmp_path):
    with GradingPool(1) as pool, pytest.raises(UserError, match="'shop'"):
        check_golds([problem("SELECT 1")], tmp_path, pool)


def test_warnings_name_kept_problems(shop):
    sure = problem("SELECT name FROM item ORDER BY price DESC LIMIT 1")
    null_first = problem("SELECT name FROM item ORDER BY price LIMIT 1")
    tied = problem("SELECT name FROM item ORDER BY length(name) LIMIT 1")
    with GradingPool(1) as pool:
        report = check_golds([sure, null_first, tied], shop.parent, pool)
    assert report.kept == [sure, null_first, tied] and not report.quarantined
    assert [p for p, _ in report.warnings] == [null_first, tied]
    assert "NULL" in report.warnings[0][1] and "tie" in report.warnings[1][1]


def test_a_gold_that_predictions_have_no_time_for_is_told(shop):
    long = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 100000)"
    slow = problem(long + " SELECT max(n) FROM r")
    with GradingPool(1, limits=Limits(seconds=0.001), gold_limits=Limits(seconds=60)) as pool:
        report = check_golds([slow], shop.parent, pool)
    assert report.kept == [slow]
    assert "raise the limit" in report.warnings[0][1]
