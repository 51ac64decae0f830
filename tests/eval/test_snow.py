"""Spider 2.0-Snow: schemas, translation, and queries on a local stand-in for Snowflake."""

import csv
import json

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.eval import chat_policy
from jax_t2sql.eval.__main__ import main
from jax_t2sql.eval.chat_client import Reply
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.prompting import make_prompts
from jax_t2sql.eval.questions import load_questions, problem_of
from jax_t2sql.eval.snow_pool import Exploration, SnowPool, credentials
from jax_t2sql.eval.snow_schema import find_snow_database, read_snow_doc, snow_names
from jax_t2sql.eval.snow_sql import exploratory_forms, refusal
from jax_t2sql.eval.text_codec import TextCodec
from jax_t2sql.grading import AssessJob, GradeJob
from jax_t2sql.scores.records import AnswerRow, read_rows
from jax_t2sql.sql import Limits, Mode, Outcome
from jax_t2sql.text2sql import EpisodeConfig
from jax_t2sql.text2sql.schema_text import print_schema

FLIGHTS = 'create or replace TABLE FLIGHTS (\n\t"flight_id" NUMBER(38,0),\n\tFARE NUMBER(10,2)\n);'


@pytest.fixture
def copy(tmp_path):
    """A copy of the release with one database and two questions."""
    root = tmp_path / "spider2-snow"
    schema = root / "resource" / "databases" / "AIR" / "MAIN"
    schema.mkdir(parents=True)
    with open(schema / "DDL.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["table_name", "description", "DDL"], ["FLIGHTS", "", FLIGHTS]])
        writer.writerow(["EMPTY", "", "not DDL"])
    told = {
        "table_name": "FLIGHTS",
        "column_names": ["flight_id", "FARE"],
        "description": ["key of the flight", None],
        "sample_rows": [{"flight_id": 1, "FARE": 9.5}, {"flight_id": 2, "FARE": 9.5}],
    }
    (schema / "FLIGHTS.json").write_text(json.dumps(told))
    rows = [{"instance_id": f"sf{n}", "db_id": "AIR", "instruction": f"<sf{n}>"} for n in range(2)]
    (root / "spider2-snow.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    golds = root / "evaluation_suite" / "gold" / "sql"
    golds.mkdir(parents=True)
    (golds / "sf0.sql").write_text('SELECT MAX("flight_id") FROM AIR.MAIN.FLIGHTS')
    (golds / "sf1.sql").write_text("SELECT FARE FROM AIR.MAIN.FLIGHTS")
    return root


def folder(copy):
    return copy / "resource" / "databases" / "AIR"


def test_a_schema_is_told_with_full_names_in_quotes_where_needed(copy):
    doc = read_snow_doc(folder(copy))
    text = print_schema(doc, dialect="snowflake")
    assert "CREATE TABLE AIR.MAIN.FLIGHTS (" in text
    assert '"flight_id" NUMBER(38,0), -- key of the flight; e.g. 1, 2' in text
    assert "FARE NUMBER(10,2) -- e.g. 9.5" in text
    assert snow_names(doc)["flight_id"] == "flight_id" and snow_names(doc)["flights"] == "FLIGHTS"


def test_databases_that_are_not_there(copy):
    databases = copy / "resource" / "databases"
    assert find_snow_database(databases, "AIR") == folder(copy)
    for wrong in ("SEA", "../AIR", ""):
        with pytest.raises(UserError, match="holds no SCHEMA/DDL.csv|database"):
            find_snow_database(databases, wrong)


NAMES = {"flight_id": "flight_id", "flights": "FLIGHTS", "fare": "FARE"}


@pytest.mark.parametrize(
    ("sql", "forms"),
    [
        (
            "SELECT Flight_ID AS f FROM flights ORDER BY f",
            [
                "SELECT Flight_ID AS f FROM flights ORDER BY f NULLS FIRST",
                'SELECT "flight_id" AS f FROM flights ORDER BY f NULLS FIRST',
            ],
        ),
        ("SELECT IFNULL(fare, 0) FROM flights", ["SELECT COALESCE(fare, 0) FROM flights"]),
        ("SELECT src:a::TEXT FROM flights, LATERAL FLATTEN(x) f", []),
        ("SELEC", []),
    ],
)
def test_what_is_tried_in_turn(sql, forms):
    found = exploratory_forms(sql, NAMES)
    assert found[: len(forms)] == forms and sql in found


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT 1", None),
        ("WITH a AS (SELECT 1) SELECT * FROM a; -- end", None),
        ("(SELECT 1) UNION ALL (SELECT 2)", None),
        ("SELECT src:a.b[0]::STRING FROM t, LATERAL FLATTEN(input => t.x) f QUALIFY 1 = 1", None),
        ("", "there is no query"),
        ("-- nothing", "there is no query"),
        ("SELECT 1; DROP TABLE t", "more than one statement"),
        ("DROP TABLE t", "not a SELECT"),
        ("INSERT INTO t SELECT 1", "not a SELECT"),
        ("CREATE TABLE t AS SELECT 1", "not a SELECT"),
        ("CALL p()", "not a SELECT"),
        ("USE ROLE accountadmin", "not a SELECT"),
        ("DELETE FROM t", "not a SELECT"),
        ("UNLOAD ((", "not a SELECT"),
    ],
)
def test_only_reading_is_let_through(sql, reason):
    assert refusal(sql) == reason


