import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from browsing import browse, drive

from jax_t2sql.errors import UserError
from jax_t2sql.scores import browser
from jax_t2sql.scores import page as program
from jax_t2sql.scores.cost import cost
from jax_t2sql.scores.page import write_page
from jax_t2sql.scores.records import Message, VerdictRow, write_rows
from jax_t2sql.scores.summary import summarise

HOSTILE = (
    "</script><script>document.documentElement.dataset.hacked = 1</script>"
    '<img src=x onerror="document.documentElement.dataset.hacked = 2"><!--<script>'
    "{{ 7 * 7 }} & \u2028 '\" \U0001f600"
)
PREDICTIONS = {
    "q0": ("SELECT name FROM item", "match", True, True),
    "q1": ("SELECT DISTINCT name FROM item", "match", True, False),
    "q2": ("SELECT id FROM item", "mismatch", False, False),
    "q3": (None, "no_query", False, False),
    "q4": (HOSTILE, "error", False, False),
    "q5": ("SELECT name FROM item", "gold_error", None, None),
}
GOLD = "SELECT name FROM item"


@pytest.fixture
def evaluation(tmp_path, question, answer):
    """An evaluation with every kind of row, and hostile text wherever text can be."""
    folder = tmp_path / "run"
    folder.mkdir()
    questions = {
        name: question(name, GOLD, difficulty="hard" if name > "q2" else "easy", text=f"{name}?")
        for name in PREDICTIONS
    }
    questions["q4"] = question(
        "q4", GOLD + " -- " + HOSTILE, db_id=HOSTILE, difficulty=HOSTILE, text=HOSTILE
    )
    tokens = {"prompt_tokens": 500, "completion_tokens": 20}
    answers = [
        answer(name, sql, messages=(Message("user", f"{name}?"), Message("assistant", sql or "–")))
        for name, (sql, *_) in PREDICTIONS.items()
    ]
    answers[4] = answer(
        "q4", HOSTILE, messages=(Message(HOSTILE, HOSTILE), Message("tool", "é" * 2000)), **tokens
    )
    answers.append(answer("q0", "SELECT 1", candidate=1, **tokens))
    verdicts = []
    for name, (_, kind, right, strict) in PREDICTIONS.items():
        for grader, correct in (("set", right), ("multiset", strict)):
            verdicts.append(
                VerdictRow(
                    question_id=name,
                    candidate=0,
                    key="gold",
                    grader=grader,
                    kind=kind,
                    correct=correct,
                    detail=HOSTILE if name == "q4" else "",
                )
            )
    sample = {"question_id": "q0", "candidate": 1, "key": "gold", "grader": "set"}
    verdicts.append(VerdictRow(kind="mismatch", correct=False, **sample))
    write_rows(folder / "questions.jsonl", questions.values())
    write_rows(folder / "answers.jsonl", answers)
    write_rows(folder / "verdicts.jsonl", verdicts)
    found = [
        {
            "question_id": name,
            "differences": [{"kind": "other column", "text": text}],
            "guess": {"name": "model", "why": text},
            "gold": {"columns": [text], "rows": [[text]], "n_rows": 30},
            "predicted": {"message": text},
            "counterexample": {
                "reason": text,
                "database": text,
                "gold": {"columns": ["a"], "rows": [], "n_rows": 0},
                "predicted": {"columns": ["a"], "rows": [["1"]], "n_rows": 1},
            },
        }
        for name, text in (("q2", "selects id"), ("q4", HOSTILE))
    ]
    rows = "".join(json.dumps(row) + "\n" for row in found)
    (folder / "failures.jsonl").write_text(rows)
    results = summarise(questions, answers, verdicts, grader="set", key="gold")
    n = [1, 2, 4]
    results["self_consistency"] = {
        "n": n,
        "accuracy": [0.3, 0.4, 0.5],
        "low": [0.2, 0.3, 0.4],
        "high": [0.4, 0.5, 0.6],
        "pass_at_k": [0.3, 0.5, 0.7],
    }
    results["cost"] = cost(answers, results["correct"], model="gpt-5.4-nano")
    results["left_out"] = {"no database": 4}
    results["manifest"] = {"model": {"name": HOSTILE}, "keys": {"gold": {"sha256": "ab" * 32}}}
    (folder / "results.json").write_text(json.dumps(results))
    return folder


