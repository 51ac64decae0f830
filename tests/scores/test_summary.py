import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.scores.records import VerdictRow
from jax_t2sql.scores.summary import summarise
from jax_t2sql.stats import binomial_test, wilson


def verdict(name, grader, correct, **fields):
    kind = {True: "match", False: "mismatch", None: "gold_error"}[correct]
    fields = {"candidate": 0, "key": "gold", "kind": kind} | fields
    return VerdictRow(question_id=name, grader=grader, correct=correct, **fields)


@pytest.fixture(scope="module")
def figures(question, answer):
    sql = {"a": "SELECT id FROM item", "b": "SELECT count(*) FROM item", "c": "SELECT 1, 2"}
    questions = {n: question(n, s, difficulty=n.replace("c", "b")) for n, s in sql.items()}
    questions["d"] = question("d", "SELECT oops", difficulty="b")
    answers = [answer("a", "SELECT 1"), answer("b", None), answer("c", "x"), answer("d", "x")]
    answers.append(answer("a", "SELECT 2", candidate=1))
    marks = {"set": (True, False, True, None), "list": (False, False, True, None)}
    verdicts = [
        verdict(name, grader, mark)
        for grader, row in marks.items()
        for name, mark in zip("abcd", row, strict=True)
    ]
    verdicts += [
        verdict("a", "equivalence", False, kind="refuted"),
        verdict("c", "equivalence", True),
        verdict("a", "r-ves", None, kind="match", value=1.0),
        verdict("b", "r-ves", None, kind="error", value=0.0),
        verdict("a", "set", False, candidate=1),  # not the first answer
        verdict("b", "set", True, evidence=False),  # another way of asking
        verdict("b", "set", True, key="corrected"),
    ]
    return questions, answers, verdicts


def test_the_headline(figures):
    found = summarise(*figures, grader="set", key="gold", proxy=0.9)
    assert (found["n"], found["correct"], found["untold"]) == (3, 2, 1)
    assert found["accuracy"] == 2 / 3 and found["grader"] == "set"
    assert (found["wilson_low"], found["wilson_high"]) == wilson(2, 3)
    assert found["kinds"] == {"match": 2, "mismatch": 1, "gold_error": 1}
    assert found["answered"] == 0.75
    test = {"accuracy": 0.9, "p_value": binomial_test(2, 3, 0.9), "relation": "within"}
    assert found["proxy"] == test


def test_the_parts(figures):
    by = summarise(*figures, grader="set", key="gold")["by"]
    counts = {
        part: {name: (s["correct"], s["n"]) for name, s in groups.items()}
        for part, groups in by.items()
    }
    assert counts["difficulty"] == {"a": (1, 1), "b": (1, 2)}
    assert counts["database"] == {"shop": (2, 3)}
    assert counts["tags"] == {"single table": (1, 2), "aggregate": (0, 1)}


def test_graders_and_where_they_disagree(figures):
    found = summarise(*figures, grader="set", key="gold")
    graders = found["graders"]
    assert graders["list"]["accuracy"] == 1 / 3 and graders["equivalence"]["refuted_share"] == 0.5
    assert (graders["r-ves"]["n"], graders["r-ves"]["mean"]) == (2, 50.0)
    rows = {(row["first"], row["second"]): row for row in found["disagreement"]}
    assert len(rows) == 3 and rows["set", "list"]["only_first"] == 1
    assert rows["set", "list"]["examples_first"] == ["a"]
    assert rows["list", "equivalence"]["n"] == 2 and not rows["list", "equivalence"]["only_first"]


def test_nothing_graded_has_no_accuracy(figures):
    found = summarise(*figures, grader="bird", key="gold")
    assert (found["n"], found["accuracy"], found["wilson_high"]) == (0, None, 1.0)


def test_a_number_is_no_headline(figures):
    with pytest.raises(UserError, match="name another one first"):
        summarise(*figures, grader="soft-f1", key="gold")