def test_credentials_come_from_the_environment():
    found = credentials({"SNOWFLAKE_ACCOUNT": "a", "SNOWFLAKE_USER": "u", "SNOWFLAKE_ROLE": " "})
    assert found == {"account": "a", "user": "u"}
    with pytest.raises(UserError, match="SNOWFLAKE_USER is not set"):
        credentials({"SNOWFLAKE_ACCOUNT": "a"})


def test_prompts_ask_for_snowflake_and_fit_the_schema(copy):
    args = EvalArgs(suite="spider2-snow", benchmarks=copy, schema_tokens=30)
    asked = load_questions(args)
    assert asked.dialect == "snowflake" and len(asked.rows) == 2
    problem = problem_of(asked.rows[0])
    for style in ("direct", "tools"):
        whole = make_prompts(
            asked, TextCodec(), EpisodeConfig(style=style), EvalArgs(suite="spider2-snow")
        ).messages(problem)
        assert "Snowflake" in whole[0]["content"] and "SQLite" not in whole[0]["content"]
        assert "CREATE TABLE AIR.MAIN.FLIGHTS" in whole[1]["content"]
        assert "FARE" in whole[1]["content"] and "flight_id" in whole[1]["content"]
    prompts = make_prompts(asked, TextCodec(), EpisodeConfig(style="direct"), args)
    cut = prompts.messages(problem)[1]["content"]
    assert "1 of 2 columns" in cut and len(prompts.cut_schemas) == 1


@pytest.fixture
def account(copy, monkeypatch):
    """The database, on a Snowflake that is none."""
    reason = "no fakesnow, so nothing is tested on Snowflake: install the [snow_test] extra"
    fakesnow = pytest.importorskip("fakesnow", reason=reason)
    for name in ("ACCOUNT", "USER"):
        monkeypatch.setenv(f"SNOWFLAKE_{name}", "fake")
    with fakesnow.patch():
        import snowflake.connector

        with snowflake.connector.connect(database="AIR", schema="MAIN") as connection:
            cursor = connection.cursor()
            cursor.execute('CREATE TABLE FLIGHTS ("flight_id" INT, FARE NUMBER(10, 2))')
            cursor.execute("INSERT INTO FLIGHTS VALUES (1, 9.5), (2, 3), (3, NULL)")
        yield


@pytest.fixture
def pool(account):
    with SnowPool(2, limits=Limits(max_rows=5)) as pool:
        yield pool


