import re

import pytest

from jax_t2sql.sql import Outcome
from jax_t2sql.text2sql import Problem, build_messages, prompt_schema, schema_text
from jax_t2sql.text2sql.observation import describe_outcome
from jax_t2sql.text2sql.protocol import Answer, Call, parse

PROBLEM = Problem(
    question_id="1",
    db_id="zoo",
    question="How many zoos {are} there?",
    gold_sql="SELECT COUNT(*) FROM zoo",
    evidence="zoos refers to zoo.id",
)
NO_EVIDENCE = Problem(question_id="2", db_id="zoo", question="Which?", gold_sql="SELECT 1")


def test_question_is_the_question_alone():
    expected = [{"role": "user", "content": PROBLEM.question}]
    assert build_messages(PROBLEM, None, style="question") == expected
    assert build_messages(PROBLEM, "CREATE TABLE …", style="question") == expected


@pytest.mark.parametrize("style", ["tools", "direct"])
def test_schema_knowledge_and_question_come_in_order(style):
    system, user = build_messages(PROBLEM, "CREATE TABLE zoo (id);", style=style)
    assert (system["role"], user["role"]) == ("system", "user")
    parts = ["CREATE TABLE zoo (id);", PROBLEM.evidence, PROBLEM.question]
    places = [user["content"].index(part) for part in parts]
    assert places == sorted(places)
    assert PROBLEM.gold_sql not in system["content"] + user["content"]
    _, user = build_messages(NO_EVIDENCE, "CREATE TABLE zoo (id);", style=style)
    assert "knowledge" not in user["content"]
    with pytest.raises(ValueError, match="needs the schema"):
        build_messages(PROBLEM, None, style=style)


def test_direct_asks_for_what_is_read():
    """The whole prompt: small models write other SQL for other words, so measure a change."""
    system, user = build_messages(PROBLEM, "CREATE TABLE zoo (id);", style="direct")
    assert "one SQLite query" in system["content"] and "```sql" in system["content"]
    assert user["content"] == (
        "CREATE TABLE zoo (id);\n\n"
        "External knowledge: zoos refers to zoo.id\n\n"
        "Using valid SQLite and the tables above, answer this question: How many zoos {are} there?"
    )


def test_an_unknown_style_is_refused():
    with pytest.raises(ValueError, match="'chat'; it must be tools, direct or question"):
        build_messages(PROBLEM, "", style="chat")


@pytest.mark.parametrize("max_turns", [3, 5])
def test_the_worked_example_keeps_the_protocol(max_turns):
    """What the example shows is what the parser takes and what observations look like."""
    system, _ = build_messages(PROBLEM, "", style="tools", max_turns=max_turns)
    rules, example = system["content"].split("Example.")
    assert f"at most {max_turns} tool turns" in rules
    call, received, answer = re.fullmatch(
        r".*You send:\n(.*)\nYou receive:\n(.*)\nYou send:\n(.*)", example, re.DOTALL
    ).groups()
    assert parse(call, "tools") == Call("SELECT DISTINCT language FROM book")
    assert isinstance(parse(answer, "tools"), Answer)
    outcome = Outcome("ok", ("language",), [("en",), ("nl",)])
    assert received == describe_outcome(outcome, turns_left=max_turns - 1)


def test_each_style_sees_its_own_schema(zoo):
    assert prompt_schema(zoo, style="question") is None
    assert prompt_schema(zoo, style="tools") == schema_text(zoo)
    direct = prompt_schema(zoo, style="direct")
    assert direct == schema_text(zoo, sample_values=0, sample_rows=1)
    assert direct.endswith("\n-- id | name | city\n-- 0 | zoo 0 | Delft")
