"""Statements are told apart by SQLite's lexical rules, never by cutting at semicolons."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.sql import split_statement, tokenize
from jax_t2sql.sql.tokens import significant

PIECES = st.sampled_from(
    ["SELECT", " ", "\n", "'a;b'", "'it''s'", "'", '"', '"x;y"', "`", "[c;d]", "[", "--", "-- n;\n",
     "/*", "*/", "/* ; */", ";", "1", "1e5", ".5", "0x1F", "x'ff00'", ",", "(", ")", "<>", "é",
     "||", "?1", ":a", "$", "\\", "\udcff", "\x00", "maxx'a'", ";;", "-", "/", "\t", "\v",
     "\ufeff", "é\ufeff", "a"]
)  # fmt: skip


@given(st.lists(PIECES).map("".join))
def test_tokens_add_up_to_the_text(sql):
    assert "".join(token.text for token in tokenize(sql)) == sql


@pytest.mark.parametrize(
    ("sql", "first", "rest"),
    [
        ("SELECT 'x;y'", "SELECT 'x;y'", ""),
        ("SELECT 1 -- a;b", "SELECT 1", ""),
        ("SELECT 1;", "SELECT 1", ""),
        ("SELECT 1;;", "SELECT 1", ""),
        ("SELECT 1; -- done", "SELECT 1", ""),
        (";; /* why; */ SELECT 1 ; /* open", "SELECT 1", ""),
        ("SELECT 1; SELECT 2", "SELECT 1", "SELECT 2"),
        ("SELECT 1;-- then\nDROP TABLE t; ", "SELECT 1", "DROP TABLE t;"),
        ('SELECT "a;b", `c;d`, [e;f]; x', 'SELECT "a;b", `c;d`, [e;f]', "x"),
        ("SELECT 'it''s; fine' ; ", "SELECT 'it''s; fine'", ""),
        ("SELECT 'open; SELECT 2", "SELECT 'open; SELECT 2", ""),
        ("SELECT 5 /* a */ - /* b */ 2", "SELECT 5 /* a */ - /* b */ 2", ""),
        ("\ufeffSELECT 1", "SELECT 1", ""),
        ("", "", ""),
        (" ; -- nothing\n/* here */ ;", "", ""),
    ],
)
def test_split(sql, first, rest):
    assert split_statement(sql) == (first, rest)


@given(st.lists(PIECES.filter(lambda p: p != "\x00")).map("".join))
def test_semicolons_agree_with_sqlite(sql):
    # complete_statement: does the text end in a semicolon that is outside quotes and comments?
    ends = [token.kind for token in tokenize(sql) if token.kind not in ("space", "comment")]
    if "\ufeff" in sql or "\udcff" in sql or sql.endswith("/*") or "/" in sql:
        return  # not UTF-8, or a comment left open, which SQLite's helper calls incomplete
    assert sqlite3.complete_statement(sql) == (ends[-1:] == ["end"])


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("'it''s'", "it's"),
        ('"say ""x"""', 'say "x"'),
        ("`a``b`", "a`b"),
        ("[a b]", "a b"),
        ("x'ff00'", "ff00"),
        ("plain", "plain"),
    ],
)
def test_value_drops_quotes(token, value):
    assert [t.value for t in tokenize(token)] == [value]


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_statements_end_where_the_tokens_say(sql):
    tokens = significant(sql)
    first = next((i for i, token in enumerate(tokens) if token.kind != "end"), None)
    if first is None:
        assert split_statement(sql) == ("", "")
        return
    end = next((i for i, t in enumerate(tokens) if i > first and t.kind == "end"), len(tokens))
    rest = next((token for token in tokens[end:] if token.kind != "end"), None)
    statement = sql[tokens[first].start : tokens[end - 1].stop]
    assert split_statement(sql) == (statement, sql[rest.start :].rstrip() if rest else "")


@pytest.mark.parametrize(
    "piece", ["- ", "a ", "1+", "(", ";", "-- \n", "/**/", "''", '"', "/", "é"]
)
def test_a_megabyte_is_split_without_a_token_each(piece):
    statement, rest = split_statement(piece * (1_000_000 // len(piece)))
    assert rest == "" and len(statement) <= 1_000_000
