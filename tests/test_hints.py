"""Hint files: read, matched with questions, checked for leaks; and how tasks show them."""

import json
import sqlite3

import pytest

from jax_t2sql.bus import Task
from jax_t2sql.config import RobustnessConfig
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.hint_leaks import find_leak
from jax_t2sql.hints import check_hints, read_hints
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.text2sql import EpisodeConfig, Problem, build_messages
from jax_t2sql.variants import Variants

GOLD = "SELECT T1.name FROM client AS T1 WHERE T1.gender = 'F' AND T1.age > 40 ORDER BY T1.age DESC"


def problem(name="1", question="Which women are over 40?", gold=GOLD, **fields):
    return Problem(question_id=name, db_id="bank", question=question, gold_sql=gold, **fields)


@pytest.mark.parametrize(
    "hint",
    [
        "Look at the table client: gender is stored as one letter, so filter on gender and age.",
        "Keep rows of client by gender and age, then ORDER BY age DESC. Don't join anything.",
        "It's the client's name that is asked for; select it from the one table that has an age.",
        "The question says 40: compare age with it.",
        "",
    ],
)
def test_hints_that_give_nothing_away(hint):
    assert find_leak(hint, problem(), [("Anna",), ("Bea",)]) == ""


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        ("Use SELECT name FROM client with a filter.", "query out"),
        ("```sql\nname, gender\n```", "query out"),
        ("Filter with gender = 'F' and age > 40, that is all.", "7 tokens of the gold query"),
        ("where `gender` = 'F' AND \"age\" > 40", "tokens of the gold query"),
        ("Among others you should see Anna.", "'Anna'"),
        ("you should see anna, and more", "'Anna'"),
    ],
)
def test_hints_that_give_the_answer_away(hint, reason):
    assert reason in find_leak(hint, problem(), [("Anna",), ("Bea",)])


@pytest.mark.parametrize(
    ("value", "hint", "leaks"),
    [
        (12.3456, "the mean is about 12.35", True),
        (12.3456, "the mean is about 12.4", False),
        (1234, "there are 1,234 of them", True),
        (7, "expect seven rows", True),
        (7, "the 17 columns", False),
        (1, "one row a client", False),
        (40, "compare with 40", False),  # the question says so
        ("F", "gender is 'F' there", True),
        ("F", "F stands for women", False),
        ("no", "there is no join", False),
        (None, "None of these", False),
        (b"x", "x", False),
    ],
)
def test_values_of_the_result(value, hint, leaks):
    assert bool(find_leak(hint, problem(), [(value,)])) == leaks


def test_one_value_of_a_long_result_is_no_leak_but_two_are():
    rows = [(f"name{i}",) for i in range(50)]
    assert find_leak("such as name7", problem(), rows) == ""
    assert "name7" in find_leak("such as name7 and name8", problem(), rows)


def test_a_short_gold_query_is_a_leak_as_a_whole():
    short = problem(gold="SELECT max(age) FROM t")
    assert "tokens" in find_leak("it is just select max ( age ) from t", short)


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(name="1", strength="medium", hint="Look closer.", **fields):
    return {"question_id": name, "strength": strength, "hint": hint} | fields


def test_hints_are_found_by_question_and_strength(tmp_path):
    path = write(
        tmp_path / "hints.jsonl",
        row(1, question="Which women are over 40?", hint="by  text\n twice"),
        row("1", hint="for any"),
        row("2", "strong", "too strong"),
    )
    book = read_hints(path, "medium")
    assert book.find(problem()) == "by text twice"
    assert book.find(problem(question="Another?")) == "for any"
    assert book.find(problem("bird/1", source="bird")) == "by text twice", "mixed in as bird"
    assert book.find(problem("2")) == ""
    assert read_hints(path, "strong").find(problem("2")) == "too strong"
    assert book.without([problem()]).find(problem()) == "", "nor the hint for any"
    assert book.sha256 == read_hints(path, "strong").sha256


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([row(hint=" ")], ":1: field 'hint'"),
        ([row(), row(hint="x" * 2001)], ":2: field 'hint'"),
        ([row(strength="huge")], "light, medium or strong"),
        ([row(name=None)], "'question_id'"),
        ([row(name=True)], "'question_id'"),
        ([row(question=3)], "'question'"),
        ([row(strength="light")], "no hint of strength medium"),
        ([[1]], "expected an object"),
        ([], "none at all"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, says):
    path = write(tmp_path / "hints.jsonl", *content)
    with pytest.raises(UserError, match=says):
        read_hints(path, "medium")
    with pytest.raises(UserError, match="cannot be read"):
        read_hints(tmp_path / "missing.jsonl", "medium")


