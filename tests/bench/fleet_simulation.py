"""A fleet in virtual time on a real bus: what `fleet.py` measures and a test runs on a small scale.

The samplers and the learner are the real `SamplerBus` and `LearnerBus`, and what the asynchronous
learner issues and takes is decided by `jax_t2sql.rl.fleet`, as in `train`; only time, rollouts and
training are made up. Workers keep the pace of the real ones: they look at the log every
`idle_pause`, fill `claim_step` places as soon as they are free, and beat every `beat_pause`.
"""

import copy
import heapq
import itertools
import random
from dataclasses import dataclass, field

import numpy as np

from jax_t2sql.bus import (
    Bounds,
    Contract,
    LearnerBus,
    NewTask,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.bus.contract import beat_pause, claim_step, idle_pause
from jax_t2sql.config import AdapterConfig, FleetConfig, TrainConfig
from jax_t2sql.config_loading import resolve
from jax_t2sql.rl.fleet import fleet_choice, fleet_room
from jax_t2sql.rl.gate import LengthGate

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
LEARNER_LOOK = 2.0


class Counted:
    """A store that counts what a bucket would charge for."""

    def __init__(self, inner):
        self.inner, self.counts = inner, dict.fromkeys(("create", "read", "overwrite", "list"), 0)

    def create(self, key, data, *, durable=True):
        self.counts["create"] += 1
        return self.inner.create(key, data, durable=durable)

    def overwrite(self, key, data):
        self.counts["overwrite"] += 1
        return self.inner.overwrite(key, data)

    def read(self, key, **options):
        self.counts["read"] += 1
        return self.inner.read(key, **options)

    def keys(self, prefix, *, start=""):
        found = self.inner.keys(prefix, start=start)
        self.counts["list"] += 1 + len(found) // 1000  # a listing has pages of 1,000 names
        return found

    def delete(self, keys):
        self.inner.delete(keys)

    def local_path(self, key):
        return None


class SharedState:
    """A sampler's `RunState`, which all that have read as far share: a thousand fit into memory.

    states: by the number of entries applied.
    """

    def __init__(self, states, applied):
        self.states, self.applied = states, applied

    def apply_all(self, entries):
        for entry in entries:
            if self.applied + 1 not in self.states:
                state = copy.copy(self.states[self.applied])
                for name in ("open_tasks", "fates", "adapters"):
                    setattr(state, name, copy.copy(getattr(state, name)))
                state.apply(entry)
                self.states[self.applied + 1] = state
            self.applied += 1

    def __getattr__(self, name):
        return getattr(self.states[self.applied], name)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """in_flight: groups that a worker plays at once. batch, k: of the bounds. steps: updates.

    train_seconds: of an update of one batch. synchronous: the learner waits for all that it issued
    before it trains. length_gate: of the asynchronous one. sigma, mean_log: of the lognormal
    lengths in seconds; a group takes as long as its longest rollout, and has as many ids.
    zero_share: of groups without signal.
    """

    workers: int
    in_flight: int
    batch: int
    k: int
    steps: int
    train_seconds: float
    synchronous: bool = False
    seed: int = 0
    length_gate: float = 0.0
    mean_log: float = 4.0
    sigma: float = 1.0
    zero_share: float = 0.3

    @property
    def still_seconds(self) -> float:
        """As a run with so many workers has it by default."""
        fleet, lora = FleetConfig(workers=self.workers), AdapterConfig(kind="lora")
        return resolve(TrainConfig(adapter=lora, fleet=fleet)).fleet.still_seconds


@dataclass
class Outcome:
    """seconds, idle: of virtual time, in all and those in which the learner had nothing to train.

    operations: of the store from the middle update on, when the window is full, by kind;
    groups: handed over since then. delivered: by worker, over the whole run. lengths: of all
    groups handed over.
    """

    bus: LearnerBus
    store: Counted
    seconds: float = 0.0
    idle: float = 0.0
    stale: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    groups: int = 0
    delivered: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def operations_per_group(self) -> float:
        return sum(self.operations.values()) / self.groups


class Simulation:
    """One run; `run` gives its outcome. Events are (moment, order, what, arguments)."""

    def __init__(self, plan: Plan):
        self.plan, self.rng = plan, random.Random(plan.seed)
        self.gate = LengthGate(plan.length_gate)
        self.store = Counted(open_store("memory:///"))
        bounds = Bounds(vocab_size=100, groups_per_batch=plan.batch, max_staleness=plan.k)
        self.bus = start_or_takeover(
            self.store, run="sim", contract=CONTRACT, bounds=bounds, learner="sim"
        )
        self.bus.publish()
        self.samplers = [
            SamplerBus(self.store, sampler=f"w{n}", contract=CONTRACT) for n in range(plan.workers)
        ]
        read = self.bus.log.head + 1
        states = {read: self.samplers[0].state}
        for sampler in self.samplers:
            sampler.state = SharedState(states, read)
        self.room = [plan.in_flight] * plan.workers
        self.result = Outcome(self.bus, self.store, delivered=[0] * plan.workers)
        self.pauses = [
            idle_pause(bounds, groups_in_flight=plan.in_flight, busy=busy) for busy in (False, True)
        ]
        self.beat_seconds = beat_pause(
            bounds, groups_in_flight=plan.in_flight, still_seconds=plan.still_seconds
        )
        self.step = claim_step(plan.in_flight)
        self.events, self.order, self.problems = [], itertools.count(), itertools.count()
        self.now, self.training, self.waiting, self.ready = 0.0, False, set(), []

    def run(self) -> Outcome:
        for n in range(self.plan.workers):
            self.at(self.rng.uniform(0, self.pauses[True]), self.look, n)
            self.at(self.rng.uniform(0, self.beat_seconds), self.beat, n)
        self.at(self.beat_seconds, self.expire)
        self.at(0.0, self.learn)
        before = None
        while self.bus.version < self.plan.steps:
            if before is None and self.bus.version >= self.plan.steps // 2:
                before = dict(self.store.counts), sum(self.result.delivered)
            self.now, _, act, arguments = heapq.heappop(self.events)
            act(*arguments)
        counts, groups = before
        self.result.operations = {
            name: count - counts.get(name, 0) for name, count in self.store.counts.items()
        }
        self.result.groups = sum(self.result.delivered) - groups
        self.result.seconds = self.now
        return self.result

    def at(self, moment, act, *arguments):
        heapq.heappush(self.events, (moment, next(self.order), act, arguments))

    def look(self, n):
        self.samplers[n].refresh()
        if self.room[n]:
            self.claim(n)
        pause = self.pauses[self.room[n] < self.plan.in_flight]
        self.at(self.now + pause * self.rng.uniform(0.5, 1.5), self.look, n)

    def claim(self, n):
        version = self.samplers[n].version
        for task in self.samplers[n].claim(self.room[n], rng=self.rng):
            self.room[n] -= 1
            length = self.rng.lognormvariate(self.plan.mean_log, self.plan.sigma)
            self.at(self.now + length, self.done, n, task, version, max(2, int(length)))

    def done(self, n, task, version, length):
        group = self.samplers[n].make_group(task, [rollout(version, length)])
        self.samplers[n].put_groups([group])
        self.result.delivered[n] += 1
        self.result.lengths.append(length)
        self.room[n] += 1
        if self.room[n] >= self.step:
            self.claim(n)

    def beat(self, n):
        self.samplers[n].heartbeat(served=self.samplers[n].version)
        self.at(self.now + self.beat_seconds, self.beat, n)

    def expire(self):
        self.bus.expire_claims(still_seconds=self.plan.still_seconds, clock=lambda: self.now)
        self.at(self.now + self.beat_seconds, self.expire)

    def learn(self):
        plan, bus = self.plan, self.bus
        if self.training:
            bus.publish()
            self.training = False
        before = len(bus.decided)
        ready = bus.ready_groups()
        self.result.stale += sum(d.fate == "stale" for d in bus.decided[before:])
        useful = []
        for group in ready:
            if random.Random(group.task.seq).random() < plan.zero_share:
                bus.decide(group.task.seq, "zero-signal")
            else:
                useful.append(group)
        decided = {d.seq for d in bus.decided} | bus.state.fates.keys()
        self.waiting -= decided | {group.task.seq for group in useful}
        self.ready = useful
        self.issue()
        chosen = self.choose(useful)
        if not chosen:
            self.result.idle += LEARNER_LOOK
            self.at(self.now + LEARNER_LOOK, self.learn)
            return
        self.gate.logged(bus.append_batch(chosen, pack_seed=0))
        self.training = True
        self.at(self.now + plan.train_seconds * len(chosen) / plan.batch, self.learn)

    def choose(self, useful):
        """Groups to train on now, none to wait."""
        if self.plan.synchronous:
            return [] if self.waiting else useful
        return fleet_choice(self.bus, useful, groups=self.plan.batch, gate=self.gate)

    def issue(self):
        if self.plan.synchronous:
            count = 0 if self.waiting or self.ready else self.bus.capacity
        else:
            count = fleet_room(self.bus, groups=self.plan.batch, ready=len(self.ready))
        if count:
            tasks = [
                NewTask(problem=f"q{next(self.problems)}", group_size=1, seed=0)
                for _ in range(count)
            ]
            self.waiting.update(task.seq for task in self.bus.issue(tasks, cursor={}))


def rollout(version, length):
    return Rollout.make(
        np.arange(length) % 90,
        mask_T=np.arange(length) > 0,
        logprobs_T=np.full(length, -1.0),
        versions_T=np.full(length, version),
        reward=1.0,
        terms={},
        ending="answered",
    )


def simulate(**plan) -> Outcome:
    return Simulation(Plan(**plan)).run()
