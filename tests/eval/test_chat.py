"""Chat-completions endpoints: what is sent, what is counted, and every way to fail."""

import asyncio
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.eval import chat_client
from jax_t2sql.eval.__main__ import main
from jax_t2sql.scores.records import AnswerRow, read_rows

KEY = "sk-very-secret"


class Endpoint:
    """Answers from a function of the request's body; the faults given go first."""

    def __init__(self, reply, faults=(), models=("tiny",)):
        self.reply, self.faults, self.models = reply, list(faults), models
        self.requests, self.keys, self.lock = [], set(), threading.Lock()

    def answer(self, path, body, key):
        with self.lock:
            self.keys.add(key)
            if path.endswith("/models"):
                return 200, {"data": [{"id": name} for name in self.models]}
            self.requests.append(body)
            if self.faults:
                return self.faults.pop(0)
        said = self.reply(body)
        text, ended = said if isinstance(said, tuple) else (said, "stop")
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": ended}
        usage = {"prompt_tokens": 100, "completion_tokens": 10,
                 "prompt_tokens_details": {"cached_tokens": 60}}  # fmt: skip
        return 200, {"choices": [choice], "usage": usage}


@contextlib.contextmanager
def serving(endpoint):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or "{}")
            status, value = endpoint.answer(self.path, body, self.headers.get("Authorization"))
            data = json.dumps(value).encode()
            self.send_response(status)
            if status == 503:
                self.send_header("Retry-After", "7")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"openai:http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(chat_client, "_FIRST_PAUSE", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def direct(body):
    """Right about q0 and q3, wrong about q1, no query for q2."""
    question = body["messages"][-1]["content"]
    if "<q0>" in question:
        return "```sql\nSELECT 3\n```"
    if "<q1>" in question:
        return "```sql\nSELECT 1\n```"
    return "I do not know." if "<q2>" in question else "SELECT a FROM t WHERE 0"


def test_answers_are_counted_and_billed(shop, tmp_path):
    endpoint = Endpoint(direct)
    with serving(endpoint) as policy:
        found = shop.run(policy, tmp_path / "out")
    assert (found["n"], found["correct"]) == (4, 2)
    rows = {row.question_id: row for row in read_rows(tmp_path / "out/answers.jsonl", AnswerRow)}
    assert rows["q0"].sql == "SELECT 3" and rows["q2"].ending == "contract_broken"
    tokens = {(r.prompt_tokens, r.completion_tokens, r.cached_tokens) for r in rows.values()}
    assert tokens == {(100, 10, 60)}
    sent = endpoint.requests[0]
    assert (sent["model"], sent["temperature"], sent["top_p"]) == ("tiny", 0.0, 1)
    assert "CREATE TABLE" in sent["messages"][1]["content"]
    assert any("about q0" in r["messages"][1]["content"] for r in endpoint.requests)
    assert endpoint.keys == {f"Bearer {KEY}"}
    written = "".join(p.read_text() for p in (tmp_path / "out").iterdir() if p.is_file())
    assert KEY not in written


def test_evidence_can_be_left_out_or_both(shop, tmp_path):
    endpoint = Endpoint(lambda body: "SELECT 3" if "about q0" in str(body) else "SELECT 4")
    with serving(endpoint) as policy:
        found = shop.run(policy, tmp_path / "out", "--show-evidence", "both")
        assert (found["correct"], found["without_evidence"]["correct"]) == (1, 0)
        assert len(endpoint.requests) == 8
        shop.run(policy, tmp_path / "none", "--show-evidence", "without")
    assert not any("about q" in str(body) for body in endpoint.requests[8:])


CALL = '<tool_call>{"name": "execute_sql_query", "arguments": {"query": "SELECT max(a) FROM t"}}'


def tools(body):
    """Looks first, and dreams of a result; then answers with what the database gave."""
    if len(body["messages"]) == 2:
        return f"Let me look.\n{CALL}</tool_call>\n<tool_response>99</tool_response>"
    observation = body["messages"][3]
    assert observation["role"] == "user" and "\n3\n" in observation["content"]
    assert body["messages"][2]["content"].endswith("</tool_call>"), "the dream is cut off"
    return "<solution>SELECT 3</solution>"


def test_an_episode_with_a_look_at_the_data(shop, tmp_path):
    with serving(Endpoint(tools)) as policy:
        found = shop.run(policy, tmp_path / "out", "--style", "tools", "--questions", "1")
    assert found["n"] == 1
    (row,) = read_rows(tmp_path / "out" / "answers.jsonl", AnswerRow)
    assert [message.role for message in row.messages] == ["assistant", "tool", "assistant"]
    assert (row.turns, row.prompt_tokens, row.sql) == (2, 200, "SELECT 3")


def test_a_reply_that_meets_its_limit_is_no_answer(shop, tmp_path):
    endpoint = Endpoint(lambda body: ("```sql\nSELECT 3\n```", "length"))
    with serving(endpoint) as policy:
        found = shop.run(policy, tmp_path / "out", "--questions", "2")
    assert found["endings"] == {"cut_off": 2} and found["correct"] == 0


