"""Processes and whole fleets, killed, stopped and raced; whatever happens the bus stays sound."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jax_t2sql.bus import Log, RunState, open_store
from jax_t2sql.bus.audit import audit

FLEET = Path(__file__).with_name("chaos_run.py")
LEARNER = Path(__file__).with_name("run_process.py")


def run_fleet(tmp_path, **plan):
    """The state at the end, and whom the kills struck."""
    bus, work = tmp_path / "bus", tmp_path / "work"
    work.mkdir()
    command = [
        sys.executable,
        str(FLEET),
        str(bus),
        str(work),
        json.dumps({"seconds": 1800} | plan),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ended"], f"no end in half an hour: {result} {done.stderr}"
    assert result["died"] == [], f"ended by themselves: {done.stderr}"
    store = open_store(bus)
    report = audit(store)
    assert report.faults == []
    log, state = Log.open(store), RunState()
    state.apply_all(log.entries)
    ends = [entry for entry in log.entries if type(entry).__name__ == "End"]
    assert len(ends) == 1 and report.counts["open"] == 0
    takeovers = sum(type(entry).__name__ == "Takeover" for entry in log.entries)
    return state, result["struck"], takeovers


def fates(state):
    return {fate for fate, _ in state.fates.values()}


@pytest.mark.parametrize("seed", [1, 2])
def test_sixty_random_kills_lose_and_repeat_nothing(tmp_path, seed):
    state, struck, takeovers = run_fleet(tmp_path, steps=20, seed=seed, kills=60)
    assert len(struck) == 60 and set(struck) == {"learner", "s0", "s1", "s2"}
    assert 0 < takeovers <= struck.count("learner")
    assert fates(state) <= {"trained", "zero-signal", "stale", "unused"}
    assert state.version >= 20


@pytest.mark.parametrize("k", range(5))
def test_progress_with_half_the_groups_useless_and_every_sampler_killed(tmp_path, k):
    state, struck, _ = run_fleet(
        tmp_path, steps=8, staleness=k, zero_share=0.5, kills=["s0", "s1", "s2"]
    )
    assert state.version >= 8 and len(struck) == 3
    assert "zero-signal" in fates(state)


def test_a_poisonous_task_fails_after_its_attempts_and_stops_nobody(tmp_path):
    state, _, _ = run_fleet(tmp_path, steps=40, poison=2, attempts=3, zero_share=0.0)
    failed = [seq for seq, (fate, _) in state.fates.items() if fate == "failed"]
    assert sorted(failed) == [0, 1]


def test_sigkill_at_every_boundary_loses_and_repeats_nothing(tmp_path):
    command = [sys.executable, str(FLEET.with_name("kill_run.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["calm"]["faults"] == [] and told["calm"]["ended"]
    assert {each["act"] for each in told["killed"]} == {"create", "update", "checkpoint", "delete"}
    for number, each in enumerate(told["killed"]):
        place = f"killed after act {number} ({each['act']}): {done.stderr}"
        assert each["statuses"] == [-signal.SIGKILL, 0], place
        assert each["faults"] == [] and each["after"] == told["calm"], place


def start_learner(bus, work, steps):
    work.mkdir(exist_ok=True)
    command = [sys.executable, str(LEARNER), str(bus), str(work), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read_until(process, line, times):
    for text in process.stdout:
        times -= text.strip() == line
        if times == 0:
            return
    raise AssertionError(f"the process ended before {line!r}")


@pytest.mark.parametrize("moment", ["issued", "group", "batch", "published"])
def test_a_learner_that_was_stopped_finds_another_and_exits(tmp_path, moment):
    bus = tmp_path / "bus"
    with start_learner(bus, tmp_path / "one", 100_000) as old:
        read_until(old, moment, 2)
        os.kill(old.pid, signal.SIGSTOP)
        with start_learner(bus, tmp_path / "two", 100_000) as new:
            read_until(new, "published", 5)
            os.kill(old.pid, signal.SIGCONT)
            said = old.stdout.read()
            assert old.wait() == 3, "it exits as one that lost the lead"
            assert "lost" in said
            head = Log.open(open_store(bus)).head
            read_until(new, "published", head)  # more than it can have said by then
            new.kill()
    store = open_store(bus)
    assert audit(store).faults == []
    log = Log.open(store)
    assert log.head > head, "the second went on"
    epochs = [entry.epoch for entry in log.entries]
    assert epochs == sorted(epochs) and len(set(epochs)) == 2


def test_of_two_learners_that_race_one_ends_the_run(tmp_path):
    bus, steps = tmp_path / "bus", 20
    racers = [start_learner(bus, tmp_path / f"work{n}", steps) for n in range(2)]
    said = [racer.communicate(timeout=600)[0] for racer in racers]
    # A racer that comes up after the other's end finds the run ended instead.
    assert sorted(racer.returncode == 0 for racer in racers) == [False, True]
    assert [("weights" in text) for text in said] == [racer.returncode == 0 for racer in racers]
    store = open_store(bus)
    report = audit(store)
    assert report.faults == [] and report.counts["trained"] == 3 * steps
    entries = Log.open(store).entries
    assert [type(entry).__name__ for entry in entries].count("End") == 1


def test_sigkill_and_takeover_train_the_same(tmp_path):
    with start_learner(tmp_path / "calm", tmp_path / "calm-work", 5) as calm:
        expected = calm.communicate(timeout=600)[0].split()[-1]
    bus, work = tmp_path / "bus", tmp_path / "work"
    for line, times in (("group", 2), ("batch", 1), ("published", 2), ("replayed", 1)):
        with start_learner(bus, work, 5) as learner:
            read_until(learner, line, times)
            learner.kill()
    with start_learner(bus, work, 5) as learner:
        weights = learner.communicate(timeout=600)[0].split()[-1]
    assert weights == expected, "the weights are those of the run that nobody killed"
    log, state = Log.open(open_store(bus)), RunState()
    state.apply_all(log.entries)
    assert sum(type(entry).__name__ == "Takeover" for entry in log.entries) == 4
    assert [fate for fate, _ in state.fates.values()] == ["trained"] * 15


def test_writers_that_race_for_every_slot_never_share_one(tmp_path):
    program = (
        "import sys\n"
        "from jax_t2sql.bus.keys import log_key\n"
        "from jax_t2sql.bus.store import open_store, put_once\n"
        "store = open_store(sys.argv[1])\n"
        "print('up', flush=True)\n"
        "sys.stdin.readline()\n"
        "me = sys.argv[2].encode()\n"
        "print([n for n in range(150) if put_once(store, log_key(n), me * 50)])\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for racer in racers:
        assert racer.stdout.readline() == "up\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [set(json.loads(racer.communicate(timeout=600)[0])) for racer in racers]
    assert won[0] | won[1] == set(range(150))
    assert not won[0] & won[1]
    store = open_store(tmp_path)
    for n in range(150):
        assert store.read(f"log/{n:08d}.json") == (b"a" if n in won[0] else b"b") * 50
