"""Real gold queries: the ones that cannot serve are the ones that are labelled so."""

import json
from types import SimpleNamespace

import pytest

from jax_t2sql.grading import GradeJob, GradingPool, check_golds
from jax_t2sql.sql import resolve_database


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def pool():
    with GradingPool(2) as pool:
        yield pool


def test_empty_golds_are_found(data_dir, pool):
    rows = read(data_dir / "spider_dev" / "questions.jsonl")
    problems = [
        SimpleNamespace(db_id=row["db_id"], gold_sql=row["SQL"], grading=None, row=row)
        for row in rows
    ]
    report = check_golds(problems, data_dir / "spider_dev" / "database", pool)
    assert report.quarantined == []
    assert report.empty == [p for p in problems if p.row["all_null_or_empty"]]
    assert len(report.kept) + len(report.empty) == len(rows) == 1034


def test_predictions_get_the_labels_of_the_public_rule(data_dir, pool):
    rows = read(data_dir / "test_suite" / "spider_dev_predictions.jsonl")[:1034]
    databases = data_dir / "spider_dev" / "database"
    jobs = [
        GradeJob(resolve_database(databases, row["db_id"]), row["gold"], row["pred"], "bird")
        for row in rows
    ]
    assert [v.matches for v in pool.grade_many(jobs)] == [row["eq_set"] for row in rows]
