"""What a learner with a fleet issues and takes; how it tells its user why it waits."""

import contextlib
from types import SimpleNamespace

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
from jax_t2sql.rl.fleet import FleetSampling, fleet_choice, fleet_room
from jax_t2sql.rl.gate import LengthGate

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)


class Fleet:
    """A learner's and a sampler's end of one bus in memory."""

    def __init__(self, *, groups=2, k=1):
        self.store = open_store("memory:///")
        bounds = Bounds(vocab_size=9, groups_per_batch=groups, max_staleness=k)
        self.bus = start_or_takeover(
            self.store, run="r", contract=CONTRACT, bounds=bounds, learner="l"
        )
        self.bus.publish()
        self.sampler = SamplerBus(self.store, sampler="s", contract=CONTRACT)

    def issue(self, count):
        tasks = [NewTask(problem="q", group_size=1, seed=0)] * count
        return [task.seq for task in self.bus.issue(tasks, cursor={})]

    def deliver(self, lengths):
        """Groups of one rollout for these seqs, each of its length."""
        self.sampler.refresh()
        tasks = {task.seq: task for task in self.sampler.claim(100)}
        self.tasks = getattr(self, "tasks", {}) | tasks
        groups = []
        for seq, length in lengths.items():
            rollout = Rollout.make(
                np.ones(length),
                mask_T=np.arange(length) > 0,
                logprobs_T=np.full(length, -1.0),
                versions_T=np.full(length, self.bus.version),
                reward=1.0,
                terms={},
                ending="answered",
            )
            groups.append(self.sampler.make_group(self.tasks[seq], [rollout]))
        self.sampler.put_groups(groups)

    def choice(self, gate, groups=2):
        ready = self.bus.ready_groups()
        chosen = fleet_choice(self.bus, ready, groups=groups, gate=gate)
        return [group.task.seq for group in chosen]


def test_a_batch_is_the_oldest_complete_groups_and_waits_for_no_other():
    fleet = Fleet(groups=2, k=1)
    fleet.issue(4)
    fleet.deliver({3: 5})
    assert fleet.choice(LengthGate(0)) == []
    fleet.deliver({1: 5, 2: 5})
    assert fleet.choice(LengthGate(0)) == [1, 2]
    assert fleet.bus.in_flight == 1


def test_the_gate_waits_for_what_the_update_would_make_stale():
    fleet = Fleet(groups=2, k=0)
    fleet.issue(2)
    fleet.deliver({0: 4})
    fleet.bus.ready_groups()
    fleet.bus.decide(0, "zero-signal")
    fleet.issue(1)
    fleet.deliver({1: 2})
    gate = LengthGate(0.95)
    assert fleet.choice(LengthGate(0), groups=1) == [1], "2 of a mean of 3"
    assert fleet.choice(LengthGate(0.5), groups=1) == [1]
    assert fleet.choice(gate, groups=1) == []
    fleet.deliver({2: 2})
    assert fleet.choice(gate, groups=1) == [1], "nothing is under way any more"


def test_the_gate_holds_nothing_that_the_update_leaves_fresh():
    fleet = Fleet(groups=2, k=1)
    fleet.issue(3)
    fleet.deliver({0: 9, 1: 2})
    fleet.bus.ready_groups()
    fleet.bus.decide(0, "zero-signal")
    assert fleet.bus.in_flight == 1
    assert fleet.choice(LengthGate(0.95), groups=1) == [1]


def test_the_gate_looks_at_the_last_batches_together():
    fleet = Fleet(groups=2, k=0)
    fleet.issue(2)
    fleet.deliver({0: 9})
    fleet.bus.ready_groups()
    gate = LengthGate(0.95)
    assert fleet.choice(gate, groups=1) == [0]
    gate.logged(SimpleNamespace(length_ratio=0.5))
    assert fleet.choice(gate, groups=1) == []
    for _ in range(20):
        gate.logged(SimpleNamespace(length_ratio=1.0))
    assert fleet.choice(gate, groups=1) == [0]


@pytest.mark.parametrize(("groups", "k"), [(1, 0), (4, 0), (4, 3)])
def test_whatever_comes_of_the_groups_there_is_always_work(groups, k):
    """Each look issues, one group comes, every second has no signal: the run never stands still."""
    fleet = Fleet(groups=groups, k=k)
    gate, steps = LengthGate(0), 0
    for look in range(40):
        ready = fleet.bus.ready_groups()
        if count := fleet_room(fleet.bus, groups=groups, ready=len(ready)):
            fleet.issue(count)
        assert ready or fleet.bus.in_flight
        if fleet.bus.in_flight:
            held = {r.task.seq for r in ready}
            waiting = [seq for seq in fleet.bus.state.open_tasks if seq not in held]
            decided = {decision.seq for decision in fleet.bus.decided}
            seq = next(seq for seq in waiting if seq not in decided)
            fleet.deliver({seq: 3})
            ready = fleet.bus.ready_groups()
            if look % 2:
                fleet.bus.decide(seq, "zero-signal")
                ready = [r for r in ready if r.task.seq != seq]
        chosen = fleet_choice(fleet.bus, ready, groups=groups, gate=gate)
        if chosen:
            fleet.bus.append_batch(chosen, pack_seed=0)
            fleet.bus.publish()
            steps += 1
    assert steps >= 40 // (2 * groups) - 1


def test_few_large_offers_instead_of_many_small_ones():
    fleet = Fleet(groups=4, k=3)
    assert fleet_room(fleet.bus, groups=4, ready=0) == 16
    fleet.issue(15)
    assert fleet_room(fleet.bus, groups=4, ready=0) == 0, "one place is not worth an entry"
    fleet.deliver({0: 3})
    fleet.bus.ready_groups()
    fleet.bus.decide(0, "zero-signal")
    assert fleet_room(fleet.bus, groups=4, ready=0) == 2


def test_a_waiting_learner_says_why():
    fleet, said, now = Fleet(), [], [0.0]
    sampling = FleetSampling(
        location="B",
        gate=LengthGate(0),
        validation=SimpleNamespace(work=lambda loop: None, left=3),
        clock=lambda: now[0],
        pause=lambda seconds: now.__setitem__(0, now[0] + max(seconds, 0.5)),
    )
    loop = SimpleNamespace(
        bus=fleet.bus,
        version=0,
        say=said.append,
        timed=lambda name: contextlib.nullcontext(),
        run=SimpleNamespace(
            config=SimpleNamespace(
                rl=SimpleNamespace(groups=2),
                fleet=SimpleNamespace(still_seconds=60.0, groups_in_flight=1),
            )
        ),
    )
    while not said:
        sampling.work(loop)
    assert 30 <= now[0] < 32
    assert "no sampler is at work" in said[0] and "--bus B" in said[0]
    fleet.issue(2)
    fleet.sampler.heartbeat(last_error="the server: 503")
    while len(said) < 2:
        sampling.work(loop)
    assert (
        "0 of 2 groups are ready, 2 under way with 1 samplers, 3 answers of evaluations to come;"
        " s: the server: 503"
    ) in said[1]
    while len(said) < 5:  # its counter does not move any more
        sampling.work(loop)
    assert "no sampler is at work" in said[4]
