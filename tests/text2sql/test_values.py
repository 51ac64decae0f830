import re
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.text2sql.values import displayable, show_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "NULL"),
        ("NULL", "'NULL'"),
        ("null", "'null'"),
        ("None", "None"),
        (7, "7"),
        ("7", "'7'"),
        (-1.5, "-1.5"),
        ("-1.5", "'-1.5'"),
        (1.0, "1.0"),
        ("1e3", "'1e3'"),
        (float("inf"), "9e999"),
        (float("-inf"), "-9e999"),
        ("", "''"),
        (" ATL", "' ATL'"),
        ("ATL ", "'ATL '"),
        ("O'Hare", "O'Hare"),
        ("'quoted'", "'''quoted'''"),
        ("a|b", "'a|b'"),
        (b"\xff\x00", "x'ff00'"),
        ("x'ff00'", "'x''ff00'''"),
        ("3-D Man", "3-D Man"),
        ("two\nlines\r\t\x1b\u2028", r"'two\nlines\r\t\x1b\u2028'"),
        (b"M\xfcller".decode("utf-8", "surrogateescape"), r"M\xfcller"),
        ("\ud800", r"\ud800"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_show_value(value, shown):
    assert show_value(value, max_chars=200) == (shown, False)


def test_long_values_are_cut_and_tell_their_length():
    assert show_value("a" * 200, max_chars=200) == ("a" * 200, False)
    assert show_value("a" * 201, max_chars=200) == ("a" * 200 + "… [cut, 201 characters]", True)
    assert show_value(b"\x01" * 100, max_chars=200)[1] is False
    assert show_value(b"\x01" * 101, max_chars=4) == ("x'0101… [cut, 101 bytes]", True)


_VALUES = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=8)
    | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
    | st.sampled_from(["null", "NULL", "1", "1.0", "x'00'", "''", "9e999", "+5", ".5", "5."])
)


def _typed(value):
    return type(value), value


@settings(deadline=None)
@given(first=_VALUES, second=_VALUES)
def test_different_values_look_different(first, second):
    if _typed(first) != _typed(second) and repr(first) != repr(second):
        assert show_value(first, max_chars=200) != show_value(second, max_chars=200)


@settings(deadline=None)
@given(value=_VALUES)
def test_a_quoted_value_is_the_sql_literal_of_the_value(value):
    shown, _ = show_value(value, max_chars=200, quote=True)
    (back,) = sqlite3.connect(":memory:").execute(f"SELECT {shown}").fetchone()
    if isinstance(value, float):
        assert back == pytest.approx(value, rel=1e-14)
    else:
        assert _typed(back) == _typed(value)


@settings(deadline=None)
@given(st.text(st.characters(), max_size=20))
def test_any_text_is_shown_on_one_encodable_line(text):
    line = displayable(text)
    line.encode()
    assert len(line.splitlines()) <= 1
    assert re.sub(r"\\", "", line).isprintable() or not text.isprintable()
