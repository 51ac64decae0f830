"""Every prompt as a file: a changed word shows up in review, and changes what models answer.

Write them anew with JAX_T2SQL_UPDATE_SNAPSHOTS=1, and read the difference.
"""

import itertools
import os
from pathlib import Path

import pytest

from jax_t2sql.sql import Outcome
from jax_t2sql.text2sql import Problem, PromptOptions, build_messages
from jax_t2sql.text2sql.evidence import check_evidence
from jax_t2sql.text2sql.observation import describe_outcome
from jax_t2sql.text2sql.protocol import Answer, Call, parse
from jax_t2sql.text2sql.tool_formats import TOOL_FORMATS

FOLDER = Path(__file__).parent / "snapshots"
PROBLEM = Problem(
    question_id="1",
    db_id="zoo",
    question="How many {old} zoos are there?",
    gold_sql="SELECT COUNT(*) FROM zoo WHERE opened < 1900",
    evidence="zoos refers to zoo.id; ; old refers to opened < 1900;",
)
SCHEMA = "CREATE TABLE zoo (\n  id INTEGER PRIMARY KEY, -- 1, 2\n  opened INTEGER -- 1838\n);"
CASES = {
    "tools": ("tools", PromptOptions()),
    "tools_no_example": ("tools", PromptOptions(worked_example=False)),
    "tools_snowflake": ("tools", PromptOptions(dialect="snowflake")),
    "tools_structured": ("tools", PromptOptions(evidence="structured")),
    "tools_structured_no_example": (
        "tools",
        PromptOptions(evidence="structured", worked_example=False),
    ),
    "tools_structured_snowflake_high": (
        "tools",
        PromptOptions(evidence="structured", dialect="snowflake", reasoning_effort="high"),
    ),
    **{
        f"tools_{name}": ("tools", PromptOptions(tool_format=name, evidence="structured"))
        for name in TOOL_FORMATS
        if name != "hermes"
    },
    "direct": ("direct", PromptOptions()),
    "direct_structured": ("direct", PromptOptions(evidence="structured")),
    "direct_snowflake_low": (
        "direct",
        PromptOptions(dialect="snowflake", reasoning_effort="low"),
    ),
    "question": ("question", PromptOptions(evidence="structured")),
}


@pytest.mark.parametrize("name", CASES)
def test_snapshot(name):
    style, options = CASES[name]
    messages = build_messages(PROBLEM, SCHEMA, style=style, options=options)
    text = "".join(f"=== {m['role']}\n{m['content']}\n" for m in messages)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("JAX_T2SQL_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"the prompt differs from {path}; see this file's first lines"


def test_no_snapshot_is_left_over():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CASES)


def test_without_evidence_the_structured_prompt_is_the_base_prompt():
    bare = Problem(question_id="1", db_id="zoo", question="Q?", gold_sql="SELECT 1", evidence=" ;")
    for style in ("tools", "direct"):
        plain, structured = (
            build_messages(bare, SCHEMA, style=style, options=PromptOptions(evidence=evidence))
            for evidence in ("plain", "structured")
        )
        assert plain[0] == structured[0]


@pytest.mark.parametrize(
    ("tool_format", "evidence"), list(itertools.product(TOOL_FORMATS, ("plain", "structured")))
)
@pytest.mark.parametrize("max_turns", [1, 5])
def test_the_worked_example_keeps_all_rules(tool_format, evidence, max_turns):
    options = PromptOptions(tool_format=tool_format, evidence=evidence)
    system = build_messages(PROBLEM, SCHEMA, style="tools", max_turns=max_turns, options=options)[
        0
    ]["content"]
    example = system.split("Example.")[1]
    call, rest = example.split("You send:\n")[1].split("You receive:\n")
    received, answer = rest.rstrip("\n"), example.split("You send:\n")[2]
    assert parse(call, "tools", tools=options.tools) == Call("SELECT DISTINCT language FROM book")
    assert isinstance(parse(answer, "tools", tools=options.tools), Answer)
    outcome = Outcome("ok", ("language",), [("en",), ("nl",)])
    assert received == describe_outcome(outcome, turns_left=max_turns - 1)
    if evidence == "structured":
        knowledge = example.split("External knowledge:\n1. ")[1].split("\n")[0]
        assert check_evidence(knowledge, [call, answer]).rules_missed == 0
