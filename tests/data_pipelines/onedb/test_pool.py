"""The pool: every join path, many families, deterministic, right by its own checks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.onedb.build import build_pool, open_live, problems_on, report
from data_pipelines.onedb.conditions import Condition, literal, round_near
from data_pipelines.onedb.families import MODULES, all_families
from data_pipelines.onedb.leak import LeakCheck, shape
from data_pipelines.onedb.pool import draw_pool
from data_pipelines.onedb.wording import REGISTERS, reading_fault
from jax_t2sql.errors import UserError
from jax_t2sql.sql import Limits, execute, is_ordered
from jax_t2sql.text2sql import Problem, load_problems


@pytest.fixture(scope="module")
def built(live):
    return build_pool(live, 500, seed=3)


def test_every_path_has_a_question(built):
    assert set(built.pool.paths) == built.pool.covered


def test_many_families_of_every_tier_and_register(built):
    made = [name for name, count in built.pool.by_family.items() if count]
    assert len(made) >= 60
    assert {row["tier"] for row in built.rows} == {1, 2, 3, 4}
    assert {row["register"] for row in built.rows} == set(REGISTERS)


def test_rows_run_and_are_in_the_question_format(built, live, tmp_path):
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in built.rows))
    problems = load_problems(path)
    assert len({p.question for p in problems}) == len({p.question_id for p in problems}) == 500
    for problem in problems[:100]:
        outcome = execute(live.scan.path, problem.gold_sql, limits=Limits(seconds=10.0))
        assert outcome.ok and outcome.rows and not outcome.warnings
        assert (problem.grading == "list") == (is_ordered(problem.gold_sql) and
                                               len(outcome.rows) > 1)  # fmt: skip


def test_same_seed_same_rows(built, library):
    with open_live(library, None) as other:
        again = build_pool(other, 500, seed=3)
        assert again.rows == built.rows
        assert build_pool(other, 50, seed=4).rows != built.rows[:50]


def test_evidence_is_given_to_a_share_and_names_the_condition(built):
    told = [row for row in built.rows if row["evidence"]]
    assert 0.15 * len(built.rows) < len(told) < 0.45 * len(built.rows)
    assert any(" refers to book.genre = " in row["evidence"] for row in told)


def test_nothing_of_a_test_set_is_in_the_pool(live):
    golds = [f"SELECT COUNT(*) FROM {table}" for table in ("author", "book", "reader", "note")]
    golds += [
        "SELECT COUNT(*) FROM book WHERE genre = 'novel'",
        "SELECT title FROM book WHERE genre = 'essay'",
        "SELECT B.title FROM author A JOIN book B ON A.author_id = B.author_id WHERE A.name = 'x'",
    ]
    test = [
        Problem(question_id=str(i), db_id="library", question="?", gold_sql=sql)
        for i, sql in enumerate(golds)
    ]
    built = build_pool(live, 300, seed=0, test=test)
    shapes = {shape(sql) for sql in golds}
    assert not shapes & {shape(row["SQL"]) for row in built.rows}
    assert built.pool.faults["leak_shape"] + built.pool.faults["leak_result"] > 0
    assert report(built, live, 300)["test_questions"] == len(golds)
    assert built.comparison.rows


def test_leak_by_result(live):
    check = LeakCheck.of(["SELECT title FROM book WHERE pages > 650"], live.sandbox)
    same = "SELECT title FROM book WHERE pages >= 651"
    assert check.fault(same, live.run(same)) == "leak_result"
    other = "SELECT name FROM reader WHERE age > 60"
    assert check.fault(other, live.run(other)) is None


def test_problems_of_other_databases_are_no_check(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps({"db_id": "x", "question": "q", "SQL": "SELECT 1"}) + "\n")
    with pytest.raises(UserError, match="no question is on 'library'"):
        problems_on(path, "library")


def test_a_database_with_nothing_to_ask_is_refused(tmp_path):
    import sqlite3

    path = tmp_path / "bare.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    db.close()
    with open_live(path, None) as bare, pytest.raises(UserError, match="no question came"):
        build_pool(bare, 5, seed=0)


def test_every_family_is_registered_once():
    names = [family.name for family in all_families()]
    assert len(names) == len(set(names)) >= 70
    assert len(MODULES) == 11


def test_values_must_be_said(live):
    (question,) = draw_pool(live, 1, seed=0, families=[
        f for f in all_families() if f.name == "list_equal"
    ]).questions[:1]  # fmt: skip
    assert reading_fault(question.text, question.draft, live) is None
    assert "not said" in reading_fault("List the names.", question.draft, live)
    assert "twice" in reading_fault(f"the the {question.text}", question.draft, live)


@given(st.text(max_size=20))
def test_literals_read_back(text):
    import sqlite3

    text = text.replace("\0", "").encode("utf-8", "ignore").decode()
    assert sqlite3.connect(":memory:").execute(f"SELECT {literal(text)}").fetchone()[0] == text


@given(st.floats(0, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_round_numbers_stay_inside(share, low, width):
    high = low + width
    value = low + (share / 1e6) * width
    near = round_near(value, low, high)
    assert near == value or low < near < high


def test_unknown_conditions_are_refused(live):
    condition = Condition(live.scan.column("book", "pages"), "resembles", (1,))
    with pytest.raises(ValueError, match="unknown condition"):
        condition.sql("pages")
