import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jax_t2sql.text2sql.observation import describe_fault
from jax_t2sql.text2sql.protocol import Answer, Broken, Call, Malformed, parse
from jax_t2sql.text2sql.tool_formats import TOOL_FORMATS, tool_format_of, without_calls

FORMATS = list(TOOL_FORMATS.values())
each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@each_format
@given(query=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0<|`｜")))
def test_what_is_written_is_read(form, query):
    text = f"First I look.\n{form.write(query)}"
    found = parse(text, "tools", tools=form)
    if query.strip():
        assert found == Call(query.strip())
    else:
        assert isinstance(found, Malformed)
    left = without_calls(text)
    assert left.startswith("First I look.") and "execute_sql_query" not in left


# What breaks careless writers and readers of JSON, XML and Markdown, but closes no call.
AWKWARD = [
    *["<", "<>", "<=", "</", "<|", "|>", "]]", "[[", "\\", "\\n", "\\'", "''", '"', '""', "`"],
    *["```", "\n", "\r\n", "\t", "\u2028", "é", "😀", "｜", "{", "}", "{{", "%}", "&lt;", "--"],
    *["/*", "*/", ";", "LIKE '%\\_%' ESCAPE '\\'", "<arg_key>", "<parameter=x>", "$1", "\x7f"],
]


@each_format
@settings(max_examples=50, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(AWKWARD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    )
)
def test_awkward_sql_is_read_as_it_was_written(form, pieces):
    query = "SELECT " + "".join(pieces).replace("\0", "")
    closing = {form.open, form.close, "<solution>", "<think>", "</think>", "</arg_value>"}
    assume(not any(tag in query for tag in closing))
    assert parse(f"First.\n{form.write(query)}", "tools", tools=form) == Call(query.strip())


@each_format
@pytest.mark.parametrize("tag", ["<solution>", "</solution>", "<think>", "</think>"])
def test_tags_of_the_protocol_inside_a_query_give_no_other_query(form, tag):
    for query in (f"SELECT '{tag}' AS x", f"SELECT '{form.open}'", f"SELECT 1 -- {tag}{tag}"):
        found = parse(form.write(query), "tools", tools=form)
        assert found == Call(query) or not isinstance(found, Call | Answer)


@each_format
def test_the_rules_hold_in_every_format(form):
    call, solution = form.write("SELECT 1"), "<solution>SELECT 1</solution>"
    assert call.endswith(form.close)
    assert parse(solution, "tools", tools=form) == Answer("SELECT 1")
    assert parse(call + solution, "tools", tools=form) == Broken("call and solution in one turn")
    assert "several" in parse(call + call, "tools", tools=form).fault
    assert form.close in parse(call.removesuffix(form.close), "tools", tools=form).fault
    assert "reasoning" in parse(f"<think>{call}</think>", "tools", tools=form).fault
    assert isinstance(parse(form.open + form.close, "tools", tools=form), Malformed)
    assert call.replace("\n", "").replace("SELECT 1", "SELECT …") in describe_fault(
        "No.", turns_left=1, tools=form
    )


@pytest.mark.parametrize(
    ("name", "body", "word"),
    [
        ("qwen3_coder", "<function=other><parameter=query>x</parameter></function>", "function"),
        ("qwen3_coder", "<function=execute_sql_query></function>", "<parameter=query>"),
        (
            "qwen3_coder",
            "<function=execute_sql_query><parameter=sql>x</parameter></function>",
            '"query"',
        ),
        (
            "qwen3_coder",
            "<function=execute_sql_query><parameter=query>x</parameter><parameter=b>y</parameter>"
            "</function>",
            "one parameter",
        ),
        ("glm", "other\n<arg_key>query</arg_key><arg_value>x</arg_value>", "function"),
        ("glm", "execute_sql_query\n<arg_value>x</arg_value>", "<arg_key>"),
        ("glm", "execute_sql_query<arg_key>sql</arg_key><arg_value>x</arg_value>", '"query"'),
        (
            "glm",
            "execute_sql_query<arg_key>query</arg_key><arg_value>x</arg_value>\n"
            "<arg_key>b</arg_key><arg_value>y</arg_value>",
            "one argument",
        ),
        ("glm", '{"name": "execute_sql_query", "arguments": {"query": "x"}}', "<arg_key>"),
        ("plain", " \n ", "SQL in it"),
        ("kimi", 'functions.other:0<|tool_call_argument_begin|>{"query": "x"}', "functions."),
        ("kimi", '{"query": "x"}', "functions."),
        ("kimi", "functions.execute_sql_query:0<|tool_call_argument_begin|>{", "not JSON"),
        ("deepseek", 'execute_sql_query{"query": "x"}', "separator"),
        ("deepseek", 'other<｜tool▁sep｜>{"query": "x"}', "separator"),
        ("llama", '{"sql": "x"}', '"query"'),
        ("llama", '{"query": 3}', '"query"'),
        ("llama", '{"query": "\\u0000"}', "zero"),
        ("llama", "[" * 100_000, "nested"),
    ],
)
def test_faults_are_told(name, body, word):
    form = TOOL_FORMATS[name]
    found = parse(form.open + body + form.close, "tools", tools=form)
    assert isinstance(found, Malformed) and word in found.fault


def test_older_and_later_spellings_of_one_family():
    arguments = json.dumps({"query": "SELECT 1"})
    old = f"function<｜tool▁sep｜>execute_sql_query\n```json\n{arguments}\n```"
    deepseek = TOOL_FORMATS["deepseek"]
    assert parse(deepseek.open + old + deepseek.close, "tools", tools=deepseek) == Call("SELECT 1")
    for head in ("execute_sql_query", "functions.execute_sql_query:12"):
        body = f"{head}<|tool_call_argument_begin|>{arguments}"
        kimi = TOOL_FORMATS["kimi"]
        assert parse(kimi.open + body + kimi.close, "tools", tools=kimi) == Call("SELECT 1")
    glm = TOOL_FORMATS["glm"]
    for between in ("", "\n"):
        parts = ("execute_sql_query", "<arg_key>query</arg_key>", "<arg_value>SELECT 1</arg_value>")
        body = between.join([*parts, ""])
        assert parse(glm.open + body + glm.close, "tools", tools=glm) == Call("SELECT 1")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (None, "hermes"),
        ("{{ '<|im_start|>' }}", "hermes"),
        ('<|im_start|> … <tool_call>\n{"name": …}\n</tool_call>', "hermes"),
        ("<tool_call>\n<function=name>", "qwen3_coder"),
        ("<tool_call>{name}\n<arg_key>{key}</arg_key>", "glm"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>", "kimi"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "deepseek"),
        ("<|start_header_id|>", "llama"),
    ],
)
def test_the_template_tells_the_format(template, name):
    assert tool_format_of(template).name == name
