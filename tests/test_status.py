import json
import subprocess
import sys

import numpy as np
import pytest

from jax_t2sql.bus import (
    Bounds,
    Contract,
    NewTask,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.bus.keys import group_key
from jax_t2sql.errors import UserError
from jax_t2sql.status import Watcher, describe, main

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)


@pytest.fixture
def location(tmp_path):
    return tmp_path / "bus"


@pytest.fixture
def fleet(location):
    """A learner at version 1 with an open queue, one sampler at work and one gone."""
    store = open_store(location)
    bounds = Bounds(vocab_size=100, groups_per_batch=3, max_staleness=1)
    bus = start_or_takeover(store, run="run", contract=CONTRACT, bounds=bounds, learner="me")
    bus.publish()
    bus.issue([NewTask(problem=f"q{n}", group_size=1, seed=n) for n in range(6)], cursor={})
    worker = SamplerBus(store, sampler="works", contract=CONTRACT)
    gone = SamplerBus(store, sampler="gone", contract=CONTRACT)
    for task in worker.claim(2):
        rollout = Rollout.make(
            [1, 2],
            mask_T=[0, 1],
            logprobs_T=[0, -1],
            versions_T=np.zeros(2),
            reward=1.0,
            terms={},
            ending="answered",
        )
        worker.put_groups([worker.make_group(task, [rollout])])
    ready = bus.ready_groups()
    bus.decide(ready[1].task.seq, "zero-signal")
    bus.append_batch(ready[:1], pack_seed=0)
    bus.publish()
    worker.refresh()
    worker.claim(1)
    worker.heartbeat(served=0, tokens_per_second=120.0, last_error="the server:\n HTTP 503")
    gone.heartbeat(served=1, left=True)
    return bus, worker


def test_one_look_shows_the_fleet(fleet, location):
    status = Watcher(open_store(location)).look()
    assert (status.version, status.outstanding, status.window) == (1, 4, 6)
    assert status.queue == {"train": 3} and status.delivered == 0
    assert status.fates == {"trained": 1, "zero-signal": 1} == status.recent
    assert status.staleness == {1: 1}
    assert status.tokens_per_second == 120.0
    text = describe(status)
    assert "version 1, epoch 0" in text and "4 of 6 outstanding" in text
    assert "last error: the server: HTTP 503" in text
    assert [(s.name, s.state, s.moving) for s in status.samplers] == [
        ("gone", "left", None),
        ("works", "works", None),
    ]


def test_a_second_look_tells_who_stands_still(fleet, location):
    bus, worker = fleet
    watcher = Watcher(open_store(location))
    watcher.look()
    assert [s.state for s in watcher.look().samplers] == ["left", "stands still"]
    worker.heartbeat(served=1)
    (task,) = [t for t in worker.state.open_tasks.values() if t.seq in worker.heartbeat().held]
    worker.store.create(group_key(task.seq), b"x")
    status = watcher.look()
    assert (status.queue, status.delivered) == ({"train": 3}, 1)
    assert "handed over: 1" in describe(status)
    assert [s.state for s in status.samplers] == ["left", "works"]
    assert status.new_entries == 0
    bus.end(reason="done")
    status = watcher.look()
    assert status.new_entries == 1 and "(1 since the last look)" in describe(status)
    assert status.ended == "done" and status.fates["unused"] == 4
    assert "the run has ended: done" in describe(status)


def test_the_program_in_text_and_json(fleet, location, capsys):
    assert main(["--bus", str(location)]) == 0
    assert "run run: version 1" in capsys.readouterr().out
    assert main(["--bus", str(location), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    fleet[0].end(reason="done")
    assert main(["--bus", str(location), "--watch", "1"]) == 0, "a run that has ended ends it"


def test_what_is_no_bus_is_one_message(tmp_path):
    with pytest.raises(UserError, match="no bus"):
        main(["--bus", str(tmp_path / "typo")])
    assert not (tmp_path / "typo").exists()
    open_store(tmp_path / "empty")
    gap = open_store(tmp_path / "gap")
    gap.create("log/00000001.json", b"{}")
    with pytest.raises(UserError, match="the log has a gap"):
        main(["--bus", str(tmp_path / "gap")])
    with pytest.raises(UserError, match="its log is empty"):
        main(["--bus", str(tmp_path / "empty")])
    with pytest.raises(UserError, match="--watch is -1"):
        main(["--bus", str(tmp_path / "empty"), "--watch=-1"])


def test_it_loads_neither_jax_nor_sql():
    code = (
        "import sys, jax_t2sql.status\n"
        "print({'jax', 'sqlglot', 'sqlite_utils'} & {m.partition('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_refused_groups_are_named_with_their_reason(fleet, location):
    bus, _ = fleet
    for seq in (2, 3):
        bus.decide(seq, "invalid", reason=f"ratios of\ntask {seq} are off")
    bus.end(reason="done")
    status = Watcher(open_store(location)).look()
    assert status.refusals == (
        "task 2 is invalid: ratios of task 2 are off",
        "task 3 is invalid: ratios of task 3 are off",
    )
    assert "refused: task 3 is invalid" in describe(status)


def test_a_large_fleet_shows_first_who_is_in_trouble(fleet, location):
    _, worker = fleet
    store = open_store(location)
    for number in range(100):
        SamplerBus(store, sampler=f"a{number:02}", contract=CONTRACT).heartbeat(served=1)
    watcher = Watcher(store)
    assert len(watcher.look().samplers) == 102
    worker.heartbeat(served=1, last_error="no disk")
    SamplerBus(store, sampler="a99", contract=CONTRACT).heartbeat(served=1)
    lines = describe(watcher.look()).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("samplers:")) + 1
    assert "stands still" in lines[first] and len(lines) < 60
    assert lines[-1].strip() == "and 62 more (--json shows all)"


def test_a_quarantined_sampler_is_shown_with_the_reason(fleet, location):
    bus, _ = fleet
    bus.quarantine("works", reason="ratio 0.8")
    bus.publish()
    status = Watcher(open_store(location)).look()
    assert status.quarantined == {"works": "ratio 0.8"}
    states = {sampler.name: sampler.state for sampler in status.samplers}
    assert states == {"gone": "left", "works": "quarantined"}
    text = describe(status)
    assert "quarantined: works: ratio 0.8" in text and "works  quarantined" in text
