"""The program that writes hints: outlines, a chat endpoint over real HTTP, leaks, resuming."""

import json
import os
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data_pipelines.hint_outline import outline
from data_pipelines.hint_writers import ChatWriter, HintRequest, clean
from data_pipelines.hints import HintArgs, main, write_hints
from jax_t2sql.bus import (
    Bounds,
    Contract,
    NewTask,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.errors import UserError
from jax_t2sql.hints import read_hints
from jax_t2sql.text2sql import Problem, load_problems

QUESTIONS = {
    "Who is over 40?": "SELECT name FROM client WHERE age > 40",
    "How many women are there?": "SELECT COUNT(*) FROM client WHERE gender = 'F'",
    "Which account is the oldest client's?": (
        "SELECT T2.iban FROM client AS T1 JOIN account AS T2 ON T1.id = T2.client"
        " ORDER BY T1.age DESC LIMIT 1"
    ),
}


@pytest.fixture
def bank(tmp_path):
    """Options that name three questions over one database, and where the hints go."""
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        connection.executescript(
            "CREATE TABLE client (id INTEGER, name TEXT, gender TEXT, age INTEGER);"
            "CREATE TABLE account (iban TEXT, client INTEGER);"
            "INSERT INTO client VALUES (1, 'Anna', 'F', 50), (2, 'Bob', 'M', 60);"
            "INSERT INTO account VALUES ('CH77', 2), ('CH78', 1);"
        )
    connection.close()
    rows = [
        {"question_id": f"q{i}", "db_id": "bank", "question": question, "SQL": sql}
        for i, (question, sql) in enumerate(QUESTIONS.items())
    ]
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "data": str(data),
        "databases": tmp_path / "bank.sqlite",
        "out": tmp_path / "hints.jsonl",
        "workers": 1,
    }


@pytest.mark.parametrize(
    ("sql", "strong"),
    [
        ("SELECT COUNT(*) FROM t WHERE a = 1 AND b = 'x'", "Keep rows by a and b. Give the count."),
        ("SELECT DISTINCT a FROM t", "Give a, each once."),
        (
            "SELECT a, AVG(b) FROM t GROUP BY a HAVING COUNT(*) > 2 ORDER BY AVG(b)",
            "Group by a. Then keep groups by the count. Sort by the average of b, lowest first."
            " Give a and the average of b.",
        ),
        (
            "WITH u AS (SELECT a FROM t) SELECT a FROM u WHERE a > (SELECT MIN(a) FROM u)",
            "A query inside the query finds a value to compare with.",
        ),
        ("SELECT a FROM t UNION SELECT a FROM s", "Combine the results of several queries."),
        ("SELECT * FROM t LIMIT 5", ""),
    ],
)
def test_outlines_say_the_steps(sql, strong):
    assert strong in outline(sql, "strong")
    assert outline(sql, "strong").startswith("Use the table")
    assert len(outline(sql, "light")) < len(outline(sql, "medium"))


@pytest.mark.parametrize("sql", ["SELECT 1", "no sql at all (", ""])
def test_what_cannot_be_outlined_gives_no_hint(sql):
    assert outline(sql, "strong") == ""


def test_outlines_for_a_file_of_questions(bank, capsys):
    counts = write_hints(HintArgs(policy="outline", **bank))
    assert counts == {(s, "written"): 3 for s in ("light", "medium", "strong")}
    book = read_hints(bank["out"], "strong")
    problems = load_problems(bank["data"])
    assert book.find(problems[2]) == (
        "Use the tables client and account. Join them. Sort by age, highest first, and cut."
        " Give iban."
    )
    before = bank["out"].read_bytes()
    with open(bank["out"], "ab") as file:
        file.write(b'{"question_id": "q0", "str')  # torn by a crash
    assert not write_hints(HintArgs(policy="outline", **bank)), "nothing is left to write"
    assert bank["out"].read_bytes() == before
    assert "3 were there" in capsys.readouterr().out


