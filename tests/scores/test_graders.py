import json

import pytest

from jax_t2sql.equivalence.verdict import unknown
from jax_t2sql.errors import UserError
from jax_t2sql.scores import graders
from jax_t2sql.scores.graders import GRADERS, grade_answers, parse_graders
from jax_t2sql.scores.memo import Memo
from jax_t2sql.scores.records import AnswerRow, Gold, QuestionRow

ITEMS = "SELECT item FROM sale"


@pytest.fixture
def graded(shop, pool, question, answer):
    """Verdicts on one prediction by grader: ``graded(gold, pred, "set,bird", grading=…)``."""

    def grade(gold, pred, names, *, memo=None, **fields):
        questions = {"q": question("q", gold, **fields)}
        (rows,) = grade_answers(
            questions,
            [answer("q", pred)],
            graders=parse_graders(names),
            find=lambda db_id: shop / f"{db_id}.sqlite",
            pool=pool,
            memo=memo,
        )
        return {row.grader: row for row in rows}

    return grade


@pytest.mark.parametrize(
    ("pred", "right"),
    [
        ("SELECT item FROM sale", {"set", "multiset", "list", "question", "bird"}),
        ("SELECT item FROM sale ORDER BY item DESC", {"set", "multiset", "question", "bird"}),
        ("SELECT DISTINCT item FROM sale", {"set", "bird"}),
        ("SELECT item FROM sale WHERE year = 2020", set()),
    ],
)
def test_graders_side_by_side(graded, pred, right):
    found = graded(ITEMS, pred, "set,multiset,list,question,bird", grading="multiset")
    assert {name for name, row in found.items() if row.correct} == right
    assert {row.kind for row in found.values()} <= {"match", "mismatch"}


def test_bird_has_no_tolerance_and_set_has(graded):
    gold, pred = "SELECT 0.1 + 0.2 FROM item", "SELECT 0.3 FROM item"
    found = graded(gold, pred, "set,bird")
    assert (found["set"].correct, found["bird"].correct) == (True, False)


def test_what_fails_is_wrong_and_what_says_nothing_is_not_counted(graded):
    error = graded(ITEMS, "SELECT nothing FROM sale", "set,soft-f1,r-ves,suite,equivalence")
    assert {row.kind for row in error.values()} == {"error"}
    assert error["set"].correct is error["suite"].correct is error["equivalence"].correct is False
    assert error["soft-f1"].value == error["r-ves"].value == 0.0
    broken = graded("SELECT nothing FROM sale", ITEMS, "set,soft-f1,r-ves")
    assert {(row.kind, row.correct) for row in broken.values()} == {("gold_error", None)}
    assert broken["soft-f1"].value is None and broken["r-ves"].value is None
    silent = graded(ITEMS, None, "set,soft-f1")
    assert (silent["set"].kind, silent["set"].correct) == ("no_query", False)
    assert (silent["soft-f1"].correct, silent["soft-f1"].value) == (None, 0.0)


def test_an_empty_gold_is_matched_by_an_empty_answer_alone(graded):
    gold = "SELECT id FROM item WHERE id > 9"
    found = graded(gold, "SELECT id FROM item WHERE id > 8", "set")["set"]
    assert (found.kind, found.correct) == ("match", True) and "no rows" in found.detail
    assert graded(gold, "SELECT 1", "set")["set"].correct is False


def test_a_missing_database_is_no_fault_of_the_answer(pool, question, answer):
    rows = grade_answers(
        {"q": question("q", ITEMS)},
        [answer("q", ITEMS)],
        graders=("set",),
        find=lambda db_id: UserError(f"no {db_id}"),
        pool=pool,
    )
    ((row,),) = rows
    assert (row.kind, row.correct, row.detail) == ("infrastructure", None, "no shop")


def test_lucky_answers_are_found_out(graded):
    lucky = "SELECT name FROM item WHERE id IN (SELECT item FROM sale WHERE year < 2021)"
    found = graded("SELECT name FROM item WHERE price < 3.5", lucky, "question,suite,equivalence")
    assert found["question"].correct
    assert (found["suite"].kind, found["suite"].correct) == ("refuted", False)
    assert (found["equivalence"].kind, found["equivalence"].correct) == ("refuted", False)
    same = graded(ITEMS, "SELECT item FROM sale WHERE 1", "suite,equivalence")
    assert same["suite"].correct and same["equivalence"].correct


def test_efficiency_is_a_reward_for_right_answers(graded):
    right = graded(ITEMS, ITEMS, "r-ves")["r-ves"]
    assert right.value in [reward**0.5 for reward in (1.25, 1, 0.75, 0.5, 0.25)]
    assert graded(ITEMS, "SELECT id FROM item WHERE id = 1", "r-ves")["r-ves"].value == 0.0


