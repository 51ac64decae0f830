import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browsing import browse, drive
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql import curves, panels, report
from jax_t2sql.curves import build_figures
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program
from jax_t2sql.report import choose_episodes, write_report
from jax_t2sql.stats import wilson
from jax_t2sql.tracking import Tracker

HOSTILE = (
    "</script><script>document.documentElement.dataset.hacked = 1</script>"
    '<img src=x onerror="document.documentElement.dataset.hacked = 2"><!--<script>'
    "{{ 7 * 7 }} & \u2028 '\" \udcfc"
)


def episode(step, **fields):
    return {
        "question_id": step,
        "db_id": "library",
        "question": f"How many members in step {step}?",
        "gold_sql": "SELECT count(*) FROM members",
        "predicted_sql": "SELECT count(id) FROM members",
        "reward": 1.0,
        "terms": {"equal": 1.0},
        "verdict": "equal",
        "ending": "answered",
        "version": step - 1,
        "turns": [
            {"role": "user", "text": "How many?"},
            {"role": "assistant", "text": "<solution>SELECT count(id) FROM members</solution>"},
        ],
    } | fields


@pytest.fixture
def run_dir(tmp_path):
    """A small run with every kind of row, and hostile text wherever text can be."""
    directory = tmp_path / "run"
    with Tracker(directory, tensorboard=False) as tracker:
        for step in range(5):
            tracker.log(step, {"loss": 3.0 - step / 2}, phase="warmup")
        for step in range(1, 13):
            row = {key: 0.5 for panel in panels.PANELS for key in (x.key for x in panel.lines)}
            row = {key: value for key, value in row.items() if not key.startswith("eval_")}
            tracker.log(step, row | {"loss": math.nan if step == 7 else 0.1})
            bad = episode(step, reward=-1, ending="contract_broken", predicted_sql=None, verdict="")
            tracker.log_samples(step, [episode(step), bad])
        tracker.log_samples(
            13,
            [
                episode(
                    13,
                    question=HOSTILE,
                    db_id=HOSTILE,
                    gold_sql=HOSTILE,
                    predicted_sql=HOSTILE + "x",
                    reward=None,
                    terms={HOSTILE: 1},
                    verdict=HOSTILE,
                    evidence=HOSTILE,
                    detail=HOSTILE,
                    ending=HOSTILE,
                    turns=[
                        {"role": HOSTILE, "text": HOSTILE},
                        {"role": "tool", "text": "é" * 2000},
                    ],
                )
            ],
        )
        for step, right in ((1, 0), (4, 7), (9, 2)):
            tracker.log_solves([{"step": step, "question_id": HOSTILE, "right": right, "of": 8}])
            tracker.log_solves([{"step": step, "question_id": "12", "right": 0, "of": 8}])
        for step in (0, 12):
            tracker.log(
                step,
                {"eval_accuracy": 0.3, "eval_correct": 120, "eval_n": 400},
                phase="eval",
            )
    (directory / "config.json").write_text(json.dumps({"name": HOSTILE, "rl": {"steps": 12}}))
    result = {"before": 0.3, "after": 0.65, "n": 400, "minutes": 9.5, "seed": 3}
    part = {"accuracy": 0.25, "n": 100, "interval": [0.17, 0.34]}
    result |= {"after_interval": [0.602, 0.695], "parts": {"after": {"unseen": part}}}
    (directory / "result.json").write_text(json.dumps(result))
    return directory


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


def test_the_page_holds_facts_curves_and_episodes(run_dir):
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    page = Page(path)
    words = " ".join(page.text.split())
    low, high = wilson(260, 400)
    assert "65.0 %" in words and f"interval {100 * low:.1f} to {100 * high:.1f}" in words
    assert "Gain: +35.0 points" in words and "minutes 9.5" in words and "rl.steps 12" in words
    assert "unseen: 25.0 % (17.5 to 34.3 %, n = 100)" in words and "_interval" not in words
    assert "loss was not finite in 1 row, first in step 7" in words
    assert "Not recorded" not in words
    assert [figure["title"] for figure in page.json("figures")] == [x.title for x in panels.PANELS]
    episodes = page.json("episodes-data")
    assert len(episodes) == 25 and [x["step"] for x in episodes[:3]] == [13, 12, 12]
    assert "2 met in 6 visits; 12.5 % right at their last visit, 1 never answered" in words
    assert "▁▇▂ 2 of 8 step 9" in words and "▁▁▁ 0 of 8 step 9" in words
    assert not list(run_dir.glob("*.tmp"))


