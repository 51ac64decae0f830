"""The sampler program with a real bus, a real grading pool and a fake server, faults included."""

import dataclasses
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_t2sql.bus import Bounds, LearnerBus, NewTask, open_store, start_or_takeover
from jax_t2sql.bus.audit import audit
from jax_t2sql.bus.samplers import read_heartbeats
from jax_t2sql.config import AdapterConfig, DataConfig, PromptConfig, TrainConfig, resolve, to_dict
from jax_t2sql.contract import make_contract, run_name
from jax_t2sql.errors import UserError
from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import (
    LoadedModel,
    export_adapter,
    init_params,
    save_hf,
    tiny_config,
    train_tokenizer,
)
from jax_t2sql.progress import Progress
from jax_t2sql.sample import main, sampler_name, server_url

ROOT = Path(__file__).resolve().parent.parent
RANK = 4
QUESTIONS = {
    f"What is the name of person {n}?": f"SELECT name FROM people WHERE id = {n}" for n in range(12)
}


@dataclasses.dataclass
class Setting:
    """A model, questions and a database on disk, and what a learner would make of them."""

    root: Path
    config: TrainConfig
    contract: object
    adapters: list[Path]
    vocab_size: int
    stop: int

    def lead(self, store, *, adapter=0, **bounds) -> LearnerBus:
        limits = {"vocab_size": self.vocab_size, "groups_per_batch": 4, "max_staleness": 1}
        bus = start_or_takeover(
            store,
            run=run_name(self.contract),
            contract=self.contract,
            bounds=Bounds(**(limits | bounds)),
            learner="test",
            config=to_dict(self.config),
        )
        bus.publish(None if adapter is None else self.adapters[adapter])
        return bus


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    from jax_t2sql.assembly import make_pool
    from jax_t2sql.training import assemble

    root = tmp_path_factory.mktemp("fleet")
    with sqlite3.connect(root / "people.sqlite") as database:
        database.execute("CREATE TABLE people (id INTEGER, name TEXT)")
        database.executemany(
            "INSERT INTO people VALUES (?, ?)", [(n, f"name{n}") for n in range(12)]
        )
    database.close()
    rows = [
        {"question_id": f"q{n}", "db_id": "people", "question": question, "SQL": sql}
        for n, (question, sql) in enumerate(QUESTIONS.items())
    ]
    for name, part in (("train", rows[:8]), ("eval", rows[8:])):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    tokenizer = train_tokenizer([*QUESTIONS, *QUESTIONS.values()], vocab_size=400)
    shape = tiny_config(tokenizer.vocab_size, kv_heads=4)
    params = init_params(shape, jax.random.key(0), "float32")
    model = LoadedModel(config=shape, params=params, tokenizer=tokenizer, source="", sha256="")
    save_hf(model, root / "model")
    config = resolve(
        TrainConfig(
            model=str(root / "model"),
            data=DataConfig(
                train=str(root / "train.jsonl"),
                eval=str(root / "eval.jsonl"),
                databases=str(root),
            ),
            prompt=PromptConfig(style="question"),
            adapter=AdapterConfig(rank=RANK, alpha=8.0),
        )
    )
    spec = LoraSpec(targets="all-linear", rank=RANK, alpha=8.0)
    fresh = spec.init(params, jax.random.key(1))
    adapters = []
    for version in range(3):
        adapter = jax.tree.map(lambda x, v=version: x + 0.01 * v, fresh)
        export_adapter(root / f"v{version}", shape, adapter, spec)
        adapters.append(root / f"v{version}")
    (root / "work").mkdir()
    with make_pool(config) as pool, open(os.devnull, "w") as nowhere:
        run = assemble(config, root / "work", pool, Progress(1, stream=nowhere))
    return Setting(
        root, config, make_contract(run), adapters, tokenizer.vocab_size, tokenizer.stop_ids[0]
    )


@pytest.fixture
def server(fake_vllm, setting):
    made = fake_vllm(
        vocab=setting.vocab_size,
        stop=setting.stop,
        tokenizer=str(setting.root / "model"),
        answers=QUESTIONS,
        context=2048,
    )
    yield made
    made.kill()


