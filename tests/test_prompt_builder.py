"""Prompts of one question: whole where they fit, else with the columns that matter."""

import sqlite3
from types import SimpleNamespace

import pytest

from jax_t2sql.assembly import episode_config
from jax_t2sql.config import PromptConfig
from jax_t2sql.errors import UserError
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.text2sql import EpisodeConfig, Problem, PromptOptions
from jax_t2sql.text2sql.notes import read_notes

QUESTION = "Which visitor paid the highest entrance fee?"


class Letters:
    """A codec with one id a character."""

    stop_ids = frozenset()
    opens_reasoning = False

    def encode_prompt(self, messages):
        return tuple(ord(c) for m in messages for c in m["content"])


@pytest.fixture
def databases(tmp_path):
    with sqlite3.connect(tmp_path / "zoo.sqlite") as connection:
        connection.execute("CREATE TABLE visit (visitor TEXT, entrance_fee REAL, day TEXT)")
        columns = ", ".join(f"reading_{i} REAL" for i in range(200))
        connection.execute(f"CREATE TABLE sensor (id INTEGER PRIMARY KEY, {columns})")
    connection.close()
    return tmp_path


def problem(question=QUESTION):
    return Problem(question_id=question, db_id="zoo", question=question, gold_sql="SELECT 1")


def text(ids):
    return "".join(map(chr, ids))


def test_a_schema_over_the_context_is_cut_and_told(databases):
    whole = PromptBuilder(databases, Letters(), EpisodeConfig(style="direct", max_context=50_000))
    length = len(whole.ids(problem()))
    assert "reading_199" in text(whole.ids(problem())) and not whole.cut_schemas

    config = EpisodeConfig(style="direct", max_context=1500, max_tokens_per_turn=500)
    prompts = PromptBuilder(databases, Letters(), config)
    ids = prompts.ids(problem())
    assert len(ids) <= prompts.room == 1000 < length
    assert "entrance_fee" in text(ids) and "reading_199" not in text(ids)
    assert QUESTION in text(ids) and "columns are shown" in text(ids)
    ((cut, reason),) = prompts.cut_schemas
    assert cut == problem() and "of 204 columns shown" in reason
    fitting, too_long = prompts.split_by_length([problem(), problem("x" * 1000)])
    assert fitting == [problem()] and len(too_long) == 1


def test_a_schema_has_its_own_limit(databases):
    config = EpisodeConfig(style="tools", max_context=50_000)
    prompts = PromptBuilder(databases, Letters(), config, schema_tokens=400)
    whole = PromptBuilder(databases, Letters(), config)
    removed = len(whole.ids(problem())) - len(prompts.ids(problem()))
    assert removed > 0 and prompts.cut_schemas
    shown = text(prompts.ids(problem())).split("Database schema:\n")[1].split("\n\nQuestion:")[0]
    assert len(shown) <= 400 and "entrance_fee" in shown


def test_notes_stand_after_the_schema_and_count(databases, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "zoo.txt").write_text("fees are in euros\n")
    (tmp_path / "notes" / "other.txt").write_text("not here")
    config = EpisodeConfig(style="direct", max_context=1500, max_tokens_per_turn=500)
    notes = read_notes(tmp_path / "notes")
    prompts = PromptBuilder(databases, Letters(), config, notes=notes)
    shown = text(prompts.ids(problem()))
    assert "About this database:\nfees are in euros" in shown and "not here" not in shown
    assert shown.index("entrance_fee") < shown.index("euros") < shown.index(QUESTION)
    assert len(prompts.ids(problem())) <= prompts.room, "the schema makes room for them"
    one_file = read_notes(tmp_path / "notes" / "other.txt")
    assert one_file("zoo") == "not here" and notes("unknown") == "" == read_notes(None)("zoo")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "do not exist; give a text file, or a folder"),
        (lambda path: path.mkdir(), "has no DB_ID.txt"),
        (lambda path: path.write_text(" \n"), "are empty"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "cannot be read"),
        (lambda path: path.write_text("x" * 300_000), "300,000 bytes, the limit is 262,144"),
    ],
)
def test_notes_that_cannot_be_used_are_refused(tmp_path, make, says):
    path = tmp_path / "notes"
    make(path)
    with pytest.raises(UserError, match=says):
        read_notes(path)


@pytest.mark.parametrize(
    ("template", "wanted", "found"),
    [
        ("<tool_call>{", "auto", "hermes"),
        ("<|tool_call_begin|>", "auto", "kimi"),
        ("<|tool_call_begin|>", "llama", "llama"),
    ],
)
def test_the_tool_format_is_the_template_s_unless_it_is_named(template, wanted, found):
    model = SimpleNamespace(
        config=SimpleNamespace(max_position_embeddings=4096),
        tokenizer=SimpleNamespace(chat_template=template),
        source="m",
    )
    prompt = PromptConfig(style="tools", max_tokens=512, tool_format=wanted, evidence="structured")
    options = episode_config(prompt, model).options
    assert (options.tool_format, options.evidence) == (found, "structured")


def test_options_reach_the_prompt(databases):
    options = PromptOptions(evidence="structured", tool_format="kimi", worked_example=False)
    config = EpisodeConfig(style="tools", max_context=50_000, options=options)
    asked = Problem(
        question_id="1", db_id="zoo", question="Q?", gold_sql="SELECT 1", evidence="fee; entrance"
    )
    prompt = text(PromptBuilder(databases, Letters(), config).ids(asked))
    assert "External knowledge:\n1. fee\n2. entrance" in prompt
    assert "<|tool_call_begin|>" in prompt and "Example." not in prompt