def test_hostile_text_stays_text(run_dir):
    page = Page(write_report(run_dir))
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "link", "object")]
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len(scripts) == 6 and len({attributes["nonce"] for attributes in scripts}) == 1
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    shown = HOSTILE.replace("\udcfc", "\\udcfc")
    assert page.json("episodes-data")[0]["question"] == shown
    assert "{{ 7 * 7 }}" in page.text and "49 &" not in page.text


def test_the_page_names_no_other_file(run_dir):
    page = Page(write_report(run_dir))
    assert not [tag for tag, at in page.tags if "href" in at or "src" in at or "srcset" in at]
    policy = next(at["content"] for _, at in page.tags if at.get("http-equiv"))
    assert policy.startswith("default-src 'none';") and "'unsafe-eval'" not in policy


def test_two_pages_share_no_nonce(run_dir):
    nonces = [
        re.search(r"script-src 'nonce-([^']+)'", write_report(run_dir).read_text()).group(1)
        for _ in range(2)
    ]
    assert nonces[0] != nonces[1]


@pytest.mark.parametrize("files", [["config.json"], ["metrics.jsonl"], ["samples.jsonl"]])
def test_what_is_absent_is_said(tmp_path, files):
    for name in files:
        (tmp_path / name).write_text("{}" if name == "config.json" else "")
    page = Page(write_report(tmp_path))
    words = " ".join(page.text.split())
    assert "metrics.jsonl is absent or empty" in words
    assert "samples.jsonl is absent or empty" in words
    assert "result.json is absent" in words and "No result yet" in words
    assert "last step none yet" in words


def test_a_part_of_the_metrics_makes_a_part_of_the_curves(tmp_path):
    with Tracker(tmp_path, tensorboard=False) as tracker:
        tracker.log(1, {"reward_mean": 0.1, "loss": None, "lr": "fast", "ratio_mean": math.inf})
    page = Page(write_report(tmp_path))
    assert [figure["title"] for figure in page.json("figures")] == ["Reward"]
    said = "Not recorded in this run: accuracy, groups, groups with a hint, pool and test,"
    assert said in page.text


@pytest.mark.parametrize("result", ["", "[", "[1]", '{"before": "x", "after": 7, "parts": 1}', "3"])
def test_an_odd_result_does_not_stop_the_report(tmp_path, result):
    (tmp_path / "result.json").write_text(result)
    assert "No result yet" in Page(write_report(tmp_path)).text


def test_odd_samples_do_not_stop_the_report(tmp_path):
    lines = ['{"step": 1}', '{"step": 2, "turns": 3, "terms": [], "reward": "x"}', "torn"]
    lines.insert(1, '{"step": 2, "turns": [1, {}], "question": {"a": 1}, "reward": NaN}')
    (tmp_path / "samples.jsonl").write_text("\n".join(lines))
    episodes = Page(write_report(tmp_path)).json("episodes-data")
    assert [(x["step"], x["reward"]) for x in episodes] == [(2, None), (2, None), (1, None)]


def test_a_directory_that_is_no_run_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="holds none of config.json"):
        write_report(tmp_path)
    with pytest.raises(UserError, match="is not a directory"):
        write_report(tmp_path / "missing")


def test_an_out_that_cannot_be_written_is_a_user_error(run_dir):
    with pytest.raises(UserError, match="--out"):
        write_report(run_dir, run_dir)
    with pytest.raises(UserError, match="--out"):
        write_report(run_dir, run_dir / "config.json" / "page.html")


def test_the_page_stays_small_when_the_run_is_long(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_EPISODES", 40)
    monkeypatch.setattr(report, "MAX_EPISODE_BYTES", 100_000)
    with Tracker(tmp_path, tensorboard=False) as tracker:
        for step in range(300):
            tracker.log_samples(step, [episode(step, question="q" * 50_000)])
    episodes, total = choose_episodes(tmp_path / "samples.jsonl")
    assert total == 300 and len(json.dumps(episodes)) <= 100_000
    chosen = [episode["step"] for episode in episodes]
    assert chosen == sorted(chosen, reverse=True) and len(set(chosen)) == len(chosen)
    assert chosen[:3] == [299, 298, 297] and chosen[-1] == 0
    assert "characters left out" in episodes[0]["question"]


def test_a_long_curve_is_thinned_but_keeps_its_spikes():
    rows = [{"step": step, "grad_norm": 1.0} for step in range(20_000)]
    rows[12_345]["grad_norm"], rows[777]["grad_norm"] = 99.0, -99.0
    ((figure,), _) = build_figures(rows)
    raw = figure["data"][0]
    assert len(raw["x"]) <= curves.MAX_POINTS
    assert (raw["x"][0], raw["x"][-1]) == (0, 19_999)
    points = dict(zip(raw["x"], raw["y"], strict=True))
    assert points[12_345] == 99.0 and points[777] == -99.0


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=60))
def test_thinning_keeps_the_extremes_and_the_ends(values):
    before, curves.MAX_POINTS = curves.MAX_POINTS, 20
    try:
        kept = curves._thin(values)
    finally:
        curves.MAX_POINTS = before
    assert len(kept) <= 20 and kept == sorted(set(kept))
    known = [value for value in values if value is not None]
    if values:
        assert {0, len(values) - 1} <= set(kept)
    if known:
        assert {min(known), max(known)} <= {values[i] for i in kept}


