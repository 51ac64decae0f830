"""Rows come back as they were written, whatever a killed writer left at the end."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.scores.records import (
    AnswerRow,
    Message,
    RowWriter,
    VerdictRow,
    read_rows,
    write_rows,
)

ROWS = [
    AnswerRow(
        question_id=f"q{i}",
        candidate=i,
        decoding="sample",
        ending="answer",
        sql="SELECT 'é\n\u2028'",
        messages=(Message("assistant", "one\ntwo"),),
    )
    for i in range(3)
]


@given(cut=st.integers(0, 10_000))
def test_a_file_torn_anywhere_goes_on_with_its_whole_rows(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("rows") / "answers.jsonl"
    write_rows(path, ROWS)
    data = path.read_bytes()
    data = data[: cut % (len(data) + 1)]
    path.write_bytes(data)
    kept = read_rows(path, AnswerRow)
    assert kept == ROWS[: data.count(b"\n")]
    with RowWriter(path) as writer:
        writer.write(ROWS[len(kept) :])
    assert read_rows(path, AnswerRow) == ROWS


def test_text_that_is_no_unicode_is_written_as_escapes(tmp_path):
    path = tmp_path / "answers.jsonl"
    torn = [
        msgspec.structs.replace(
            ROWS[0], error="é \udcff", messages=(Message("tool", "C:\\ud80 \ud800 end"),)
        ),
        ROWS[1],
    ]
    write_rows(path, torn)
    found, untouched = read_rows(path, AnswerRow)
    assert found.error == "é \\udcff" and found.messages[0].content == "C:\\ud80 \\ud800 end"
    assert (found.sql, untouched) == (ROWS[0].sql, ROWS[1])


def test_a_fault_before_the_last_line_is_named(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    row = VerdictRow(
        question_id="1", candidate=0, key="gold", grader="set", kind="match", correct=True
    )
    write_rows(path, [row])
    path.write_bytes(path.read_bytes() + b'{"question_id": 1}\n{"to')
    with pytest.raises(UserError, match=r"verdicts.jsonl:2: .*the line is damaged"):
        read_rows(path, VerdictRow)
    assert read_rows(tmp_path / "none.jsonl", VerdictRow) == []
