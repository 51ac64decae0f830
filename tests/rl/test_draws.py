"""Which tasks are issued: hints once for what failed, weights, and the same after any kill."""

import contextlib
import hashlib
from types import SimpleNamespace

import pytest

from jax_t2sql.bus import (
    Bounds,
    Contract,
    Issue,
    Rollout,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.config import LearnabilityConfig, RLConfig, TrainConfig
from jax_t2sql.groups import advantages
from jax_t2sql.hints import HintBook
from jax_t2sql.history import History
from jax_t2sql.rl import Draws, Feed
from jax_t2sql.text2sql import Problem

GROUPS, SIZE, VERSIONS = 4, 4, 6
CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
PROBLEMS = [
    Problem(question_id=f"q{i}", db_id="d", question=f"Q{i}", gold_sql="S") for i in range(20)
]
# Of each three questions one is never answered without a hint, one always is, one varies.
KINDS = {problem.question_id: i % 3 for i, problem in enumerate(PROBLEMS)}
HINTS = HintBook("0" * 64, {(f"q{i}", None): "look" for i in range(0, 20, 2)})


def is_right(task, member):
    kind = KINDS[task.problem]
    digest = hashlib.sha256(f"{task.seed} {member}".encode()).digest()
    return kind == 1 or (digest[0] % 2 == 0 and (kind == 2 or task.kind == "hinted"))


def rollout(task, member, version):
    right = float(is_right(task, member))
    return Rollout.make(
        [1, 2, 3],
        mask_T=[False, True, True],
        logprobs_T=[0, -1, -1],
        versions_T=[version] * 3,
        reward=right,
        terms={"correct": right},
        ending="answered",
    )


def the_run(enabled, hints=HINTS):
    config = TrainConfig(
        seed=3,
        rl=RLConfig(groups=GROUPS, group_size=SIZE),
        learnability=LearnabilityConfig(enabled=enabled),
    )
    questions = SimpleNamespace(train=PROBLEMS, shares={})
    return SimpleNamespace(config=config, questions=questions, hints=hints)


class Killed(Exception):
    pass


class Process:
    """A learner with its sampler, as they restart on a store; `alive` counts down to a kill."""

    def __init__(self, run, store, alive):
        self.alive = alive
        self.bus = start_or_takeover(
            store,
            run="run",
            contract=CONTRACT,
            bounds=Bounds(vocab_size=9, groups_per_batch=GROUPS),
            learner="test",
        )
        feed = Feed(Draws(run, self.bus, History()))
        feed.restore(self.bus)
        self.bus.publish()
        sampler = SamplerBus(
            store, sampler="inline", contract=CONTRACT, learner_epoch=self.bus.epoch
        )
        loop = SimpleNamespace(
            bus=self.bus,
            sampling=SimpleNamespace(room=lambda _: GROUPS),
            timed=lambda _: contextlib.nullcontext(),
        )
        while self.bus.version < VERSIONS:
            self.step(loop, feed, sampler)

    def point(self):
        self.alive -= 1
        if self.alive == 0:
            raise Killed

    def step(self, loop, feed, sampler):
        feed.issue(loop)
        self.point()
        sampler.refresh()
        tasks = sampler.claim(GROUPS)
        self.point()
        for task in tasks:
            rollouts = [rollout(task, n, self.bus.version) for n in range(SIZE)]
            sampler.put_groups([sampler.make_group(task, rollouts)])
            self.point()
        learnable = []
        for ready in self.bus.ready_groups():
            if not advantages(ready.group)[1]:
                learnable.append(ready)
            else:
                self.bus.decide(ready.task.seq, "zero-signal")
        self.point()
        if learnable:
            self.bus.append_batch(learnable, pack_seed=0)
            self.point()
            self.bus.publish()
            self.point()


def history_of(run, kill_after=0):
    """First offers in order, and the seqs of every batch; and how many points were passed."""
    store = open_store("memory:///")
    while True:
        try:
            process = Process(run, store, kill_after or 10**9)
            break
        except Killed:
            kill_after = 0
    entries = process.bus.log.entries
    tasks = [t for e in entries if isinstance(e, Issue) for t in e.tasks if t.attempt == 0]
    batches = [sorted(g.seq for g in e.groups) for e in entries if e.__class__.__name__ == "Batch"]
    return tasks, batches, 10**9 - process.alive


@pytest.mark.parametrize("enabled", [False, True])
def test_killed_at_any_point_the_tasks_are_the_same(enabled):
    run = the_run(enabled)
    tasks, batches, points = history_of(run)
    assert points > 40 and any(task.kind == "hinted" for task in tasks)
    for kill_after in range(1, points + 1):
        assert history_of(run, kill_after)[:2] == (tasks, batches), kill_after


@pytest.mark.parametrize("enabled", [False, True])
def test_what_failed_is_offered_again_once_with_its_hint(enabled):
    tasks, _, _ = history_of(the_run(enabled))
    by_seq = {task.seq: task for task in tasks}
    hinted = [task for task in tasks if task.kind == "hinted"]
    assert len({task.origin for task in hinted}) == len(hinted)
    for task in hinted:
        origin = by_seq[task.origin]
        assert (origin.kind, origin.problem) == ("train", task.problem)
        assert not any(is_right(origin, n) for n in range(SIZE))
        assert HINTS.find(PROBLEMS[int(task.problem[1:])]) and task.seed != origin.seed
    # All but the last step's failures that have a hint got it.
    failed = {
        t.seq
        for t in tasks[: -2 * GROUPS]
        if t.kind == "train"
        and int(t.problem[1:]) % 2 == 0
        and not any(is_right(t, n) for n in range(SIZE))
    }
    assert failed and failed <= {task.origin for task in hinted}


def test_without_hints_nothing_is_offered_again():
    assert {task.kind for task in history_of(the_run(False, hints=None))[0]} == {"train"}


def test_solved_questions_are_drawn_less_and_epochs_are_whole_without_weights():
    def shares(enabled):
        tasks = [t for t in history_of(the_run(enabled, hints=None))[0]]
        later = [KINDS[t.problem] for t in tasks[20:]]
        return later.count(2) / len(later), [t.problem for t in tasks[:20]]

    (uniform, first), (weighted, _) = shares(False), shares(True)
    assert sorted(first) == sorted(problem.question_id for problem in PROBLEMS)
    assert weighted > uniform