def test_values_are_those_that_sqlite_has(pool, copy):
    outcome = pool.execute(folder(copy), "SELECT * FROM AIR.MAIN.FLIGHTS ORDER BY 1").result()
    assert outcome.ok and outcome.rows == [(1, 9.5), (2, 3), (3, None)]
    assert [name.upper() for name in outcome.columns] == ["FLIGHT_ID", "FARE"]
    outcome = pool.execute(folder(copy), "SELECT TRUE, DATE '2024-02-03', 'x'").result()
    assert outcome.rows == [(1, "2024-02-03", "x")]


def test_failures_are_outcomes(pool, copy):
    def status(sql):
        return pool.execute(folder(copy), sql).result().status

    assert status("SELECT nothing FROM AIR.MAIN.FLIGHTS") == "error"
    assert status("DROP TABLE AIR.MAIN.FLIGHTS") == "refused"
    assert status(" ") == "no_query"
    many = "SELECT a.fare FROM AIR.MAIN.FLIGHTS a, AIR.MAIN.FLIGHTS b"
    assert status(many) == "too_large"


def test_an_account_that_cannot_be_reached_is_no_wrong_query(pool, copy, monkeypatch):
    sql = "SELECT FARE FROM AIR.MAIN.FLIGHTS"

    def unreachable(self, *_, **__):
        raise pool._connector.errors.OperationalError("250001: no route")

    with monkeypatch.context() as patch:
        with pool._connection("AIR").cursor() as cursor:
            patch.setattr(type(cursor), "execute", unreachable)
        with pytest.raises(UserError, match="Snowflake does not answer: .*no route.*same command"):
            pool.grade_many([GradeJob(folder(copy), sql, sql, "set")])
    (verdict,) = pool.grade_many([GradeJob(folder(copy), f"{sql} ", sql, "set")])
    assert verdict.status == "equal"


def test_exploring_takes_the_dialect_of_sqlite(pool, copy):
    sql = "SELECT max(`flight_id`) FROM air.main.flights"
    assert not pool.execute(folder(copy), sql).result().ok, "an answer is taken as it is"
    assert Exploration(pool).execute(folder(copy), sql).result().rows == [(3,)]
    failed = pool.explore(folder(copy), "SELECT nothing FROM air.main.flights").result()
    assert failed.status == "error" and failed.message


def test_exploring_falls_back_to_the_spelling_of_the_database(pool, copy, monkeypatch):
    """The stand-in takes any spelling; Snowflake itself takes one."""
    run, asked = pool._run, []

    def strict(database, sql):
        asked.append(sql)
        if '"flight_id"' not in sql:
            return Outcome("error", message="SQL compilation error: invalid identifier 'FLIGHT_ID'")
        return run(database, sql)

    monkeypatch.setattr(pool, "_run", strict)
    sql = "SELECT max(Flight_id) FROM air.main.flights"
    assert pool.explore(folder(copy), sql).result().rows == [(3,)]
    assert len(asked) == 2


def test_answers_are_compared_in_several_modes(pool, copy):
    gold, pred = "SELECT FARE FROM AIR.MAIN.FLIGHTS", "SELECT FARE FROM AIR.MAIN.FLIGHTS LIMIT 2"
    same = "SELECT FARE FROM AIR.MAIN.FLIGHTS ORDER BY 1"
    modes = (Mode("set"), Mode("multiset"))
    jobs = [AssessJob(folder(copy), gold, sql, modes) for sql in (same, pred, "SELEC")]
    found = [[v.status for v in each.verdicts] for each in pool.assess_many(jobs)]
    assert found == [["equal"] * 2, ["different"] * 2, ["refused"] * 2]
    (verdict,) = pool.grade_many([GradeJob(folder(copy), "SELECT x", gold, "set")])
    assert verdict.status == "gold_error"