class Endpoint:
    """A chat endpoint: answers with what `say` makes of a request, and keeps the requests."""

    def __init__(self):
        self.requests, self.faults = [], []
        self.say = lambda body: "Look at the ages."
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append((self.path, self.headers.get("Authorization"), body))
                status = endpoint.faults.pop(0) if endpoint.faults else 200
                if status == 200:
                    message = {"role": "assistant", "content": endpoint.say(body)}
                    answer = {"choices": [{"message": message, "finish_reason": "stop"}]}
                else:
                    answer = {"error": {"message": "no such luck"}}
                self.answer(status, answer)

            def do_GET(self):
                self.answer(200, {"data": [{"id": "the only one"}]})

            def answer(self, status, value):
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def test_a_chat_endpoint_is_asked_for_every_hint(bank, endpoint, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret\n")
    options = ("--policy", f"openai:{endpoint.url}", "--model", "m", "--api-key-variable", "MY_KEY")
    paths = [x for name in ("data", "databases", "out") for x in (f"--{name}", str(bank[name]))]
    assert main([*options, *paths, "--workers", "1", "--strengths", "light", "strong"]) == 0
    assert len(endpoint.requests) == 6
    for path, key, body in endpoint.requests:
        assert (path, key, body["model"]) == ("/v1/chat/completions", "Bearer secret", "m")
        asked = body["messages"][1]["content"]
        assert "CREATE TABLE client" in asked and "SELECT" in asked and "Question: " in asked
    rows = [json.loads(line) for line in bank["out"].read_text().splitlines()]
    assert {(row["question_id"], row["strength"]) for row in rows} == {
        (f"q{i}", strength) for i in range(3) for strength in ("light", "strong")
    }
    assert "secret" not in bank["out"].read_text()


def test_a_hint_that_leaks_is_asked_for_again_with_the_reason(bank, endpoint, capsys):
    def say(body):
        asked = body["messages"][1]["content"]
        if "Who is over 40?" in asked:
            return "Look at the ages." if "cannot be used" in asked else "It is Bob."
        if "How many" in asked:
            return "<think>count</think> Hint: SELECT COUNT(*) FROM client"
        return "<think>hm</think>\n**Hint: Join the two tables.**"

    endpoint.say = say
    policy = f"openai:{endpoint.url}"
    counts = write_hints(HintArgs(policy=policy, strengths=("medium",), attempts=2, **bank))
    assert counts == {("medium", "written"): 2, ("medium", "refused"): 1}
    book = read_hints(bank["out"], "medium")
    found = [book.find(problem) for problem in load_problems(bank["data"])]
    assert found == ["Look at the ages.", "", "Join the two tables."]
    assert "no medium hint for q1: it writes a query out" in capsys.readouterr().err
    seeds = [body["seed"] for _, _, body in endpoint.requests]
    assert sorted(seeds) == [0, 0, 0, 1, 1]
    assert {body["model"] for _, _, body in endpoint.requests} == {"the only one"}


def request():
    problem = Problem(question_id="1", db_id="d", question="Q?", gold_sql="SELECT 1")
    return HintRequest(problem, "light", "CREATE TABLE t (a)")


def writer(url, **options):
    return ChatWriter(url, model="m", key_variable="NO_SUCH_KEY", **options)


def test_passing_faults_of_an_endpoint_are_waited_out(endpoint):
    endpoint.faults = [503, 429]
    assert writer(endpoint.url).write([request()]) == ["Look at the ages."]
    assert [key for _, key, _ in endpoint.requests] == [None] * 3


@pytest.mark.parametrize(
    ("faults", "asked", "says"),
    [([401], 1, "NO_SUCH_KEY is not set"), ([500] * 9, 2, "no such luck. What is written")],
)
def test_an_endpoint_that_refuses_is_one_clear_error(endpoint, faults, asked, says):
    endpoint.faults = list(faults)
    with pytest.raises(UserError, match=says):
        writer(endpoint.url, retries=1).write([request()])
    assert len(endpoint.requests) == asked


def test_answers_that_are_no_hint(endpoint):
    endpoint.say = lambda body: None
    assert writer(endpoint.url).write([request()]) == [""]
    endpoint.say = lambda body: "x" * 2001
    assert writer(endpoint.url).write([request()]) == [""]
    assert clean(' "Hint: Two\n lines." ') == "Two lines."


def test_a_local_model_is_asked(bank, fleet):
    """One that knows nothing: what it says is no leak, or it runs into its limit."""
    options = {"policy": f"local:{fleet.root / 'model'}", "strengths": ("light",), "max_tokens": 8}
    counts = write_hints(HintArgs(attempts=1, **options, **bank))
    assert counts["light", "written"] + counts["light", "refused"] == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"policy": "magic"}, "--policy is 'magic'"),
        ({"policy": "openai:ftp://x"}, "not the address of a server"),
        ({"policy": "local:no/such/model"}, "no/such/model"),
        ({"attempts": 0}, "--attempts is 0"),
        ({"questions": 0}, "--questions is 0"),
        ({"ids": Path("no_such_file.jsonl")}, "--ids no_such_file.jsonl: no such file"),
        ({"out": Path(__file__).parent}, "is no file"),
        ({"out": Path(__file__) / "hints.jsonl"}, "--out"),
        ({"unsolved_in": "no/such/bus"}, "no/such/bus"),
        ({"data": "missing.jsonl"}, "missing.jsonl"),
    ],
)
def test_bad_options_are_refused(bank, change, says):
    with pytest.raises(UserError, match=says):
        write_hints(HintArgs(**({"policy": "outline"} | bank | change)))