def test_a_noisy_curve_gets_its_running_mean():
    rows = [{"step": step, "reward_mean": step % 2 or None} for step in range(100)]
    rows[1]["reward_mean"] = 5.0
    ((figure,), _) = build_figures(rows)
    raw, mean = figure["data"]
    assert mean["name"] == "mean reward, mean of 5 steps"
    assert raw["y"][:4] == [None, 5.0, None, 1.0]
    assert mean["y"][:4] == [None, 5.0, 5.0, 3.0] and mean["y"][-1] == pytest.approx(1.0)


def test_the_band_is_the_wilson_interval():
    rows = [{"step": 4, "phase": "eval", "eval_accuracy": 0.5, "eval_n": 40}]
    figures, _ = build_figures(rows)
    assert [figure["title"] for figure in figures] == ["Accuracy", "Pool and test"]
    for figure in figures:
        low, high, mean = figure["data"]
        assert (low["y"][0], high["y"][0]) == pytest.approx(wilson(20, 40))
        assert mean["y"] == [0.5] and mean["x"] == [4]


def test_warm_up_and_reinforcement_are_apart():
    rows = [{"step": 1, "phase": "warmup", "loss": 5.0}, {"step": 1, "phase": "rl", "loss": 0.1}]
    figures, _ = build_figures(rows)
    assert {x["title"]: x["data"][0]["y"] for x in figures} == {
        "Loss": [0.1],
        "Warm-up loss": [5.0],
    }


# The command line.


def python(*arguments, **options):
    options = {"capture_output": True, "text": True, "timeout": 120} | options
    return subprocess.run([sys.executable, *arguments], **options)


def test_the_command_prints_the_path_of_the_page(run_dir, tmp_path):
    out = tmp_path / "deep" / "page.html"
    done = python("-m", "jax_t2sql.report", str(run_dir), "--out", str(out))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(out), "")
    assert Page(out).json("figures")


def test_bad_input_is_one_message_and_status_2(tmp_path):
    done = python("-m", "jax_t2sql.report", str(tmp_path))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_help_tells_what_the_command_does():
    done = python("-m", "jax_t2sql.report", "--help")
    assert done.returncode == 0
    assert "DIR" in done.stdout and "--out FILE" in done.stdout and "self-contained" in done.stdout


