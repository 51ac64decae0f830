import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.text2sql.protocol import (
    Answer,
    Broken,
    Call,
    Malformed,
    parse,
    without_reasoning,
)


def call(sql: str) -> str:
    body = json.dumps({"name": "execute_sql_query", "arguments": {"query": sql}})
    return f"<tool_call>\n{body}\n</tool_call>"


def solution(sql: str) -> str:
    return f"<solution>{sql}</solution>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (call("SELECT 1"), Call("SELECT 1")),
        ("First I look.\n" + call("  SELECT 1\n") + "\n", Call("SELECT 1")),
        # Models write line breaks of their SQL as they are.
        (call("SELECT 1").replace(" 1", "\n1"), Call("SELECT\n1")),
        (solution(" SELECT 2 "), Answer("SELECT 2")),
        (solution("\n```sql\nSELECT 2\n```\n"), Answer("SELECT 2")),
        (solution(""), Answer("")),
        (solution("SELECT 1") + solution("SELECT 1"), Broken("two solutions")),
        ("<solution>SELECT 1 <solution>SELECT 2</solution>", Broken("two solutions")),
        (call("SELECT 1") + solution("SELECT 1"), Broken("call and solution in one turn")),
        (solution("SELECT 1") + call("SELECT 1"), Broken("call and solution in one turn")),
        (call("SELECT 1") + "<solution>SELECT", Broken("call and solution in one turn")),
        ("<tool_call>{" + solution("SELECT 1"), Broken("call and solution in one turn")),
    ],
)
def test_tools_messages(text, expected):
    assert parse(text, "tools") == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "neither"),
        ("SELECT 1", "neither"),
        ("```sql\nSELECT 1\n```", "neither"),
        ("<solution>SELECT 1", "</solution>"),
        ("<tool_call>{}", "</tool_call>"),
        (call("SELECT 1") + call("SELECT 2"), "several"),
        ("<tool_call></tool_call>", "not JSON"),
        ("<tool_call>{'name': 1}</tool_call>", "not JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "nested"),
        ("<tool_call>[]</tool_call>", "name"),
        ('<tool_call>{"name": "rm", "arguments": {"query": "x"}}</tool_call>', "name"),
        ('<tool_call>{"name": "execute_sql_query"}</tool_call>', "arguments"),
        ('<tool_call>{"name": "execute_sql_query", "arguments": "x"}</tool_call>', "arguments"),
        (
            '<tool_call>{"name": "execute_sql_query", "arguments": {"query": "x", "n": 1}}'
            "</tool_call>",
            "arguments",
        ),
        (call("  "), "text"),
        (call("SELECT 1").replace('"SELECT 1"', "1"), "text"),
        (call("SELECT '\0'"), "zero character"),
        (call("SELECT '\ud800'"), "surrogate"),
    ],
)
def test_malformed_messages_say_what_is_wrong(text, word):
    parsed = parse(text, "tools")
    assert isinstance(parsed, Malformed)
    assert word in parsed.fault


@pytest.mark.parametrize("hidden", [call("SELECT 1"), solution("SELECT 1")])
def test_nothing_counts_inside_reasoning(hidden):
    for text in (f"<think>{hidden}</think>", f"<think>{hidden}", f"{hidden}</think> So."):
        parsed = parse(text, "tools")
        assert isinstance(parsed, Malformed)
        assert "reasoning" in parsed.fault
    assert parse(f"<think>{hidden}</think>{solution('SELECT 2')}", "tools") == Answer("SELECT 2")
    assert isinstance(parse(hidden, "tools", inside_reasoning=True), Malformed)


@pytest.mark.parametrize(
    ("text", "inside", "kept"),
    [
        ("a", False, "a"),
        ("a", True, ""),
        ("a</think>b", True, "b"),
        ("a</think>b", False, "b"),
        ("x<think>a</think>b<think>c</think>d", False, "xbd"),
        ("x<think>a", False, "x"),
        ("<think>a<think>b</think>c", False, "c"),
        ("<think>a</think>b</think>c", False, "c"),
    ],
)
def test_without_reasoning(text, inside, kept):
    assert without_reasoning(text, inside_reasoning=inside) == kept


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("```SQL\r\nSELECT 1\r\n```", "SELECT 1"),
        ("```sqlite\nSELECT 1;\n```", "SELECT 1;"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("```SELECT 1```", "SELECT 1"),
        ("A draft:\n```sql\nSELECT 1\n```\nBetter:\n```sql\nSELECT 2\n```\nDone.", "SELECT 2"),
        ("```sql\nSELECT 1\n```\n```python\nprint(1)\n```", "SELECT 1"),
        ("```sql\nSELECT 1\n```\nand ```sql\nSELECT", "SELECT 1"),
        ("<think>```sql\nSELECT 1\n```</think>```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT `a b`, ';' FROM t\n```", "SELECT `a b`, ';' FROM t"),
    ],
)
def test_direct_takes_the_last_closed_sql_block(text, sql):
    assert parse(text, "direct") == Answer(sql)
    assert parse(text, "question") == Answer(sql)


@pytest.mark.parametrize(
    "text",
    ["", "```sql\nSELECT 1", "```python\n1\n```", "```sql\n```", "```sql```", "SELECT 1 ```"]
    + ["The answer is SELECT 1", "selected", "With this schema, run SELECT 1", "<think>SELECT 1"],
)
def test_direct_without_a_block_breaks_the_contract(text):
    assert parse(text, "direct") == Broken("no SQL block")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select\n1;",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        'with recursive "a" as(select 1) select 1',
    ],
)
def test_direct_takes_a_message_that_is_a_query(sql):
    assert parse(f" {sql}\n", "direct") == Answer(sql)
    assert parse(f"<think>x</think>{sql}", "direct") == Answer(sql)


def test_question_takes_bare_sql():
    assert parse(" SELECT 1\n", "question") == Answer("SELECT 1")
    assert parse("<think>x</think>SELECT 1", "question") == Answer("SELECT 1")
    assert parse(" \n", "question") == Broken("empty answer")
    assert parse("<think>SELECT 1", "question") == Broken("empty answer")


_PIECES = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "<solution>", "</solution>", "```"]
)
_NOISE = st.lists(_PIECES | st.text(max_size=5), max_size=20).map("".join)


@settings(deadline=None)
@given(text=_NOISE, style=st.sampled_from(["tools", "direct", "question"]), inside=st.booleans())
def test_any_text_parses_to_something(text, style, inside):
    parsed = parse(text, style, inside_reasoning=inside)
    assert isinstance(parsed, Call | Answer | Malformed | Broken)
    assert style == "tools" or isinstance(parsed, Answer | Broken)


# A tag inside the SQL is a tag all the same: the message then says so instead of running half.
@settings(deadline=None)
@given(sql=st.text(min_size=1).filter(lambda s: s.strip() and "\0" not in s and "<" not in s))
def test_a_call_carries_any_sql_text(sql):
    assert parse(call(sql), "tools") == Call(sql.strip())