def test_a_file_of_something_else_is_left_alone(bank):
    bank["out"].write_text('{"question": "mine"}\n')
    with pytest.raises(UserError, match="something else than hints"):
        write_hints(HintArgs(policy="outline", **bank))
    assert bank["out"].read_text() == '{"question": "mine"}\n'


def test_hints_for_what_a_run_never_solved(bank, tmp_path):
    bus = start_or_takeover(
        open_store(tmp_path / "bus"),
        run="run",
        contract=Contract(**dict.fromkeys(Contract.__struct_fields__, "x")),
        bounds=Bounds(vocab_size=9, groups_per_batch=4),
        learner="test",
    )
    bus.publish()
    sampler = SamplerBus(bus.store, sampler="s", contract=bus.state.start.contract)
    problems = ("mine/q0", "q1", "q2")
    bus.issue([NewTask(problem=p, group_size=2, seed=0) for p in problems], cursor={})
    sampler.refresh()
    for task in sampler.claim(3):
        solved = [float(task.problem == "q1" and member == 0) for member in range(2)]
        rollouts = [
            Rollout.make(
                [1, 2],
                mask_T=[0, 1],
                logprobs_T=[0, -1],
                versions_T=[0, 0],
                reward=x,
                terms={"correct": x},
                ending="answered",
            )
            for x in solved
        ]
        sampler.put_groups([sampler.make_group(task, rollouts)])
    bus.append_batch(bus.ready_groups(), pack_seed=0)
    unsolved = str(tmp_path / "bus")
    counts = write_hints(HintArgs(policy="outline", unsolved_in=unsolved, **bank))
    assert counts["light", "written"] == 2
    assert {
        row["question_id"] for row in map(json.loads, bank["out"].read_text().splitlines())
    } == {"q0", "q2"}


def test_hints_for_some_questions_only(bank, tmp_path):
    ids = tmp_path / "failed.jsonl"
    ids.write_text('{"question_id": "q1"}\n{"question_id": "gone"}\n')
    counts = write_hints(HintArgs(policy="outline", ids=ids, **bank))
    assert counts["strong", "written"] == 1
    ids.write_text('{"question_id": "gone"}\n')
    with pytest.raises(UserError, match="names none of the questions"):
        write_hints(HintArgs(policy="outline", ids=ids, **bank))
    assert os.path.getsize(bank["out"]) > 0