def test_the_modules_need_no_jax():
    modules = "report, tracking, progress, programs, stats"
    done = python("-c", f"import sys\nfrom jax_t2sql import {modules}\nprint('jax' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def ending(main_fn):
    with pytest.raises(SystemExit) as exit:
        run_program(main_fn)
    return exit.value.code


def raiser(error):
    def main_fn():
        raise error

    return main_fn


def test_a_program_ends_with_the_status_of_its_ending(capsys):
    assert ending(lambda: None) is None
    assert ending(lambda: 3) == 3
    assert ending(raiser(UserError("rank 0 is below 1: give --rank 1"))) == 2
    assert capsys.readouterr().err == "error: rank 0 is below 1: give --rank 1\n"
    assert ending(raiser(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "interrupted; resume with the same command\n"


@pytest.mark.parametrize("error", [ValueError("ours"), BrokenPipeError("a worker's pipe")])
def test_faults_of_ours_keep_their_traceback(error):
    with pytest.raises(type(error), match=str(error)):
        run_program(raiser(error))


def test_a_reader_that_leaves_ends_the_program_in_silence():
    read, write = os.pipe()
    os.close(read)
    code = (
        "from jax_t2sql.programs import run_program\nrun_program(lambda: print('x' * 100_000, 'y'))"
    )
    done = python("-c", code, stdout=write, stderr=subprocess.PIPE, capture_output=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_signal_ends_a_program_as_ctrl_c_does(name, status, ignored):
    """In the middle of an event loop, too. One that is ignored from the start stays so."""
    code = f"""
import asyncio, os, signal
from jax_t2sql.programs import run_program
if {ignored}:
    signal.signal(signal.{name}, signal.SIG_IGN)
async def work():
    try:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.{name})
        await asyncio.sleep({0.2 if ignored else 60})
    finally:
        print("closed")
run_program(lambda: asyncio.run(work()))
"""
    done = python("-c", code)
    told = "" if ignored else "interrupted; resume with the same command\n"
    assert (done.returncode, done.stdout, done.stderr) == (
        0 if ignored else status,
        "closed\n",
        told,
    )


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
const chosen = () => document.querySelector("#list [aria-selected=true]")?.textContent ?? "";
marks.start = chosen();
press("j"); marks.next = chosen();
press("k"); marks.back = chosen();
press("k"); marks.first = chosen();
$("list").focus(); press("End"); marks.last = chosen();
press("/"); marks.focus = document.activeElement.id;
press("j"); marks.typing = chosen();
set("text", "STEP 12?"); marks.text = $("list").children.length;
set("reward", "below"); marks.reward = $("list").children.length;
marks.badge = document.querySelector("#detail .chips .mark").textContent;
marks.gold = document.querySelector("#detail .pair section:last-child pre").textContent;
press("Escape"); marks.cleared = $("list").children.length;
set("reward", ""); set("ending", "contract_broken"); marks.ending = $("list").children.length;
set("ending", ""); set("from", "3"); set("to", "4"); marks.steps = $("list").children.length;
set("text", "no such thing"); marks.none = $("detail").textContent;
set("text", ""); set("from", ""); set("to", "");
const texts = selector => [...document.querySelectorAll(selector)].map(node => node.textContent);
set("reward", "full"); marks.difference = texts("#detail mark");
marks.roles = texts("#detail .turn h4");
set("reward", "");
document.documentElement.dataset.marks = JSON.stringify(marks);
"""


@pytest.mark.browser
def test_a_browser_draws_the_page_and_runs_nothing_hostile(run_dir, tmp_path):
    dom, marks = drive(write_report(run_dir), DRIVER)
    assert dom.count('class="js-line"') >= len(panels.PANELS)
    assert dom.count('class="js-fill"') == 2  # the Wilson band, beside both accuracies of training
    assert len(re.findall(r'<li[^>]*role="option"', dom)) == 25
    assert "</script>" in marks["start"] and "? no reward" in marks["start"]
    assert "step 12" in marks["next"] and marks["back"] == marks["first"] == marks["start"]
    assert "step 1 " in marks["last"] and marks["focus"] == "text"
    assert marks["typing"] == marks["last"]  # letters typed into the search are letters
    assert (marks["text"], marks["reward"], marks["badge"]) == (2, 1, "✗ −1")
    assert marks["gold"] == "SELECT count(*) FROM members"
    assert (marks["cleared"], marks["ending"], marks["steps"]) == (12, 12, 4)
    assert "No episode matches" in marks["none"]
    assert marks["difference"] == ["id", "*"]
    assert marks["roles"] == ["User", "Model"]


@pytest.mark.browser
def test_a_browser_opens_an_empty_run_without_a_fault(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    dom, console = browse(write_report(tmp_path))
    assert console == []
    assert re.search(r'<div id="fault"[^>]*hidden', dom) and "No result yet" in dom


@pytest.mark.browser
def test_a_fault_of_the_page_is_shown(run_dir, tmp_path):
    path = write_report(run_dir)
    page = path.read_text(encoding="utf-8")
    broken = page.replace("  draw();", '  throw new Error("on purpose");', 1)
    path.write_text(broken, encoding="utf-8")
    dom, _ = browse(path)
    fault = re.search(r'<div id="fault"([^>]*)>([^<]*)', dom)
    assert "hidden" not in fault.group(1) and "on purpose" in fault.group(2)


def test_a_device_is_written_to_and_a_link_stays_one(tmp_path):
    with Tracker(tmp_path / "run", tensorboard=False) as tracker:
        tracker.log(1, {"loss": 1.0})
    write_report(tmp_path / "run", "/dev/null")
    assert not Path("/dev/null").is_file()
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "page.html")
    write_report(tmp_path / "run", link)
    assert link.is_symlink() and "<html" in (tmp_path / "page.html").read_text()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot make the report"):
        write_report(tmp_path / "run", tmp_path / "folder")
    assert not list(tmp_path.glob("*.tmp"))


def test_damaged_rows_are_passed_over(tmp_path):
    row = '{"step": 4, "phase": "rl", "loss": 1.0, "nonfinite": 5}'
    (tmp_path / "metrics.jsonl").write_text(f"{row}\n{'[' * 100_000}\n")
    (tmp_path / "config.json").write_text("[" * 100_000)
    page = write_report(tmp_path).read_text()
    assert "config.json is not valid JSON" in page