class Page(HTMLParser):
    """Tags, scripts and the text outside scripts and styles."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.scripts, self.text, self.inside = [], [], "", None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = tag
        self.text += " "
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    def json(self, id):
        scripts = [attributes for tag, attributes in self.tags if tag == "script"]
        (index,) = (i for i, attributes in enumerate(scripts) if attributes.get("id") == id)
        return json.loads(self.scripts[index])


def test_the_page_holds_the_figures_and_every_question(evaluation, capsys):
    assert program.main([str(evaluation)]) == 0
    path = evaluation / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    page = Page(path)
    words = " ".join(page.text.split())
    assert "Accuracy, grader set" in words and "40.0 % 95 % interval 11.8 to 76.9 %" in words
    assert "2 of 5 questions" in words and "the interval lies wholly below it" in words
    assert "4 questions left out: no database" in words
    assert "1 answers cannot be told right or wrong" in words and "tokens in 1,000" in words
    titles = [figure["title"] for figure in page.json("figures")]
    assert titles == [
        "Accuracy by grader", "By difficulty", "Self-consistency", "Accuracy and cost",
        "By structure of the gold query", "By database",
    ]  # fmt: skip
    questions = page.json("questions-data")
    assert [row["id"] for row in questions] == list(PREDICTIONS)
    assert questions[1]["graders"] == {"set": True, "multiset": False}
    assert questions[0]["samples"] == [{"candidate": 1, "correct": False, "sql": "SELECT 1"}]
    assert questions[2]["differences"] == [{"kind": "other column", "text": "selects id"}]
    assert not list(evaluation.glob("*.tmp"))


def test_hostile_text_stays_text(evaluation):
    page = Page(write_page(evaluation))
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "link", "object")]
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len(scripts) == 7 and len({attributes["nonce"] for attributes in scripts}) == 1
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert page.json("questions-data")[4]["pred"] == HOSTILE
    assert "{{ 7 * 7 }}" in page.text and "49 &" not in page.text
    policy = next(at["content"] for _, at in page.tags if at.get("http-equiv"))
    assert policy.startswith("default-src 'none';") and "'unsafe-eval'" not in policy
    assert not [tag for tag, at in page.tags if "href" in at or "src" in at]


def test_other_evaluations_are_drawn_beside_it(evaluation, tmp_path):
    shutil.copytree(evaluation, tmp_path / "other")
    program.main([str(evaluation), "--beside", str(tmp_path / "other")])
    charts = {f["title"]: f for f in Page(evaluation / "report.html").json("figures")}
    drawn = [t["name"] for t in charts["Accuracy and cost"]["data"] if t["showlegend"]]
    assert drawn == ["run", "other"]


def test_a_young_evaluation_has_a_page_too(evaluation):
    for name in ("results.json", "failures.jsonl"):
        (evaluation / name).unlink()
    page = Page(write_page(evaluation))
    assert "2 of 5 questions" in " ".join(page.text.split())
    assert "jax_t2sql.eval explain" in page.text
    (evaluation / "failures.jsonl").write_text("{")
    with pytest.raises(UserError, match="run `explain` again"):
        write_page(evaluation)


def test_a_large_evaluation_leaves_episodes_out(evaluation, monkeypatch):
    monkeypatch.setattr(browser, "_MAX_BYTES", 9_000)
    monkeypatch.setattr(browser, "_MAX_QUESTIONS", 5)
    page = Page(write_page(evaluation))
    assert "the first 5 of 6 questions" in page.text and "Episodes are left out" in page.text
    assert all(row["messages"] == [] for row in page.json("questions-data"))


def test_a_page_that_cannot_be_written_is_a_user_error(evaluation, tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        write_page(evaluation, tmp_path / "none" / "page.html")
    with pytest.raises(UserError, match="lacks questions.jsonl"):
        write_page(tmp_path)


# A real browser.

# What a reader does, and what must come of it. Runs in the page, after the page's own scripts.
DRIVER = """
const $ = id => document.getElementById(id), marks = {};
const press = key => (document.activeElement ?? document.body)
  .dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const set = (id, value) => {
  $(id).value = value;
  $(id).dispatchEvent(new Event("input", { bubbles: true }));
};
const count = () => $("list").querySelectorAll("[role=option]").length;
const chosen = () => document.querySelector("#list [aria-selected=true]")?.textContent ?? "";
const texts = selector => [...document.querySelectorAll(selector)].map(node => node.textContent);
marks.all = count(); marks.start = chosen();
press("j"); marks.next = chosen();
press("k"); press("k"); marks.first = chosen();
$("list").focus(); press("End"); marks.last = chosen();
press("/"); marks.focus = document.activeElement.id;
set("text", "Q2?"); marks.text = count();
press("Escape"); marks.cleared = count();
set("right", "true"); marks.right = count();
set("right", "null"); marks.untold = count();
set("right", ""); set("kind", "no_query"); marks.kind = count();
set("kind", ""); set("difficulty", "easy"); marks.easy = count();
set("difficulty", ""); set("tag", "single table"); marks.tag = count();
set("tag", ""); set("difference", "other column"); marks.difference = count();
set("difference", ""); set("guess", "model"); marks.guess = count();
set("guess", "");
document.querySelector("[data-right=set][data-wrong=multiset]").click();
marks.disagree = count(); marks.lucky = chosen();
marks.words = texts("#detail mark");
press("Escape"); set("text", "q2?");
marks.found = texts("#detail ul.found li"); marks.turns = texts("#detail .turn h4");
marks.message = texts("#detail .pair pre"); marks.rows = texts("#detail .pair h4");
set("text", "no such thing"); marks.none = $("detail").textContent;
press("Escape");
document.documentElement.dataset.marks = JSON.stringify(marks);
"""


@pytest.mark.browser
def test_a_browser_draws_the_page_and_runs_nothing_hostile(evaluation, tmp_path):
    dom, marks = drive(write_page(evaluation), DRIVER)
    assert dom.count('class="errorbar"') >= 6 and dom.count('class="js-fill"') >= 1
    assert (marks["all"], marks["cleared"]) == (6, 6) and "q0?" in marks["start"]
    assert "q1?" in marks["next"] and marks["first"] == marks["start"] and "q5?" in marks["last"]
    assert (marks["focus"], marks["text"]) == ("text", 1)
    assert (marks["right"], marks["untold"], marks["kind"], marks["easy"]) == (2, 1, 1, 3)
    assert (marks["tag"], marks["difference"], marks["guess"]) == (6, 2, 2)
    assert marks["disagree"] == 1 and "q1?" in marks["lucky"] and marks["words"] == ["DISTINCT"]
    assert marks["found"] == ["other columnselects id"] and marks["turns"] == ["User", "Model"]
    assert "selects id" in marks["message"] and "Gold (1 of 30 rows)" in marks["rows"]
    assert "No question matches" in marks["none"]


@pytest.mark.browser
def test_a_browser_opens_a_young_evaluation_without_a_fault(evaluation, tmp_path):
    (evaluation / "results.json").unlink()
    (evaluation / "failures.jsonl").unlink()
    dom, console = browse(write_page(evaluation))
    assert console == [] and re.search(r'<div id="fault"[^>]*hidden', dom)
    assert 'id="list"' in dom
