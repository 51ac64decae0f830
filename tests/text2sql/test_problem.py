import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import Problem, load_problems

ROW = {"question_id": 7, "db_id": "zoo", "question": "How many?", "SQL": "SELECT 1"}


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes):
        path = tmp_path / "questions.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_our_names(write):
    row = ROW | {"evidence": "hint", "grading_method": " multiset", "difficulty": "easy"}
    assert load_problems(write(json.dumps(row))) == [
        Problem(
            question_id="7",
            db_id="zoo",
            question="How many?",
            gold_sql="SELECT 1",
            evidence="hint",
            grading="multiset",
            difficulty="easy",
        )
    ]


def test_nulls_and_missing_fields_take_their_defaults(write):
    row = ROW | {"evidence": None, "grading_method": None, "difficulty": None}
    (problem,) = load_problems(write(json.dumps(row)))
    assert (problem.evidence, problem.grading, problem.difficulty) == ("", "set", None)
    assert problem == load_problems(write(json.dumps(ROW)))[0]


def test_spider_names_in_an_array(write):
    rows = [
        {"db_id": "zoo", "question": "Q?", "query": "SELECT 2", "sql": {"select": []}},
        {"db_id": "zoo", "question": "R?", "query": "SELECT 3", "query_toks": ["SELECT", "3"]},
    ]
    problems = load_problems(write(json.dumps(rows, indent=2)))
    assert [(p.question_id, p.gold_sql) for p in problems] == [("0", "SELECT 2"), ("1", "SELECT 3")]


def test_byte_order_mark_blank_lines_and_line_separators(write):
    row = json.dumps(ROW | {"question": "a\u2028b\x85"}, ensure_ascii=False)
    text = f"\ufeff\n{row}\r\n   \n{json.dumps(ROW | {'question_id': 8})}\n\n"
    problems = load_problems(write(text))
    assert [p.question_id for p in problems] == ["7", "8"]
    assert problems[0].question == "a\u2028b\x85"
    assert len(load_problems(write(b"\xef\xbb\xbf" + json.dumps([ROW]).encode()))) == 1


def test_repeated_ids_are_made_unique(write):
    ids = ["a", "a", "a#2", "a", None, "4"]
    text = "\n".join(json.dumps(ROW | {"question_id": i}) for i in ids)
    names = [p.question_id for p in load_problems(write(text))]
    assert names == ["a", "a#2", "a#2#2", "a#3", "4", "4#2"]


def _without(name):
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (_without("db_id"), ["'db_id'", "missing"]),
        (_without("question"), ["'question'", "missing"]),
        (_without("SQL"), ["'SQL'", "missing"]),
        (ROW | {"SQL": None}, ["'SQL'", "missing or null"]),
        (ROW | {"SQL": " "}, ["'SQL'", "blank"]),
        (ROW | {"db_id": 3}, ["'db_id'", "text", "3"]),
        (ROW | {"question": ["x" * 100]}, ["'question'", "text"]),
        (ROW | {"question": "\ud83d"}, ["'question'", "surrogate"]),
        (ROW | {"evidence": {"a": 1}}, ["'evidence'"]),
        (ROW | {"question_id": True}, ["'question_id'", "true"]),
        (ROW | {"question_id": 1.5}, ["'question_id'", "1.5"]),
        (ROW | {"grading_method": "sets"}, ["'grading_method'", "sets"]),
        (ROW | {"grading_method": 1}, ["'grading_method'"]),
        ([1], ["object"]),
        ("x", ["object"]),
    ],
)
@pytest.mark.parametrize("array", [False, True])
def test_faults_name_file_line_and_field(write, row, words, array):
    rows = [ROW, row, row]
    path = write(json.dumps(rows, indent=0).replace("\n", "") if array else _lines(rows))
    with pytest.raises(UserError) as caught:
        load_problems(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{1 if array else 3}: ")
    assert message.count(str(path)) == 1
    assert len(message) < len(str(path)) + 200 and "\n" not in message
    assert all(word in message for word in words)


def _lines(rows):
    return "\n\n".join(json.dumps(row) for row in rows)


def test_faults_in_an_array_name_the_line_of_the_item(write):
    text = "[\n" + json.dumps(ROW) + ",\n\n" + json.dumps(_without("SQL")) + "\n]"
    with pytest.raises(UserError, match=r":4: field 'SQL'"):
        load_problems(write(text))


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", None, "no questions"),
        ("[]", None, "no questions"),
        ("\n\n", None, "no questions"),
        ("question,SQL\n", 1, "not JSON"),
        (json.dumps(ROW) + "\n{'a': 1}", 2, "not JSON"),
        ("[\n{},", 2, "missing"),
        ("[\n" + json.dumps(ROW), 2, "expected , and an item"),
        ("[" + json.dumps(ROW) + ",\n]", 2, "or the final ]"),
        ("[" + json.dumps(ROW) + "\n" + json.dumps(ROW) + "]", 2, "expected , and an item"),
        ("[" + json.dumps(ROW) + "]\n\nx", 3, "text after the array"),
        ("[\n\nx]", 3, "not JSON"),
        (json.dumps(ROW).encode() + b"\n\xff", 2, "0xff"),
    ],
)
def test_broken_files(write, text, line, word):
    path = write(text)
    with pytest.raises(UserError) as caught:
        load_problems(path)
    message = str(caught.value)
    assert word in message
    assert message.startswith(f"{path}: " if line is None else f"{path}:{line}: ")


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            load_problems(path)


_TEXT = st.text(min_size=1).filter(str.strip)


@settings(deadline=None)
@given(questions=st.lists(_TEXT, min_size=1, max_size=5), array=st.booleans(), ascii=st.booleans())
def test_any_questions_survive(tmp_path_factory, questions, array, ascii):
    rows = [ROW | {"question": question} for question in questions]
    path = tmp_path_factory.getbasetemp() / "any.json"
    lines = [json.dumps(row, ensure_ascii=ascii) for row in rows]
    path.write_text(f"[{','.join(lines)}]" if array else "\n".join(lines), encoding="utf-8")
    assert [p.question for p in load_problems(path)] == questions


def test_real_question_files(data_dir):
    for name, count in (
        ("spider_dev/questions.jsonl", 1034),
        ("geography/questions.jsonl", 844),
        ("bird_platinum/bird_verified_train.jsonl", 2064),
        ("bird_platinum/bird_mini_dev_original.jsonl", 500),
    ):
        problems = load_problems(data_dir / name)
        assert len({problem.question_id for problem in problems}) == len(problems) == count


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 100_000])
def test_numbers_and_nests_without_measure_give_one_error(tmp_path, value, array):
    row = '{"db_id": "a", "question": "?", "SQL": "SELECT 1", "x": ' + value + "}"
    path = tmp_path / "q.json"
    path.write_text(f"[{row}]" if array else row)
    with pytest.raises(UserError, match=r"q\.json:1: "):
        load_problems(path)