class Sampler:
    """A sampler process, whose lines are read as they come."""

    def __init__(self, bus, server, *options):
        command = [sys.executable, "-m", "jax_t2sql.sample", "--bus", str(bus)]
        command += ["--policy", f"vllm:{server.url}", "--sql-workers", "1", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def said(self):
        return "\n".join(self.lines)

    def end(self):
        self.process.wait(60)
        self.reader.join()
        return self.process.returncode


@pytest.fixture
def start():
    started = []

    def go(*arguments):
        started.append(Sampler(*arguments))
        return started[-1]

    yield go
    for sampler in started:
        sampler.process.kill()
        sampler.process.wait()


def until(condition, sampler, *, seconds=90):
    """Waits for something that other processes bring about."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert sampler.process.poll() is None, sampler.said
        assert time.monotonic() < deadline, sampler.said
        time.sleep(0.02)
    return found


def tasks(count, first=0, **changes):
    return [
        NewTask(
            **({"problem": f"q{(first + n) % 8}", "group_size": 4, "seed": first + n} | changes)
        )
        for n in range(count)
    ]


def ready(bus, count):
    def look():
        bus.expire_claims(still_seconds=30)
        found = bus.ready_groups()
        return found if len(found) >= count else None

    return look


def versions(group):
    return {int(v) for r in group.group.rollouts for v in r.versions_T[r.mask_T]}


def test_a_run_from_the_first_claim_to_the_end(setting, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = setting.lead(store, max_eval_tasks=1)
    bus.issue(tasks(8), cursor={})
    sampler = start(tmp_path / "bus", server, "--name", "s1", "--groups", "3")
    groups = until(ready(bus, 8), sampler)
    for ready_group in groups:
        assert versions(ready_group) == {0}
        assert ready_group.group.sampler == "s1"
        for rollout in ready_group.group.rollouts:
            assert rollout.valid and rollout.ids_T[-1] == setting.stop
            # Prompt ids are context; every sampled id has the log-prob that the server measured.
            first = int(np.argmax(rollout.mask_T))
            assert not rollout.mask_T[:first].any() and rollout.mask_T[first:].all()
            assert (rollout.logprobs_T[first:] < 0).all()
    rewards = [rollout.reward for group in groups for rollout in group.group.rollouts]
    assert 0.0 in rewards and 1.0 in rewards, "answers were run and graded"

    bus.append_batch(groups[:4], pack_seed=0)
    old = bus.state.last_publish.adapter.name
    evaluation = tasks(1, kind="eval", adapter=old, deadline=9, problem="q9", group_size=1)
    bus.publish(setting.adapters[1])
    bus.issue([*tasks(2, first=8), *evaluation], cursor={})
    for group in until(ready(bus, 6), sampler)[4:]:
        assert versions(group) == {1}, "new groups use the version just published"
    (evaluated,) = until(bus.ready_evals, sampler)
    assert versions(evaluated) == {0}, "an evaluation keeps the version that it pins"
    assert evaluated.group.rollouts[0].reward == 1.0, "greedy"
    beat = until(lambda: (b := read_heartbeats(store)["s1"]).served == 1 and b, sampler)
    assert (beat.proven, beat.held) == (1, ())

    bus.append_batch(bus.ready_groups(), pack_seed=0)
    bus.publish(setting.adapters[2])
    bus.end(reason="done")
    assert sampler.end() == 0
    assert "the run has ended (done)" in sampler.said and "11 groups delivered" in sampler.said
    assert audit(store).faults == []
    names = {name for path, name in server.seen()["requests"] if path == "/v1/completions"}
    assert names - {"base"} == {ref.name for _, ref in bus.state.adapters} - {
        bus.state.last_publish.adapter.name
    }


def test_a_server_killed_in_mid_run_loses_nothing(setting, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = setting.lead(store)
    sampler = start(tmp_path / "bus", server, "--groups", "2")
    rng = random.Random(0)
    for step in range(3):
        bus.issue(tasks(4, first=4 * step), cursor={})
        server.faults(
            *([rng.choice(["500", "503", "drop"]), "completions", 2] for _ in range(2)),
            ["abort", "completions", 2],
            ["die", "completions", 1],
        )
        until(lambda: server.process.poll() is not None, sampler)
        server.kill()
        server.start()  # without any adapter, at the same address
        groups = until(ready(bus, 4), sampler)
        assert all(versions(group) <= {step, step - 1} for group in groups)
        assert all(len(versions(group)) == 1 for group in groups)
        bus.append_batch(groups, pack_seed=0)
        bus.publish(setting.adapters[min(step + 1, 2)])
    bus.end(reason="done")
    assert sampler.end() == 0
    assert "the server answers again" in sampler.said
    report = audit(store)
    assert report.faults == [] and report.counts["trained"] == 12
    names = {name for path, name in server.seen()["requests"] if path == "/v1/completions"}
    assert all(name == "base" or name.startswith("run-") for name in names)


def test_two_samplers_share_the_work_and_one_that_leaves_gives_it_back(
    setting, server, start, tmp_path
):
    store = open_store(tmp_path / "bus")
    bus = setting.lead(store, groups_per_batch=8)
    first = start(tmp_path / "bus", server, "--name", "s1", "--groups", "2")
    until(lambda: "serving version 0" in first.said, first)
    server.faults(["hang", "completions", 8])
    bus.issue(tasks(2), cursor={})
    until(lambda: len(store.keys("claims/")) == 2, first)
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 0, first.said
    server.faults()
    second = start(tmp_path / "bus", server, "--name", "s2", "--groups", "2")
    groups = until(ready(bus, 2), second)
    assert {group.group.sampler for group in groups} == {"s2"}
    assert {group.task.attempt for group in groups} == {1}, "offered again at once, not after T"


def test_it_says_what_it_waits_for(setting, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = setting.lead(store, adapter=None)
    sampler = start(tmp_path / "bus", server)
    until(lambda: "version 0 was published without an adapter's files" in sampler.said, sampler)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for path in setting.adapters[1].iterdir():
        (wrong / path.name).write_bytes(path.read_bytes())
    config = json.loads((wrong / "adapter_config.json").read_text()) | {"r": 2}
    (wrong / "adapter_config.json").write_text(json.dumps(config))
    bus.publish(wrong)
    until(lambda: "waiting: no adapter can be served" in sampler.said, sampler)
    assert "has shape" in sampler.said
    assert not [path for path, _ in server.seen()["requests"] if "load" in path]
    server.faults(["ignore", "run-", 99])
    bus.publish(setting.adapters[1])
    until(lambda: "the server ignores adapters" in sampler.said, sampler)
    server.faults()
    bus.publish(setting.adapters[2])
    until(lambda: "waiting: the log offers no task" in sampler.said, sampler)


def test_a_sampler_whose_groups_are_refused_stops(setting, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = setting.lead(store)
    bus.issue(tasks(4), cursor={})
    sampler = start(tmp_path / "bus", server, "--name", "s1")
    until(ready(bus, 4), sampler)
    for seq in range(3):
        bus.decide(seq, "invalid", reason="its ratios are off")
    bus.append_batch(bus.ready_groups(), pack_seed=0)
    assert sampler.end() == 2
    assert "error: the learner refused 3 groups" in sampler.said
    assert "its ratios are off" in sampler.said


def refuse(*options):
    with pytest.raises(UserError) as caught:
        main(list(options))
    return str(caught.value)


def test_bad_input_is_refused_with_one_message(setting, server, start, tmp_path):
    policy = ("--policy", f"vllm:{server.url}")
    assert "there is no bus" in refuse("--bus", str(tmp_path / "typo"), *policy)
    assert not (tmp_path / "typo").exists()
    open_store(tmp_path / "empty")
    assert "start the learner first" in refuse("--bus", str(tmp_path / "empty"), *policy)
    assert "give vllm:http" in refuse("--bus", "x", "--policy", "openai:x")
    assert "at least 1" in refuse("--bus", "x", *policy, "--groups", "0")
    setting.lead(open_store(tmp_path / "bus"))
    bus = ("--bus", str(tmp_path / "bus"))
    assert "give --model" not in refuse(*bus, *policy, "--data", "nowhere.jsonl")
    (tmp_path / "other.jsonl").write_text((setting.root / "eval.jsonl").read_text())
    done = start(tmp_path / "bus", server, "--data", str(tmp_path / "other.jsonl"))
    assert done.end() == 2
    assert "error: sampler" in done.said and "these differ: prompt" in done.said
    assert "Traceback" not in done.said


def test_names_and_addresses():
    assert server_url("vllm:http://h:1") == "http://h:1"
    assert sampler_name().endswith(f"-{os.getpid()}")
