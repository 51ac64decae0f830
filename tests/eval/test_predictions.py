"""Files of predictions, read and written."""

import contextlib
import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.eval.predictions import read_predictions, write_predictions
from jax_t2sql.scores.records import AnswerRow, Gold, QuestionRow
from jax_t2sql.sql.tokens import significant

IDS = ["7", "x", "9"]


def question(name, db_id="shop"):
    golds = {"gold": Gold(sql="SELECT 1")}
    return QuestionRow(question_id=name, db_id=db_id, question="?", golds=golds)


ROWS = [question(name) for name in IDS]


def read(tmp_path, text, rows=ROWS, ids=IDS):
    path = tmp_path / "predictions"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {
        name: [prediction.sql for prediction in found]
        for name, found in read_predictions(path, rows, ids).items()
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"question_id": 7, "pred": "A"}\n{"question_id": "x", "predicted_sql": null}\n'
        '{"question_id": 9, "sql": "B"}',
        '[{"sql": "A"}, {"sql": null}, {"sql": "B"}]',
        '{"7": "A\\t----- bird -----\\tshop", "x": null, "9": "B\\t----- bird -----\\tshop"}',
        '{"0": "A", "1": null, "2": "B"}',
        "A\n\nB\n",
        b"\xef\xbb\xbfA\tshop\r\n\r\nB\tshop\r\n",
    ],
    ids=["rows", "array by place", "bird", "bird by place", "spider", "spider with db_id"],
)
def test_every_format_says_the_same(tmp_path, text):
    found = read(tmp_path, text)
    assert found["7"] == ["A"] and found["9"] == ["B"]
    assert found["x"] == [None]


def test_samples_and_costs_of_our_own_rows(tmp_path):
    path = tmp_path / "answers.jsonl"
    lines = [
        {"question_id": "7", "candidate": 1, "sql": "A", "prompt_tokens": 5, "seconds": 1},
        {"question_id": "7", "candidate": 2, "ending": "cut_off", "prompt_tokens": -1},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = read_predictions(path, ROWS, IDS)["7"]
    assert (first.sql, first.extras) == ("A", {"prompt_tokens": 5, "seconds": 1.0})
    assert (second.sql, second.extras) == (None, {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A\nB\n", "2 lines for 3 questions"),
        ('{"question_id": "no", "pred": "A"}', "question 'no' is none of the question file's"),
        ('{"question_id": 7, "SQL": "A"}', "has none of pred, predicted_sql"),
        ('{"question_id": 7, "pred": 5}', "must be text or null"),
        ('{"0": "A\\t----- bird -----\\tother"}', "is for database 'other', but question 7"),
        ('{"0": "A", "5": "B"}', "'5' is neither a question id nor a place below 3"),
        ('[{"sql": "A"}, {"sql": "A"}, {"sql": "A"}, {"sql": "A"}]', "only 3 questions"),
        ('{"question_id": 7, "pred": "\\ud800"}', "half of a surrogate pair"),
        ('{"question_id": 7, "pred": "A"', "not JSON"),
        (b"SELECT '\xff'\nB\nC\n", "is not UTF-8"),
        ('{"7": "A", "x": "B", "7": "C"}', "'7' is there twice"),
        ("A\tshop\nB\tother\nC\n", r":2 is for database 'other', but question x"),
        ('{"question_id": 7, "pred": "A", "db_id": "other"}', ":1 is for database 'other'"),
        ("", "is empty"),
        (" \n\n\n", "is empty"),
        ("{}", "prediction for none of the questions"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, told):
    with pytest.raises(UserError, match=told):
        read(tmp_path, text)


def test_a_file_for_questions_that_are_not_asked(tmp_path):
    text = '{"question_id": "7", "pred": "A"}'
    with pytest.raises(UserError, match="for none of the questions asked"):
        read(tmp_path, text, rows=ROWS[1:])
    with pytest.raises(UserError, match="cannot be read"):
        read_predictions(tmp_path / "none", ROWS, IDS)


def answer(name, sql, candidate=0):
    return AnswerRow(
        question_id=name, candidate=candidate, decoding="greedy", ending="answer", sql=sql
    )


@given(
    queries=st.lists(
        st.lists(
            st.sampled_from(["SELECT", "a", "\n", "\t", "-- b\n", "/* c\n */", "'d'", " "]),
            min_size=1,
        ).map(lambda parts: "SELECT 1 " + " ".join(parts)),
        min_size=3,
        max_size=3,
    )
)
def test_what_is_written_reads_the_same(tmp_path_factory, queries):
    folder = tmp_path_factory.mktemp("out")
    answers = [answer(name, sql) for name, sql in zip(IDS, queries, strict=True)]
    answers.append(answer("x", "SELECT 'a later sample'", candidate=3))
    for form in ("bird", "spider"):
        path = write_predictions(folder, form, ROWS, answers, all_ids=IDS, winners={})
        found = read_predictions(path, ROWS, IDS)
        for name, sql in zip(IDS, queries, strict=True):
            (prediction,) = found[name]
            texts = [token.text for token in significant(prediction.sql)]
            assert texts == [token.text for token in significant(sql)]
            assert form == "spider" or prediction.sql == sql


def test_no_answer_keeps_its_place(tmp_path):
    for form, first in (("bird", {"0": "\t----- bird -----\tshop"}), ("spider", "SELECT\n" * 3)):
        empty = [answer("7", None)]
        path = write_predictions(tmp_path, form, ROWS[:1], empty, all_ids=IDS, winners={})
        text = path.read_text()
        assert (json.loads(text) if form == "bird" else text) == first


def test_some_questions_of_a_file_keep_their_places(tmp_path):
    rows, queries = ROWS[1:], {"x": "SELECT 1", "9": "SELECT 2"}
    answers = [answer(name, sql) for name, sql in queries.items()]
    for form in ("bird", "spider"):
        path = write_predictions(tmp_path, form, rows, answers, all_ids=IDS, winners={})
        found = read_predictions(path, rows, IDS)
        assert {name: found[name][0].sql for name in queries} == queries
    lines = (tmp_path / "predictions.sql").read_text().splitlines()
    assert len(lines) == 3 and lines[0] == "SELECT", "a line for each question of the file"
    assert list(json.loads((tmp_path / "predictions.json").read_text())) == ["1", "2"]


def test_of_samples_the_winner_is_written(tmp_path):
    answers = [answer("7", f"SELECT {n}", candidate=n) for n in (3, 1, 2)]
    given = {"all_ids": IDS, "winners": {"7": 2}}
    path = write_predictions(tmp_path, "spider", ROWS[:1], answers, **given)
    assert path.read_text() == "SELECT 2\nSELECT\nSELECT\n"
    answers.append(answer("7", "SELECT 0"))
    path = write_predictions(tmp_path, "spider", ROWS[:1], answers, **given)
    assert path.read_text().startswith("SELECT 0\n"), "the greedy answer counts"


def test_a_text_over_several_lines_is_the_same_text_on_one(tmp_path):
    sql = "SELECT 'x\n\t y' || '  two  blanks', \"a\nb\" FROM (SELECT 1 AS \"a b\")"
    path = write_predictions(
        tmp_path, "spider", ROWS[:1], [answer("7", sql)], all_ids=IDS[:1], winners={}
    )
    (line,) = path.read_text().splitlines()
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute(line).fetchone()[0] == "x\n\t y  two  blanks"