class Letters:
    """A codec with one id a character."""

    def encode_prompt(self, messages):
        return tuple(ord(c) for m in messages for c in m["content"])


@pytest.fixture
def prompts(tmp_path):
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        connection.execute("CREATE TABLE client (name TEXT, gender TEXT, age INTEGER)")
        connection.execute("INSERT INTO client VALUES ('Anna', 'F', 50), ('Bob', 'M', 60)")
    connection.close()
    config = EpisodeConfig(style="direct", max_context=1200, max_tokens_per_turn=200)
    return PromptBuilder(tmp_path, Letters(), config)


def test_what_gives_the_answer_away_or_does_not_fit_is_not_used(prompts, tmp_path):
    path = write(
        tmp_path / "hints.jsonl",
        row("good", hint="Filter by gender and age."),
        row("result", hint="Anna is one of them."),
        row("query", hint="gender = 'F' AND age > 40"),
        row("long", hint="look " * 300),
        row("other", hint="of no question here"),
    )
    names = ("good", "result", "query", "long", "bare")
    problems = [problem(name) for name in names]
    with GradingPool(1) as pool:
        book, refused = check_hints(read_hints(path, "medium"), problems, prompts, pool)
    reasons = {p.question_id: reason for p, reason in refused}
    assert reasons.keys() == {"result", "query", "long"}
    assert "'Anna'" in reasons["result"] and "no room" in reasons["long"]
    assert [name for name in names if book.find(problem(name))] == ["good"]


def test_prompts_show_the_hint():
    hinted = problem(hint="Filter by gender.", evidence="women refers to gender = 'F'")
    (asked,) = build_messages(hinted, None, style="question")
    assert asked["content"] == "Which women are over 40?\nHint: Filter by gender."
    for style in ("direct", "tools"):
        text = build_messages(hinted, "CREATE TABLE client", style=style)[-1]["content"]
        knowledge, hint, question = (
            text.index(x) for x in ("women refers", "Hint: Filter", "Which women")
        )
        assert knowledge < hint < question
        plain = build_messages(problem(), "CREATE TABLE client", style=style)
        assert not any("Hint:" in message["content"] for message in plain)


def task(kind="train", seed=5, **fields):
    return Task(seq=3, problem="1", group_size=2, seed=seed, kind=kind, **fields)


def test_tasks_put_their_question(prompts, tmp_path):
    book = read_hints(write(tmp_path / "hints.jsonl", row()), "medium")
    mine = problem(evidence="women refers to gender = 'F'")
    other = problem("2", evidence="men refers to gender = 'M'")

    def variants(hints=book, **shares):
        return Variants([mine, other], prompts, hints, RobustnessConfig(**shares))

    plain = variants()
    assert plain.put(mine, task()) == mine
    assert plain.put(mine, task("hinted", origin=1)).hint == "Look closer."
    with pytest.raises(UserError, match="--hints"):
        variants(hints=None).put(mine, task("hinted", origin=1))
    withheld = variants(evidence_withheld=1.0).put(mine, task())
    assert (withheld.evidence, withheld.given) == ("", "withheld")
    wrong = variants(evidence_wrong=1.0)
    changed = [wrong.put(mine, task(seed=seed)) for seed in range(20)]
    assert {p.given for p in changed} == {"wrong"}
    assert mine.evidence not in {p.evidence for p in changed}
    assert changed == [wrong.put(mine, task(seed=seed)) for seed in range(20)]
    for changing in (wrong, variants(evidence_withheld=1.0)):
        pinned = task("eval", adapter="a", deadline=1)
        assert changing.put(mine, pinned) == mine, "evaluation never sees other evidence"
        assert changing.put(mine, task("hinted", origin=1)).evidence == mine.evidence
        bare = problem("3")
        assert changing.put(bare, task()) == bare


def test_wrong_evidence_that_does_not_fit_is_not_used(prompts):
    mine = problem(evidence="no figures here")
    other = problem("2", evidence="x" * 1000)
    wrong = Variants([mine, other], prompts, None, RobustnessConfig(evidence_wrong=1.0))
    assert wrong.put(mine, task()) == mine