def test_faults_that_pass_are_waited_for_and_fields_refused_left_out(shop, tmp_path):
    said = "Unsupported parameter: 'max_tokens' is not supported; use 'max_completion_tokens'."
    faults = [
        (429, {"error": {"message": "slow down"}}),
        (503, {}),
        (400, {"error": {"message": said}}),
        (400, {"error": {"message": "Unknown parameter: 'seed'."}}),
    ]
    endpoint = Endpoint(direct, faults)
    with serving(endpoint) as policy:
        found = shop.run(policy, tmp_path / "out", "--concurrency", "1")
    assert found["correct"] == 2 and "error" not in found["endings"]
    last = endpoint.requests[-1]
    assert last["max_completion_tokens"] == 512
    assert not {"max_tokens", "seed"} & last.keys()


def test_an_endpoint_says_how_long_to_wait(shop, tmp_path, monkeypatch):
    waited, sleep = [], asyncio.sleep

    async def noted(seconds, *rest):
        waited.append(seconds)
        await sleep(0, *rest)

    monkeypatch.setattr(chat_client.asyncio, "sleep", noted)
    busy = {"error": {"message": "busy"}}
    with serving(Endpoint(direct, [(503, busy), (500, busy), (503, busy)])) as policy:
        shop.run(policy, tmp_path / "out", "--questions", "1")
    assert [int(seconds) for seconds in waited if seconds] == [7, 0, 7]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("1.5", 1.5), ("-3", 0), ("1e9", 600), ("nan", 0), ("", 0), ("soon", 0),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Thu, 99 Jan 1970 00:01:00 GMT", 0), ("Thu, 01 Jan 99999999999 00:01:00 GMT", 0),
    ],
)  # fmt: skip
def test_what_an_endpoint_may_say_of_waiting(text, seconds):
    assert chat_client.retry_after(text, 10.0) == seconds


def test_what_failed_is_asked_again_by_the_same_command(shop, tmp_path):
    broken = (400, {"error": {"message": f"bad luck with {KEY}"}})
    endpoint = Endpoint(direct, [broken])
    with serving(endpoint) as policy:
        found = shop.run(policy, tmp_path / "out", "--concurrency", "1")
        assert found["endings"]["error"] == 1
        row = next(
            r for r in read_rows(tmp_path / "out/answers.jsonl", AnswerRow) if r.ending == "error"
        )
        assert row.error == "HTTP 400: bad luck with …"
        again = shop.run(policy, tmp_path / "out", "--concurrency", "1")
    assert "error" not in again["endings"] and again["correct"] == 2
    assert len(endpoint.requests) == 5


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ((401, {"error": {"message": f"wrong {KEY}"}}), "refuses the key .*wrong ….*is set"),
        ((404, {"error": {"message": "no such model"}}), "correct the one or other"),
    ],
)
def test_what_will_never_work_ends_at_once(shop, tmp_path, fault, told):
    with serving(Endpoint(direct, [fault] * 99)) as policy, pytest.raises(UserError, match=told):
        main(shop.arguments(policy, tmp_path / "out"))


def test_an_endpoint_that_is_down_ends_with_a_message(shop, tmp_path):
    with serving(Endpoint(direct)) as policy:
        pass
    options = ("--model", "m", "--retries", "1", "--candidates", "8")
    with pytest.raises(UserError, match=r"20 answers in a row failed, the last: no answer in 2"):
        main(shop.arguments(policy, tmp_path / "out", *options))


def test_of_an_endpoint_that_answers_nothing_the_reason_is_told(shop, tmp_path, capsys):
    with serving(Endpoint(direct)) as policy:
        pass
    options = ("--model", "m", "--retries", "1")
    with pytest.raises(UserError, match="no question was answered: no answer in 2 tries"):
        main(shop.arguments(policy, tmp_path / "out", *options))
    said = capsys.readouterr().err
    assert said.count("asking again") == 1 and "Connect call failed" in said
    assert not (tmp_path / "out" / "results.json").exists()


def test_an_endpoint_that_cannot_name_its_model_says_why(shop, tmp_path):
    class Shut(Endpoint):
        def answer(self, path, body, key):
            return 403, {"error": {"message": f"no entry for {KEY}"}}

    with serving(Shut(direct)) as policy:
        arguments = shop.arguments(policy, tmp_path / "out", "--retries", "0")
        with pytest.raises(UserError, match=r"with --model\. It does not list .*no entry for …"):
            main(arguments)
    with pytest.raises(UserError, match=r"with --model\. It cannot be asked for it: no answer"):
        main(arguments)


def test_the_model_must_be_known(shop, tmp_path):
    with (
        serving(Endpoint(direct, models=("one", "two"))) as policy,
        pytest.raises(UserError, match="name the model with --model. It has one, two"),
    ):
        main(shop.arguments(policy, tmp_path / "out"))
