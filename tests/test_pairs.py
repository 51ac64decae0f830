"""Files of pairs: every form reads the same, every fault is told with file, line and field."""

import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.pairs import Pair, open_pairs, read_pairs
from jax_t2sql.sql import Mode

ROW = {"db_id": "shop", "gold": "SELECT 1", "pred": "SELECT 2"}


def read(path, mode=None):
    with open_pairs(path) as file:
        return list(read_pairs(file, path, mode))


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


filled = st.text(min_size=1).filter(str.strip)
rows = st.lists(
    st.fixed_dictionaries({"db_id": filled, "gold": filled, "pred": st.text()}), min_size=1
)


@given(rows, st.sampled_from(["lines", "crlf", "blank lines", "bom", "array", "indented"]))
def test_the_form_of_the_file_does_not_matter(tmp_path_factory, rows, form):
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = {
        "lines": "\n".join(lines),
        "crlf": "\r\n".join(lines) + "\r\n",
        "blank lines": "\n\n" + "\n \t\n".join(lines) + "\n\n",
        "bom": "\ufeff" + "\n".join(lines),
        "array": " " + json.dumps(rows),
        "indented": "\n" + json.dumps(rows, indent=2) + "\n",
    }[form]
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(text.encode())
    assert read(path) == [
        Pair(index, row["db_id"], row["gold"], row["pred"], Mode("set"))
        for index, row in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("row", "queries"),
    [
        ({"gold": "a", "pred": "b"}, ("a", "b")),
        ({"SQL": "a", "pred": "b"}, ("a", "b")),
        ({"sql1": "a", "sql2": "b"}, ("a", "b")),
        ({"gold": "a", "SQL": "x", "pred": "b", "sql1": "x", "sql2": "x"}, ("a", "b")),
        ({"gold": "x", "sql1": "a", "sql2": "b"}, ("a", "b")),
        ({"gold": "a", "pred": None}, ("a", "")),
        ({"gold": "a", "pred": " \n"}, ("a", " \n")),
        ({"gold": "a", "pred": "\ud800\0"}, ("a", "\ud800\0")),
    ],
)
def test_names_of_the_queries(tmp_path, row, queries):
    (pair,) = read(written(tmp_path / "p", {"db_id": "shop", **row}))
    assert (pair.gold, pair.pred) == queries


def test_ids(tmp_path):
    given = [{"id": "a", "question_id": 7}, {"id": None, "question_id": 7}, {}, {"id": 0}, {}]
    path = written(tmp_path / "p", *[ROW | row for row in given])
    assert [pair.id for pair in read(path)] == ["a", 7, 2, 0, 4]


def test_modes(tmp_path):
    path = written(tmp_path / "p", ROW, *[ROW | {"grading_method": m} for m in (None, " list")])
    assert [str(pair.mode) for pair in read(path)] == ["set", "set", "list"]
    path = written(tmp_path / "p", ROW | {"grading_method": "bag"})
    assert read(path, Mode("bird"))[0].mode == Mode("bird")
    with pytest.raises(UserError, match=r"p:1: field 'grading_method': .*'bag' is unknown"):
        read(path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"SELECT 1", "not JSON: Expecting value at column 1"),
        (b'{"db_id": "shop" "gold"', "not JSON: Expecting ',' delimiter at column 18"),
        (b'{"db_id": "shop"} {}', "not JSON: text after the object at column 18"),
        (b'{"pred": "caf\xe9"}', "byte 0xe9 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"id": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        (b"[1]", "expected an object with fields, got [1]"),
        (b"{}", "neither gold and pred, nor SQL and pred, nor sql1 and sql2"),
        (b'{"db_id": "shop", "gold": "a"}', 'its fields are ["db_id", "gold"]'),
        (b'{"gold": "a", "pred": "b"}', "field 'db_id' is missing or null"),
        (b'{"db_id": " ", "gold": "a", "pred": "b"}', "field 'db_id' is blank"),
        (b'{"db_id": "shop", "gold": null, "pred": "b"}', "field 'gold' is missing or null"),
        (b'{"db_id": "shop", "SQL": "", "pred": "b"}', "field 'SQL' is blank"),
        (b'{"db_id": "shop", "gold": "a", "pred": ["b"]}', "field 'pred' must be text, got"),
        (b'{"db_id": "shop", "gold": "a", "pred": "b", "id": 1.5}', "field 'id' must be text or"),
        (b'{"db_id": "shop", "gold": "a", "pred": "b", "id": true}', "field 'id' must be text or"),
        (b'{"db_id": "shop", "gold": "a", "pred": "b", "grading_method": 3}', "is no text"),
    ],
)
def test_faults_name_file_and_line(tmp_path, line, says):
    path = tmp_path / "pairs.jsonl"
    good = json.dumps(ROW).encode() + b"\n"
    path.write_bytes(good * 6 + line + b"\n" + good)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:7: ") and says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[\n%s,\n%s\n,\n{"a" 1}]', 5, "Expecting ':' delimiter at column 6"),
        ("[%s,\n%s,\n{}]", 3, "neither gold and pred"),
        ("\n\n[%s\n%s]", 4, "expected , and an item, or the final ]"),
        ("[%s,\n%s,\n]", 3, "expected , and an item, or the final ]"),
        ("[%s,\n%s", 2, "expected , and an item, or the final ]"),
        ("[%s,\n%s,", 2, "Expecting value"),
        ("[%s,\n%s\n]\n[]", 4, "text after the array at column 1"),
    ],
)
def test_faults_of_an_array_name_the_line_too(tmp_path, text, line, says):
    path = tmp_path / "pairs.json"
    path.write_text(text.replace("%s", json.dumps(ROW)))
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: ") and says in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n \n", "[]", " [ ] \n"])
def test_a_file_without_pairs_is_refused(tmp_path, content):
    path = tmp_path / "pairs.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match="holds no pairs"):
        read(path)


@pytest.mark.parametrize("path", ["none.jsonl", "."])
def test_what_is_no_file_is_refused(tmp_path, path):
    with pytest.raises(UserError, match="cannot be read"):
        open_pairs(tmp_path / path)


def test_a_pipe_can_be_read_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(json.dumps(ROW),))
    writer.start()
    with open_pairs(pipe) as file:
        assert list(read_pairs(file, pipe, None)) == list(read_pairs(file, pipe, None)) != []
    writer.join()