def test_an_evaluation_on_snowflake(account, copy, tmp_path):
    predictions = tmp_path / "predictions.jsonl"
    rows = [
        {"question_id": "sf0", "pred": "SELECT 3"},
        {"question_id": "sf1", "pred": "SELECT flight_id FROM air.main.flights"},
    ]
    predictions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--suite", "spider2-snow", "--benchmarks", str(copy), "--grader", "set,multiset"]
    options += ["--policy", f"file:{predictions}", "--out"]
    assert main([*options, str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (found["n"], found["correct"]) == (2, 1), "the answer must be Snowflake's dialect"
    assert len(read_rows(tmp_path / "out" / "answers.jsonl", AnswerRow)) == 2
    with pytest.raises(UserError, match="needs SQLite files"):
        main([*options, str(tmp_path / "b"), "--grader", "equivalence"])


LOOKS = {
    "<sf0>": "SELECT max(`flight_id`), IFNULL(NULL, 'none') FROM air.main.flights",
    "<sf1>": "DROP TABLE AIR.MAIN.FLIGHTS",
}
SHOWN = {"<sf0>": "none", "<sf1>": "SELECT"}  # in what the look gave
HIGHEST, FARES = (
    'SELECT MAX("flight_id") FROM AIR.MAIN.FLIGHTS',
    "SELECT FARE FROM AIR.MAIN.FLIGHTS",
)
SQLITE = "SELECT max(`flight_id`) FROM air.main.flights"  # fails as an answer
ANSWERS = {  # the greedy one first
    "<sf0>": [HIGHEST, HIGHEST, "SELECT 2", SQLITE, "SELECT 3.0"],
    "<sf1>": [SQLITE, SQLITE, SQLITE, FARES, SQLITE],
}


class Scripted:
    """A chat model that looks at the data once, then answers."""

    url = "scripted"

    def __init__(self, *_, **__):
        self.answers = {name: list(sqls) for name, sqls in ANSWERS.items()}

    async def find_model(self):
        return "scripted"

    async def reply(self, messages, *, temperature, max_tokens, seed):
        (name,) = (name for name in LOOKS if name in messages[1]["content"])
        if len(messages) == 2:
            call = {"name": "execute_sql_query", "arguments": {"query": LOOKS[name]}}
            said = f"<tool_call>{json.dumps(call)}</tool_call>"
        else:
            assert "Snowflake" in messages[0]["content"] and SHOWN[name] in messages[3]["content"]
            assert (temperature == 0) == (self.answers[name] == ANSWERS[name])
            said = f"<solution>{self.answers[name].pop(0)}</solution>"
        return Reply(said, False, 10, 5, None)

    async def close(self):
        pass


def test_episodes_look_in_one_dialect_and_answer_in_the_other(account, copy, tmp_path, monkeypatch):
    monkeypatch.setattr(chat_policy, "ChatClient", Scripted)
    options = ["--suite", "spider2-snow", "--benchmarks", str(copy), "--grader", "set,multiset"]
    options += ["--policy", "openai:http://scripted", "--style", "tools", "--candidates", "4"]
    options += ["--concurrency", "1", "--out", str(tmp_path / "out")]
    assert main(options) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (found["n"], found["correct"], found["decoding"]) == (2, 1, "greedy")
    curve = found["self_consistency"]
    assert curve["by_question"] == {"sf0": 1.0, "sf1": 1.0}, "queries that fail have no vote"
    assert curve["pass_at_k"] == pytest.approx([0.375, 2 / 3, 0.875, 1.0])
    answers = read_rows(tmp_path / "out" / "answers.jsonl", AnswerRow)
    assert len(answers) == 10
    roles = {tuple(message.role for message in answer.messages) for answer in answers}
    assert roles == {("assistant", "tool", "assistant")}
    looked = {answer.question_id: answer.messages[1].content for answer in answers}
    assert "3" in looked["sf0"] and "FLIGHTS" not in looked["sf1"]

    class Unasked(Scripted):
        async def reply(self, messages, **_):
            raise AssertionError("what is answered is not asked again")

    monkeypatch.setattr(chat_policy, "ChatClient", Unasked)
    assert main(options) == 0
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