def test_every_answer_key_is_graded_unless_told_otherwise(shop, pool, answer):
    golds = {"old": Gold(sql="SELECT 1"), "new": Gold(sql="SELECT 2")}
    questions = {"q": QuestionRow(question_id="q", db_id="shop", question="?", golds=golds)}

    def verdicts(**options):
        bursts = grade_answers(
            questions,
            [answer("q", "SELECT 2")],
            graders=("set",),
            find=lambda db_id: shop / f"{db_id}.sqlite",
            pool=pool,
            **options,
        )
        return {row.key: row.correct for burst in bursts for row in burst}

    assert verdicts() == {"old": False, "new": True}
    assert verdicts(keys=("new",)) == {"new": True}


class Idle:
    """A pool that must not be asked."""

    def assess_many(self, jobs):
        assert jobs == []
        return []


def test_what_was_graded_is_remembered_until_something_changes(
    graded, tmp_path, shop, question, answer
):
    names = "question,set,multiset,list,bird,soft-f1,suite,equivalence"
    pred = "SELECT item FROM sale ORDER BY year"
    with Memo(tmp_path / "memo.sqlite") as memo:
        first = graded(ITEMS, pred, names, memo=memo)
    with Memo(tmp_path / "memo.sqlite") as memo:
        again = grade_answers(
            {"q": question("q", ITEMS)},
            [answer("q", f" {pred} ;")],  # what surrounds the statement is no difference
            graders=parse_graders(names),
            find=lambda db_id: shop / f"{db_id}.sqlite",
            pool=Idle(),
            memo=memo,
        )
        assert [row for burst in again for row in burst] == list(first.values())
        keys = [
            memo.key(shop / "shop.sqlite", ITEMS, pred, grader, limits)
            for grader, limits in (("compare set", ""), ("compare list", ""), ("compare set", "9"))
        ]
        assert list(memo.read(keys)) == keys[:2]


def test_what_may_be_otherwise_tomorrow_is_not_remembered(graded, tmp_path):
    with Memo(tmp_path / "memo.sqlite") as memo:
        graded("SELECT random() > 0 FROM item", "SELECT 1", "set,bird", memo=memo)
        graded("SELECT oops", "SELECT 1", "set", memo=memo)
        graded(ITEMS, ITEMS, "r-ves", memo=memo)
        assert memo._file.execute("SELECT count(*) FROM verdicts").fetchone() == (0,)


def test_a_file_that_is_no_memo_is_a_user_error(tmp_path):
    (tmp_path / "memo").write_text("not a database" * 100)
    with pytest.raises(UserError, match="delete the file if it is damaged"):
        Memo(tmp_path / "memo")
    with pytest.raises(UserError, match="memo"):
        Memo(tmp_path / "memo" / "below")


@pytest.mark.parametrize(
    ("text", "told"), [("set,best", "grader 'best' is unknown"), (" , ", "no grader is named")]
)
def test_unknown_graders_are_refused(text, told):
    with pytest.raises(UserError, match=told):
        parse_graders(text)


def test_every_grader_says_what_it_is():
    assert all(GRADERS.values()) and parse_graders(",".join(GRADERS)) == tuple(GRADERS)


def test_real_predictions_get_the_labels_that_came_with_them(data_dir, pool, sample):
    """`eq_set` is the public BIRD evaluator's rule, `eq_multiset` and `eq_list` stricter ones."""
    path = data_dir / "test_suite" / "spider_dev_predictions.jsonl"
    rows = sample([json.loads(line) for line in path.open()], 400)
    questions, answers = {}, []
    for row in rows:
        golds = {"gold": Gold(sql=row["gold"])}
        questions[row["id"]] = QuestionRow(
            question_id=row["id"], db_id=row["db_id"], question="?", golds=golds
        )
        answers.append(
            AnswerRow(
                question_id=row["id"],
                candidate=0,
                decoding="greedy",
                ending="answer",
                sql=row["pred"],
            )
        )
    databases = data_dir / "spider_dev" / "database"
    bursts = grade_answers(
        questions,
        answers,
        graders=("bird", "set", "multiset", "list"),
        find=lambda db_id: databases / db_id / f"{db_id}.sqlite",
        pool=pool,
    )
    found = {(v.question_id, v.grader): v.correct for burst in bursts for v in burst}
    labels = {"bird": "eq_set", "set": "eq_set", "multiset": "eq_multiset", "list": "eq_list"}
    expected = {(row["id"], g): bool(row[label]) for row in rows for g, label in labels.items()}
    assert found == expected and len(set(found.values())) == 2


def test_a_check_that_was_broken_off_leaves_the_match_and_is_tried_again():
    kept = graders._checked(unknown("the check was stopped"))
    assert (kept.kind, kept.correct) == ("unchecked", True)
    assert kept.kind in graders._UNREPEATABLE
    assert graders._checked(unknown("no time left", cpu_seconds=1.5)).kind == "match"
