import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.sampling.formats import FORMATS, detect_format
from jax_t2sql.text2sql.protocol import Answer, Broken, Call, Malformed, parse

NAME = "execute_sql_query"
SQL = "SELECT \"a\" FROM t\nWHERE b < 3 AND c = '</tool_call>' -- é"


def hermes(sql):
    body = json.dumps({"name": NAME, "arguments": {"query": sql}}).replace("</", "<\\/")
    return f"<tool_call>\n{body}\n</tool_call>"


def llama(sql):
    return json.dumps({"name": NAME, "parameters": {"query": sql}})


def llama_tag(sql):
    return f"<|python_tag|>{llama(sql)}"


def llama_call(sql):
    return f"<|python_tag|>{NAME}.call(query={json.dumps(sql)})"


def kimi(sql, section=True):
    call = (
        f"<|tool_call_begin|>functions.{NAME}:0<|tool_call_argument_begin|>"
        f"{json.dumps({'query': sql})}<|tool_call_end|>"
    )
    end = "<|tool_calls_section_end|>" if section else ""
    return f"<|tool_calls_section_begin|>{call}{end}"


def deepseek(sql):
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n"
        f"{json.dumps({'query': sql})}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def deepseek_plain(sql):
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>"
        f"{json.dumps({'query': sql})}<｜tool▁call▁end｜>"
    )


def glm(sql):
    return (
        f"<tool_call>{NAME}\n<arg_key>query</arg_key>\n<arg_value>{sql}</arg_value>\n</tool_call>"
    )


def plain(sql):
    return f"<sql>\n{sql}\n</sql>"


WRITERS = {
    "hermes": [hermes],
    "llama3": [llama, llama_tag, llama_call, hermes],
    "kimi-k2": [kimi, lambda sql: kimi(sql, section=False), hermes],
    "deepseek": [deepseek, deepseek_plain, hermes],
    "glm": [glm, hermes],
    "plain": [plain, hermes],
}
CASES = [(name, writer) for name, writers in WRITERS.items() for writer in writers]


def read(name, text):
    return parse(FORMATS[name].rewrite(text), "tools")


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_a_call_is_read_whatever_its_sql(name, writer):
    assert read(name, writer(SQL)) == Call(SQL)
    if name != "llama3" or writer is hermes:
        assert read(name, f"Let me look.\n{writer(SQL)}") == Call(SQL)


@pytest.mark.parametrize(("name", "writer"), CASES)
@given(sql=st.text(st.characters(codec="utf-8", exclude_characters="\0")).map(str.strip))
def test_any_sql_survives(name, writer, sql):
    # GLM's and the plain form have no way to write their own closing tags.
    own = ("</arg_value>", "</arg_key>", "</tool_call>", "<arg_", "</sql>", "<sql>")
    if sql and not (writer in (glm, plain) and any(tag in sql for tag in own)):
        assert read(name, writer(sql)) == Call(sql)


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_what_stands_in_reasoning_does_not_count(name, writer):
    assert isinstance(read(name, f"<think>{writer(SQL)}</think>"), Malformed)
    assert read(name, f"<think>hm</think>{writer(SQL)}") == Call(SQL)


@pytest.mark.parametrize("name", FORMATS)
def test_answers_are_left_as_they_are(name):
    assert read(name, "<solution>SELECT 1</solution>") == Answer("SELECT 1")
    for text in ("", "hello {", '{"a": 1}', "<|tool_call_begin|>x", "<sql>", "[1, 2]"):
        assert FORMATS[name].rewrite(text) == text
        assert isinstance(read(name, text), Malformed)


@pytest.mark.parametrize(("name", "writer"), [c for c in CASES if c[1] is not llama_call])
def test_a_call_with_an_answer_breaks_the_contract(name, writer):
    if writer in (llama, llama_tag):  # which are whole messages
        return
    text = f"{writer(SQL)}<solution>SELECT 1</solution>"
    assert read(name, text) == Broken("call and solution in one turn")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3", f'{{"name": "{NAME}", "parameters": {{"query": "SELECT'),
        ("llama3", f'{{"name": "{NAME}", "parameters": 3}}'),
        ("llama3", '{"name": 3, "parameters": {"query": "SELECT 1"}}'),
        ("kimi-k2", kimi("x").replace('{"query"', "{query")),
        ("kimi-k2", kimi("x").replace(NAME, "other")),
        ("kimi-k2", kimi("x") + kimi("y")),
        ("deepseek", deepseek("x").replace('"query"', '"sql"')),
        ("deepseek", deepseek("x").replace('"x"', "[[[")),
        ("glm", glm("x").replace("query", "sql")),
        ("glm", f"<tool_call>{NAME}\n</tool_call>"),
        ("plain", "<sql> </sql>"),
    ],
)
def test_a_call_that_is_wrong_is_answered_with_what_is_wrong(name, text):
    assert isinstance(read(name, text), Malformed)


def test_an_unknown_template_is_read_as_hermes():
    assert detect_format("<|im_start|>user\n").name == "hermes"
    assert detect_format("[gMASK]<sop><|user|>").name == "glm"
