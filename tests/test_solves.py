import doctest

from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql import solves as module
from jax_t2sql.solves import Solves
from jax_t2sql.tracking import SOLVES_FILE, Tracker, iterate


def visit(step, question, right, of=4):
    return {"step": step, "question_id": question, "right": right, "of": of}


def test_what_a_step_says_of_questions_met_before_and_first():
    solves = Solves()
    first = solves.observe([visit(1, "a", 0), visit(1, "b", 4), visit(1, "c", 2), visit(1, "d", 0)])
    assert first == {
        "pool_accuracy": 1.5 / 4,
        "revisited_share": 0,
        "first_visit_solved_share": 0.25,
        "first_visit_unsolved_share": 0.5,
    }
    then = solves.observe([visit(2, "a", 1), visit(2, "b", 0), visit(2, "c", 3), visit(2, "e", 4)])
    assert then == {
        "pool_accuracy": (0.25 + 0 + 0.75 + 0 + 1) / 5,
        "revisited_share": 0.75,
        "gained_share": 1 / 3,
        "lost_share": 1 / 3,
        "first_visit_solved_share": 1,
        "first_visit_unsolved_share": 0,
    }
    assert [question for question, _ in solves.unsolved()] == ["d"]
    assert [question for question, _ in solves.restless(2)] == ["b", "a"]


def test_a_record_is_read_back_and_cut_where_a_run_resumes(tmp_path):
    with Tracker(tmp_path, tensorboard=False) as tracker:
        for step in range(1, 6):
            tracker.log_solves([visit(step, "a", step - 1)])
    with Tracker(tmp_path, first_step=4, tensorboard=False) as tracker:
        tracker.log_solves([visit(4, "a", 0)])
    found = Solves(iterate(tmp_path / SOLVES_FILE)).visits["a"]
    assert [(v.step, v.right) for v in found] == [(1, 0), (2, 1), (3, 2), (4, 0)]


def test_foreign_rows_are_passed_over():
    odd = [{"step": 1}, visit(1, 7, 1), visit(1, "a", 5), visit(1, "a", True), visit(1, "a", 0, 0)]
    assert not Solves(odd).visits


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), min_size=1))
def test_observing_step_by_step_is_reading_the_record(visits):
    rows = [visit(step, question, right) for step, (question, right) in enumerate(visits)]
    watched = Solves()
    shares = [watched.observe([row]) for row in rows]
    assert watched.visits == Solves(rows).visits
    assert shares[-1]["pool_accuracy"] == watched.pool_accuracy()
    assert all(0 <= value <= 1 for found in shares for value in found.values())


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0
