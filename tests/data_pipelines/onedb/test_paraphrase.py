"""Rewording and reading by a model, with a server that answers from a script."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from data_pipelines.onedb.endpoint import Endpoint, json_of, parse_endpoint
from data_pipelines.onedb.legend_model import with_model
from data_pipelines.onedb.paraphrase import CRITERIA, keeps_values, paraphrase_rows, vote
from jax_t2sql.errors import UserError

ROW = {
    "question": "List the titles of the books whose genre is novel.",
    "SQL": "SELECT title FROM book WHERE genre = 'novel'",
    "register": "command",
}


@pytest.fixture
def server():
    """An endpoint; set `answers` to a function of the system and the user text."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            system, user = (message["content"] for message in body["messages"])
            text = self.server.answers(system, user)
            if text is None:
                self.send_error(503)
                return
            reply = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *args):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    http.endpoint = Endpoint(f"http://127.0.0.1:{http.server_port}/v1", "scripted")
    yield http
    http.shutdown()
    thread.join()
    http.server_close()


def grades(**changed):
    return json.dumps({**dict.fromkeys(CRITERIA, "good"), "solvable": False, **changed})


def script(wording, reading):
    def answer(system, user):
        return json.dumps({"question": wording}) if "reword" in system else reading

    return answer


def test_good_wording_is_taken_and_solvability_only_recorded(server):
    wording = "Which novel books are there?"
    server.answers = script(wording, f"```json\n{grades()}\n```")
    (row,) = paraphrase_rows([ROW], server.endpoint)
    assert row["question"] == wording and row["wording_by_rule"] == ROW["question"]
    assert row["reading"]["solvable"] is False and row["register"] == "question"


@pytest.mark.parametrize(
    "wording, reading",
    [
        ("Which poems are there?", grades()),  # the value is lost
        ("Which novel is there?", grades(faithful="fair")),
        ("Which novel is there?", grades(faithful="perfect")),  # no such level
        ("Which novel is there?", "I cannot say."),
    ],
)
def test_other_wording_is_not_taken(server, wording, reading):
    server.answers = script(wording, reading)
    (row,) = paraphrase_rows([ROW], server.endpoint)
    assert row["question"] == ROW["question"] and row["register"] == "command"


def test_criteria_that_do_not_gate_never_filter(server):
    server.answers = script("Which novel is there?", grades(natural="poor", register="poor"))
    (row,) = paraphrase_rows([ROW], server.endpoint)
    assert row["question"] == "Which novel is there?"


def test_a_finding_takes_two_votes(server):
    server.answers = script("", grades(unambiguous="poor"))
    assert vote([ROW], [server.endpoint]) == []
    (found,) = vote([ROW], [server.endpoint] * 2)
    assert found["objections"][0]["grades"] == {"unambiguous": "poor"}


def test_words_of_a_model_are_checked_like_a_users(server, live):
    said = []
    answers = {
        "Table book": {"noun": "volume", "plural": "volumes",
                       "columns": {"genre": {"noun": "kind", "values": {"novel": "long prose"}}}},
        "Table reader": {"noun": "", "columns": {}},
        "Table author": {"columns": {"name": {"values": {"Nobody": "x"}}}},
    }  # fmt: skip
    server.answers = lambda system, user: next(
        (json.dumps(a) for head, a in answers.items() if user.startswith(head)), "no idea"
    )
    legend = with_model(live, server.endpoint, said.append)
    assert legend.tables["book"].plural == "volumes"
    assert legend.column("book", "genre").values == {"novel": "long prose"}
    assert legend.column("book", "pages") == live.legend.column("book", "pages")
    assert legend.tables["reader"] == live.legend.tables["reader"]
    assert any("expected a word" in text for text in said)
    assert any("no JSON" in text for text in said)


def test_faults_of_the_endpoint_are_told(server):
    server.answers = lambda system, user: None
    with pytest.raises(UserError, match="answers 503"):
        paraphrase_rows([ROW], server.endpoint)
    with pytest.raises(UserError, match="cannot be asked"):
        Endpoint("http://127.0.0.1:9/v1", "x").ask("a", "b")
    with pytest.raises(UserError, match="give MODEL@URL"):
        parse_endpoint("http://localhost")
    assert json_of("[1, 2]") is None and json_of('so: {"a": 1}.') == {"a": 1}


def test_values_are_kept():
    assert keeps_values(ROW, "novel?") and not keeps_values(ROW, "Novel?")
    assert not keeps_values(ROW, "")
