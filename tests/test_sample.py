"""The sampler program with a real bus, a real grading pool and a fake server, faults included."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jax_t2sql.bus import NewTask, open_store
from jax_t2sql.bus.audit import audit
from jax_t2sql.bus.samplers import read_heartbeats
from jax_t2sql.errors import UserError
from jax_t2sql.sample import main, sampler_name, server_url

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def server(fake_vllm, fleet):
    made = fake_vllm(
        vocab=fleet.model.config.vocab_size,
        stop=fleet.model.tokenizer.stop_ids[0],
        tokenizer=str(fleet.root / "model"),
        answers=fleet.questions,
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


def test_a_run_from_the_first_claim_to_the_end(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store, max_eval_tasks=1)
    bus.issue(tasks(8), cursor={})
    sampler = start(tmp_path / "bus", server, "--name", "s1", "--groups", "3")
    groups = until(ready(bus, 8), sampler)
    for ready_group in groups:
        assert versions(ready_group) == {0}
        assert ready_group.group.sampler == "s1"
        for rollout in ready_group.group.rollouts:
            assert rollout.valid and rollout.ids_T[-1] == fleet.model.tokenizer.stop_ids[0]
            # Prompt ids are context; every sampled id has the log-prob that the server measured.
            first = int(np.argmax(rollout.mask_T))
            assert not rollout.mask_T[:first].any() and rollout.mask_T[first:].all()
            assert (rollout.logprobs_T[first:] < 0).all()
    rewards = [rollout.reward for group in groups for rollout in group.group.rollouts]
    assert 0.0 in rewards and 1.0 in rewards, "answers were run and graded"

    bus.append_batch(groups[:4], pack_seed=0)
    old = bus.state.last_publish.adapter.name
    evaluation = tasks(1, kind="eval", adapter=old, deadline=9, problem="q9", group_size=1)
    bus.publish(fleet.adapters[1])
    hinted = tasks(1, first=3, kind="hinted", origin=3)
    bus.issue([*tasks(2, first=8), *hinted, *evaluation], cursor={})
    new = until(ready(bus, 7), sampler)[4:]
    for group in new:
        assert versions(group) == {1}, "new groups use the version just published"
        for rollout in group.group.rollouts:
            prompt = fleet.model.tokenizer.decode(rollout.ids_T[~rollout.mask_T].tolist())
            is_hinted = group.task.kind == "hinted"
            assert ("Hint: Look closer." in prompt) == is_hinted == ("hinted" in rollout.terms)
    (evaluated,) = until(bus.ready_evals, sampler)
    assert versions(evaluated) == {0}, "an evaluation keeps the version that it pins"
    assert evaluated.group.rollouts[0].reward == 1.0, "greedy"
    assert "hint" not in json.loads(evaluated.group.rollouts[0].trace)

    def idle():
        beat = read_heartbeats(store)["s1"]
        return (beat.served, beat.proven, beat.held) == (1, 1, ())

    until(idle, sampler)

    bus.append_batch(bus.ready_groups(), pack_seed=0)
    bus.publish(fleet.adapters[2])
    bus.end(reason="done")
    assert sampler.end() == 0
    assert "the run has ended (done)" in sampler.said and "12 groups delivered" in sampler.said
    assert audit(store).faults == []
    names = {name for path, name in server.seen()["requests"] if path == "/v1/completions"}
    published = {ref.name for _, ref in bus.state.adapters}
    assert {name.partition(".")[0] for name in names - {"base"}} == published - {
        bus.state.last_publish.adapter.name
    }


def test_a_server_killed_in_mid_run_loses_nothing(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store)
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
        bus.publish(fleet.adapters[min(step + 1, 2)])
    bus.end(reason="done")
    assert sampler.end() == 0
    assert "the server answers again" in sampler.said
    report = audit(store)
    assert report.faults == [] and report.counts["trained"] == 12
    names = {name for path, name in server.seen()["requests"] if path == "/v1/completions"}
    assert all(name == "base" or name.startswith("run-") for name in names)


def test_two_samplers_share_the_work_and_one_that_leaves_gives_it_back(
    fleet, server, start, tmp_path
):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store, groups_per_batch=8)
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


def test_two_samplers_of_one_server_leave_each_other_alone(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store, groups_per_batch=8, max_staleness=2)
    both = [start(tmp_path / "bus", server, "--name", name, "--groups", "2") for name in "ab"]
    for step in range(3):
        bus.issue(tasks(8, first=8 * step), cursor={})
        bus.append_batch(until(ready(bus, 8), both[0]), pack_seed=0)
        bus.publish(fleet.adapters[min(step + 1, 2)])
        for sampler in both:
            until(lambda s=sampler, n=step + 1: f"serving version {n}" in s.said, sampler)
    bus.end(reason="done")
    for sampler in both:
        assert sampler.end() == 0 and "the server" not in sampler.said, sampler.said
    loads = [name for path, name in server.seen()["requests"] if path == "/v1/load_lora_adapter"]
    assert len(loads) == len(set(loads)), "none had to be loaded again"
    assert len({name.partition(".")[2] for name in loads}) == 2


def test_of_two_processes_with_one_name_one_stops(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store)
    both = [start(tmp_path / "bus", server, "--name", "s1") for _ in range(2)]
    deadline = time.monotonic() + 90
    while not (ended := [s for s in both if s.process.poll() is not None]):
        assert time.monotonic() < deadline, [s.said for s in both]
        time.sleep(0.02)
    assert ended[0].end() == 2
    assert "another process samples under the name s1 now" in ended[0].said
    assert "Traceback" not in ended[0].said
    (other,) = [s for s in both if s is not ended[0]]
    bus.issue(tasks(2), cursor={})
    until(ready(bus, 2), other)
    assert not read_heartbeats(store)["s1"].left, "who stops leaves the other's heartbeat alone"


def test_a_sampler_waits_for_its_run(fleet, server, start, tmp_path):
    sampler = start(tmp_path / "bus", server)
    until(lambda: "waiting: there is no bus" in sampler.said, sampler)
    bus = fleet.lead(open_store(tmp_path / "bus"))
    bus.issue(tasks(2), cursor={})
    until(ready(bus, 2), sampler)


def test_it_says_what_it_waits_for(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store, adapter=None)
    sampler = start(tmp_path / "bus", server)
    until(lambda: "version 0 was published without an adapter's files" in sampler.said, sampler)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for path in fleet.adapters[1].iterdir():
        (wrong / path.name).write_bytes(path.read_bytes())
    config = json.loads((wrong / "adapter_config.json").read_text()) | {"r": 2}
    (wrong / "adapter_config.json").write_text(json.dumps(config))
    bus.publish(wrong)
    until(lambda: "waiting: no adapter can be served" in sampler.said, sampler)
    assert "has shape" in sampler.said
    assert not [path for path, _ in server.seen()["requests"] if "load" in path]
    server.faults(["ignore", "run-", 99])
    bus.publish(fleet.adapters[1])
    until(lambda: "the server ignores adapters" in sampler.said, sampler)
    server.faults()
    bus.publish(fleet.adapters[2])
    until(lambda: "waiting: the log offers no task" in sampler.said, sampler)


@pytest.mark.parametrize("how", ["end", "SIGTERM"])
def test_it_leaves_although_a_server_that_is_gone_owes_it_an_answer(
    fleet, server, start, tmp_path, how
):
    bus = fleet.lead(open_store(tmp_path / "bus"))
    sampler = start(tmp_path / "bus", server)
    until(lambda: "serving version 0" in sampler.said, sampler)
    server.kill()
    bus.publish(fleet.adapters[1])  # must be loaded on the server before anything else
    until(lambda: "the server: " in sampler.said, sampler)
    if how == "end":
        bus.end(reason="done")
    else:
        sampler.process.send_signal(signal.SIGTERM)
    assert sampler.end() == 0, sampler.said


def test_a_sampler_whose_groups_are_refused_stops(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store)
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


def test_a_quarantined_sampler_stops_and_gives_back_what_it_holds(fleet, server, start, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(store)
    bus.issue(tasks(2), cursor={})
    sampler = start(tmp_path / "bus", server, "--name", "s1")
    until(ready(bus, 2), sampler)
    bus.quarantine("s1", reason="ratio 0.8")
    bus.publish()
    assert sampler.end() == 2, sampler.said
    assert "error: the learner has quarantined this sampler (s1)" in sampler.said
    assert "ratio 0.8. Mend it, then start it under another --name" in sampler.said
    assert "Traceback" not in sampler.said
    beat = read_heartbeats(store)["s1"]
    assert beat.left and beat.last_error == "quarantined: ratio 0.8"


def test_bad_input_is_refused_with_one_message(fleet, server, start, tmp_path):
    policy = ("--policy", f"vllm:{server.url}", "--wait-seconds", "0")
    assert "there is no bus" in refuse("--bus", str(tmp_path / "typo"), *policy)
    assert not (tmp_path / "typo").exists()
    open_store(tmp_path / "empty")
    assert "start the learner" in refuse("--bus", str(tmp_path / "empty"), *policy)
    assert "give vllm:http" in refuse("--bus", "x", "--policy", "openai:x")
    assert "--wait-seconds is -1;" in refuse("--bus", "x", *policy[:2], "--wait-seconds", "-1")
    assert "no process but the one" in refuse("--bus", "memory:///", *policy)
    assert "at least 1" in refuse("--bus", "x", *policy, "--groups", "0")
    assert "--sql-workers is 0" in refuse("--bus", "x", *policy, "--sql-workers", "0")
    for wrong in ("0", "nan", "inf"):
        assert "--request-seconds" in refuse("--bus", "x", *policy, "--request-seconds", wrong)
    for wrong in (
        "http://",
        "http://h:99999",
        "http://h:abc",
        "http://h:0",
        "ftp://h",
        "http://h/x",
    ):
        assert "give http://HOST:PORT" in refuse("--bus", "x", "--policy", f"vllm:{wrong}")
    assert "use 1 to 64 letters" in refuse("--bus", "x", *policy, "--name", "a b/c")
    fleet.lead(open_store(tmp_path / "bus"))
    bus = ("--bus", str(tmp_path / "bus"))
    assert "give --model" not in refuse(*bus, *policy, "--data", "nowhere.jsonl")
    (tmp_path / "other.jsonl").write_text((fleet.root / "eval.jsonl").read_text())
    done = start(tmp_path / "bus", server, "--data", str(tmp_path / "other.jsonl"))
    assert done.end() == 2
    assert "error: sampler" in done.said and "these differ: prompt" in done.said
    assert "Traceback" not in done.said


def test_a_run_that_has_ended_is_left_whether_there_is_a_server_or_not(
    fleet, server, start, tmp_path
):
    bus = fleet.lead(open_store(tmp_path / "bus"))
    server.kill()
    sampler = start(tmp_path / "bus", server, "--name", "s1")
    until(lambda: "the server: " in sampler.said, sampler)
    until(lambda: "s1" in read_heartbeats(bus.store), sampler)
    bus.end(reason="done")
    assert sampler.end() == 0 and "the run has ended (done)" in sampler.said
    late = start(tmp_path / "bus", server, "--spawn-vllm")
    assert late.end() == 0 and late.said == "the run has ended (done)"


def test_names_and_addresses():
    for same in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert server_url(f"vllm:{same}") == "http://h:1"
    assert sampler_name().endswith(f"-{os.getpid()}")
