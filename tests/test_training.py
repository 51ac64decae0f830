"""Whole runs as a user starts them: a result, an exact resume after SIGKILL, clear refusals."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_pipelines.hint_outline import outline
from data_pipelines.world import build_world
from jax_t2sql.bus import Issue, Log, RunState, open_store
from jax_t2sql.text2sql import load_problems
from jax_t2sql.tracking import read_metrics

ROOT = Path(__file__).resolve().parent.parent
SHORT = (
    "--rl.steps 5 --rl.groups 4 --rl.group-size 4 --warmup.steps 8 --warmup.batch 16"
    " --eval.every 2 --eval.questions 8 --eval.final-questions 16 --checkpoint.every 2"
).split()


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A short run whose draws rest on what came before: weights, and hints that few need."""
    folder = tmp_path_factory.mktemp("hints")
    world = build_world(folder / "world", seed=0)
    rows = [
        {"question_id": p.question_id, "strength": "strong", "hint": outline(p.gold_sql, "strong")}
        for path in (world.train, world.warmup)
        for p in load_problems(path)
    ]
    (folder / "hints.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--hints.file", str(folder / "hints.jsonl"), "--hints.strength", "strong"]
    return [*SHORT, *options, "--warmup.hint-share", "0.5", "--learnability.enabled"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One compilation cache for all runs of this file."""
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


def command(workdir, *options):
    base = [sys.executable, "-m", "jax_t2sql.train", "--config", "configs/quickstart.py"]
    return [*base, "--workdir", str(workdir), *options]


def train(environment, workdir, *options):
    return subprocess.run(
        command(workdir, *options),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def refuse(environment, workdir, *options) -> str:
    """The one message of a run that must be refused."""
    done = train(environment, workdir, *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def finished(environment, short, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "finished"
    done = train(environment, workdir, *short)
    assert done.returncode == 0, done.stderr[-2000:]
    return workdir, done.stdout


def test_a_run_ends_with_everything(finished):
    workdir, printed = finished
    result = json.loads((workdir / "result.json").read_text())
    assert {"before", "after", "n", "minutes", "seed"} <= result.keys()
    assert (result["n"], result["seed"]) == (16, 0)
    for name in ("before", "after"):
        low, high = result[f"{name}_interval"]
        assert low <= result[name] <= high
        rows = (workdir / "evaluations" / f"{name}.jsonl").read_text().splitlines()
        correct = sum(json.loads(row)["correct"] for row in rows)
        assert correct / 16 == result[name]
    assert "before RL" in printed and "95 % interval" in printed and "report.html" in printed
    assert "\x1b[" not in printed, "a pipe gets plain lines"
    for name in ("report.html", "model/config.json", "config.json", "excluded.jsonl"):
        assert (workdir / name).stat().st_size >= 0
    assert "<html" in (workdir / "report.html").read_text()


def test_every_step_is_recorded_once(finished):
    rows = read_metrics(finished[0])
    assert [row["step"] for row in rows if row["phase"] == "warmup"] == list(range(1, 9))
    assert [row["step"] for row in rows if row["phase"] == "rl"] == list(range(1, 6))
    assert [row["step"] for row in rows if row["phase"] == "eval"] == [0, 2, 4, 5]
    for row in rows:
        if row["phase"] == "rl":
            assert row["ratio_mean"] == pytest.approx(1, abs=1e-3)
            assert row["logprob_gap"] <= 1e-4
            assert row["staleness_mean"] == 0


def test_the_log_accounts_for_every_task(finished):
    log = Log.open(open_store(finished[0] / "bus"))
    state = RunState()
    state.apply_all(log.entries)
    assert state.end is not None and not state.open_tasks
    assert state.version == 5 and len(state.fates) == state.next_seq
    assert state.adapters, "weights were published as files"
    tasks = [task for entry in log.entries if isinstance(entry, Issue) for task in entry.tasks]
    hinted = [task for task in tasks if task.kind == "hinted"]
    assert hinted and {task.seq for task in tasks} > {task.origin for task in hinted}
    rows = [row for row in read_metrics(finished[0]) if row["phase"] == "rl"]
    assert any(row["hinted_share"] > 0 for row in rows)
    prompts = [json.loads(x) for x in (finished[0] / "samples.jsonl").read_text().splitlines()]
    assert any("Use the table" in row.get("hint", "") for row in prompts)
    after = (finished[0] / "evaluations" / "after.jsonl").read_text().splitlines()
    assert not any("hint" in json.loads(row) for row in after), "never in evaluation"


def test_the_trained_model_scores_what_the_run_reported(finished, environment, tmp_path):
    """The exported model, through the other program, on the same questions."""
    workdir, _ = finished
    rows = [
        json.loads(row)
        for row in (workdir / "evaluations" / "after.jsonl").read_text().splitlines()
    ]
    wanted = {row["question_id"] for row in rows}
    questions = [
        line
        for line in (workdir / "world" / "heldout.jsonl").read_text().splitlines()
        if json.loads(line)["question_id"] in wanted
    ]
    data = tmp_path / "questions.jsonl"
    data.write_text("\n".join(questions))
    done = subprocess.run(
        [sys.executable, "-m", "jax_t2sql.eval", "--policy", f"local:{workdir / 'model'}"]
        + ["--data", str(data), "--databases", str(workdir / "world" / "databases")]
        + ["--out", str(tmp_path / "score"), "--style", "question", "--max-tokens", "64"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answers = {}
    for line in (tmp_path / "score" / "answers.jsonl").read_text().splitlines():
        row = json.loads(line)
        answers[row["question_id"]] = row.get("sql")
    assert answers == {row["question_id"]: row["predicted_sql"] or None for row in rows}


def test_a_finished_run_is_shown_again(finished, environment, short):
    done = train(environment, finished[0], *short)
    assert done.returncode == 0 and "this run is complete" in done.stdout


def test_a_workdir_of_another_configuration_is_refused(finished, environment, short):
    message = refuse(environment, finished[0], *short, "--optimizer.lr", "1e-3", "--seed", "4")
    assert "optimizer.lr was 0.0003, now 0.001" in message and "seed was 0, now 4" in message


def test_kill_and_resume_ends_with_the_same_weights(finished, environment, short, tmp_path):
    """SIGKILL after step 3, whose checkpoint is of step 2: step 3 is replayed, not sampled anew.

    Then the disk is full for a while: the next checkpoint fails with one message, nothing is lost.
    """
    workdir = tmp_path / "killed"
    process = subprocess.Popen(
        command(workdir, *short), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not any(row["phase"] == "rl" and row["step"] >= 3 for row in read_metrics(workdir)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    full = subprocess.run(
        # No file may be larger than 976 KiB: the next checkpoint cannot be written.
        ["bash", "-c", 'ulimit -f 976; exec "$@"', "-", *command(workdir, *short)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert full.returncode == 2 and "Traceback" not in full.stderr, full.stderr[-2000:]
    assert "Make room" in full.stderr and "run the same command" in full.stderr
    done = train(environment, workdir, *short)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "taking over the run in" in done.stdout + done.stderr
    weights = [p / "model" / "model.safetensors" for p in (finished[0], workdir)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    steps = [row["step"] for row in read_metrics(workdir) if row["phase"] == "rl"]
    assert steps == [1, 2, 3, 4, 5]
    results = [json.loads((p / "result.json").read_text()) for p in (finished[0], workdir)]
    assert results[0]["after"] == results[1]["after"]


@pytest.fixture
def mine(finished, tmp_path):
    """A model and questions of a user's own, good and bad ones, over one database."""
    databases = tmp_path / "databases"
    databases.mkdir()
    with sqlite3.connect(databases / "shop.sqlite") as connection:
        connection.executescript(
            "CREATE TABLE item (name TEXT, price INTEGER);"
            "INSERT INTO item VALUES ('pen', 2), ('ink', 5), ('pad', 3), ('cap', 9);"
        )
    connection.close()
    rows = [
        {
            "db_id": "shop",
            "question": f"Items over {n}?",
            "query": f"SELECT name FROM item WHERE price > {n}",
        }
        for n in range(8)
    ]
    rows.append(
        {
            "db_id": "shop",
            "question": "Items over 100?",
            "query": "SELECT name FROM item WHERE price > 100",
        }
    )
    rows.append({"db_id": "shop", "question": "Broken?", "query": "SELECT colour FROM item"})
    rows.append({"db_id": "gone", "question": "Where?", "query": "SELECT 1"})
    data = tmp_path / "questions.json"
    data.write_text(json.dumps(rows))
    options = ["--model", str(finished[0] / "model"), "--data", str(data)]
    return [*options, "--databases", str(databases)], data, databases


def test_own_model_questions_and_databases(mine, environment, tmp_path):
    options, data, _ = mine
    short = "--rl.steps 2 --rl.groups 2 --eval.every 0 --prompt.style question --adapter.rank 4"
    done = train(
        environment,
        tmp_path / "run",
        *options,
        *short.split(),
        *("--prompt.max-tokens", "16", "--data.eval", str(data)),
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-500:]
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").is_file()
    excluded = [
        json.loads(x) for x in (tmp_path / "run" / "excluded.jsonl").read_text().splitlines()
    ]
    reasons = {
        row["question"]: row["reason"] for row in excluded if row["reason"].startswith("train")
    }
    assert "no such column: colour" in reasons["Broken?"]
    assert "empty" in reasons["Items over 100?"]
    assert "gone" in reasons["Where?"]
    assert len(reasons) == 3
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["n"] == 9, "the empty gold counts in evaluation"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--model", "no/such/dir/x"], "no/such/dir/x"),
        (["--data", "missing.jsonl"], "missing.jsonl"),
        (["--databases", "missing_folder"], "missing_folder"),
        (["--prompt.max-context", "100000"], "100000"),
        (
            ["--prompt.max-context", "40", "--prompt.max-tokens", "16"],
            "no question fits the context",
        ),
        (["--rl.group-size", "1"], "--rl.group-size is 1"),
        (["--adapter.targets", "no_such_layer"], "no_such_layer"),
    ],
)
def test_bad_input_is_refused_with_one_message(mine, environment, tmp_path, change, says):
    options = mine[0]
    for flag, value in zip(change[::2], change[1::2], strict=True):
        options = [*options, flag, value]
    assert says in refuse(environment, tmp_path / "run", *options)


def test_a_corrupt_database_is_refused(mine, environment, tmp_path):
    options, _, databases = mine
    (databases / "shop.sqlite").write_bytes(b"this is no database" * 100)
    assert "shop" in refuse(environment, tmp_path / "run", *options)


def test_a_folder_that_is_no_run_is_left_alone(environment, tmp_path):
    (tmp_path / "thesis.txt").write_text("keep me")
    assert "holds no run" in refuse(environment, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
