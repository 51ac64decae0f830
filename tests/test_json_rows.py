"""Rows of JSON: in whatever form they come, each with its line."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.json_rows import json_rows

PATH = Path("rows.json")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def read(data: bytes):
    return list(json_rows(io.BytesIO(data), PATH))


@given(st.lists(st.dictionaries(st.text(), values)), st.booleans())
def test_any_form_gives_the_same_rows(rows, ascii):
    lines = [json.dumps(row, ensure_ascii=ascii).encode() for row in rows]
    expected = list(enumerate(rows, start=1))
    for data in (b"\n".join(lines), b"\r\n".join(lines), b"\xef\xbb\xbf" + b"\n".join(lines)):
        assert read(data) == expected
    assert read(b"[" + b",\n".join(lines) + b"]\n") == expected
    assert [row for _, row in read(b"\n\n" + b"\n \n".join(lines))] == rows


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"{}\n{", 2, "Expecting property name"),
        (b"{}\n{} x", 2, "text after the object at column 3"),
        (b"[{},\n{}\n{}]", 3, "expected , and an item, or the final ]"),
        (b"[{},\n]", 2, "expected , and an item, or the final ]"),
        (b"\n[{}]\n\n!", 4, "text after the array at column 1"),
        (b"{}\n\xff", 2, "byte 0xff is not UTF-8"),
        (b"[{},\n\n\xff]", 3, "byte 0xff is not UTF-8"),
        (b"\n" + b"[" * 100_000, 2, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000, 1, "Exceeds the limit"),
    ],
)
def test_the_first_fault_is_told_with_its_line(data, line, says):
    with pytest.raises(UserError) as caught:
        read(data)
    assert str(caught.value).startswith(f"rows.json:{line}: ") and says in str(caught.value)


def test_lines_are_read_one_at_a_time():
    rows = json_rows(io.BytesIO(b'{"a": 1}\nno JSON'), PATH)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(UserError):
        next(rows)
