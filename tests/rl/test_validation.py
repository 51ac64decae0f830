"""Evaluations by the fleet: credits, deadlines, restarts; training never waits for them."""

from types import SimpleNamespace

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
from jax_t2sql.bus.audit import audit
from jax_t2sql.groups import CORRECT
from jax_t2sql.rl.validation import FleetValidation
from jax_t2sql.text2sql import Problem

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
PROBLEMS = [
    Problem(question_id=f"q{n}", db_id="d", question="?", gold_sql="SELECT 1") for n in range(5)
]
TOO_LONG = Problem(question_id="long", db_id="d", question="?" * 99, gold_sql="SELECT 1")


class Prompts:
    """Stands for a prompt builder: only long questions do not fit."""

    def split_by_length(self, problems):
        fitting = [p for p in problems if len(p.question) < 50]
        return fitting, [(p, "too long") for p in problems if len(p.question) >= 50]


class Run:
    """A learner, as it starts or restarts on a store, with an evaluation's part of the loop."""

    def __init__(self, store, directory):
        bounds = Bounds(vocab_size=9, groups_per_batch=2, max_staleness=9, max_eval_tasks=2)
        self.store, self.directory, self.done = store, directory, []
        self.bus = start_or_takeover(store, run="r", contract=CONTRACT, bounds=bounds, learner="l")
        self.bus.publish(directory)
        self.validation = FleetValidation(Prompts())
        self.sampler = SamplerBus(store, sampler="s", contract=CONTRACT)

    @property
    def loop(self):
        feed = SimpleNamespace(source=SimpleNamespace(state=lambda: {"at": 3}))
        return SimpleNamespace(bus=self.bus, version=self.bus.version, feed=feed)

    def begin(self, problems=PROBLEMS, **options):
        self.validation.begin(
            self.loop, self.bus.version, problems, lambda answers: self.done.append(answers),
            **options,
        )  # fmt: skip

    def work(self):
        self.validation.work(self.loop)

    def answer(self, *, correct=lambda problem: True, trace="{}"):
        """A sampler answers what it can claim; returns the tasks."""
        self.sampler.refresh()
        tasks = self.sampler.claim(9)
        for task in tasks:
            rollout = Rollout.make(
                [1, 2],
                mask_T=[False, True],
                logprobs_T=[0, -1],
                versions_T=[0, self.sampler.version],
                reward=1.0,
                terms={CORRECT: float(correct(task.problem))},
                ending="answered",
                trace=trace,
            )
            self.sampler.put_groups([self.sampler.make_group(task, [rollout])])
        return tasks

    def step(self):
        """One update on two training groups that are there at once."""
        tasks = self.bus.issue([NewTask(problem="t", group_size=1, seed=0)] * 2, cursor={})
        self.sampler.refresh()
        wanted = {task.seq for task in tasks}
        for task in self.sampler.claim(99):
            if task.seq in wanted:
                rollout = Rollout.make(
                    [1, 2],
                    mask_T=[False, True],
                    logprobs_T=[0, -1],
                    versions_T=[0, self.sampler.version],
                    reward=1.0,
                    terms={},
                    ending="answered",
                )
                self.sampler.put_groups([self.sampler.make_group(task, [rollout])])
        self.bus.append_batch(self.bus.ready_groups(), pack_seed=0)
        self.bus.publish(self.directory)


@pytest.fixture
def store():
    return open_store("memory:///")


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "weights").write_bytes(b"w")
    return tmp_path


def test_answers_come_back_in_order_within_the_credits(store, directory):
    run = Run(store, directory)
    run.begin([*PROBLEMS, TOO_LONG])
    under_way = []
    while not run.done:
        run.work()
        under_way.append(len(run.bus.undecided_evals()))
        run.answer(correct=lambda name: name in ("q1", "q3"), trace='{"verdict": "equal"}')
    (answers,) = run.done
    assert [a.problem.question_id for a in answers] == ["q0", "q1", "q2", "q3", "q4", "long"]
    assert [a.correct for a in answers] == [False, True, False, True, False, False]
    assert answers[1].outcome == "equal" and answers[5].outcome == "prompt_too_long"
    assert max(under_way) == 2, "never more than the credits"
    tasks = [task for e in run.bus.log.entries for task in getattr(e, "tasks", ())]
    pinned = {task.adapter for task in tasks}
    assert pinned == {run.bus.state.adapters[0][1].name}
    assert {task.kind for task in tasks} == {"eval"} and run.bus.capacity == 20
    run.bus.end(reason="done")
    assert audit(store).faults == []


def test_what_is_overdue_is_given_up_and_told_as_missing(store, directory):
    run = Run(store, directory)
    run.begin(deadline=0)
    run.work()
    run.answer()
    run.work()  # two answers are in, two more questions are under way
    run.step()
    run.work()
    (answers,) = run.done
    assert [a.problem.question_id for a in answers] == ["q0", "q1"]
    assert run.bus.undecided_evals() == [] and run.validation.left == 0


def test_a_restart_forgets_evaluations_that_nobody_waits_for(store, directory):
    first = Run(store, directory)
    first.begin()
    first.work()
    second = Run(store, directory)
    assert len(second.bus.undecided_evals()) == 2
    second.work()
    assert second.bus.undecided_evals() == [] and second.done == []


def test_a_version_without_files_is_not_judged(store, directory):
    run = Run(store, directory)
    run.bus.publish()
    assert not run.validation.begin(run.loop, 7, PROBLEMS, run.done.append)
    assert run.validation.left == 0 and run.validation.adapters == []


@pytest.mark.parametrize("trace", ["", "no JSON", "[1]", '{"verdict": 3}'])
def test_a_sampler_may_write_any_text_as_trace(store, directory, trace):
    run = Run(store, directory)
    run.begin(PROBLEMS[:1])
    run.work()
    run.answer(trace=trace)
    run.work()
    assert run.done[0][0].correct and isinstance(run.done[0][0].outcome, str)
