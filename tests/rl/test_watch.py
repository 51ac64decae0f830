"""The watch over a run: it stops or warns, and after a restart as before it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jax_t2sql.bus import Batch, Decision, Issue, Outcome, Task
from jax_t2sql.config import AlarmsConfig, EvalConfig, RLConfig, TrainConfig
from jax_t2sql.history import History
from jax_t2sql.rl import Watch

CONFIG = TrainConfig(
    rl=RLConfig(steps=500),
    eval=EvalConfig(patience=2),
    alarms=AlarmsConfig(window=2, unfinished_share=0.5),
)
CHAIN = {"previous": "0" * 64, "epoch": 0, "nonce": "n"}


class Loop:
    """As much of a loop as hooks see; `go` is a step whose share of broken rollouts is given."""

    def __init__(self, workdir, config=CONFIG):
        self.said, self.stopped, self.version = [], "", 0
        self.entries = []
        self.bus = SimpleNamespace(log=SimpleNamespace(entries=self.entries))
        self.say = self.said.append
        self.workdir, self.config = workdir, config
        self.restart()

    def restart(self):
        run = SimpleNamespace(config=self.config, workdir=self.workdir)
        self.watch = Watch(run, History())
        self.watch.resume(self)

    def stop(self, reason):
        self.stopped = self.stopped or reason

    def go(self, broken, *, applied=True, replayed=False):
        seq = index = len(self.entries)
        task = Task(seq=seq, problem="q", group_size=10, seed=0)
        self.entries.append(Issue(index=index, tasks=(task,), cursor={}, **CHAIN))
        counts = Outcome(rollouts=10, valid=10, solved=0, cut_off=0, broken=broken, tokens=100)
        fate = Decision(seq=seq, fate="zero-signal", outcome=counts)
        common = {"groups": (), "pack_seed": 0, "length_ratio": 1.0, **CHAIN}
        self.entries.append(Batch(index=index + 1, step=self.version, fates=(fate,), **common))
        self.version += 1
        step = SimpleNamespace(metrics={}, applied=applied, replayed=replayed)
        self.watch.step(self, step)
        return step.metrics

    def evaluate(self, version, accuracy):
        row = {"eval_accuracy": accuracy, "eval_n": 10}
        with open(self.workdir / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": version, "phase": "eval"} | row) + "\n")
        self.watch.evaluation(self, version, row)


def test_a_collapse_is_told_and_told_again_only_now_and_then(tmp_path):
    loop = Loop(tmp_path)
    for _ in range(3):
        assert loop.go(1) == {}
    rows = [loop.go(9) for _ in range(4)]
    assert rows[-1] == {"alarm_format": 1.0} and not loop.stopped
    assert len(loop.said) == 2 and all("the format collapses" in line for line in loop.said)
    assert loop.said[0].startswith("alarm at step")


def test_an_alarm_can_stop_and_stops_again_after_a_restart(tmp_path):
    config = replace(CONFIG, alarms=replace(CONFIG.alarms, action="stop"))
    loop = Loop(tmp_path, config)
    while not loop.stopped:
        loop.go(1 if loop.version < 4 else 9)
        assert loop.version < 9
    why, loop.stopped = loop.stopped, ""
    loop.restart()
    assert loop.stopped == why and "the format collapses" in why


@pytest.mark.parametrize("what", ["replayed", "applied"])
def test_steps_that_are_replayed_or_skipped_raise_none(tmp_path, what):
    loop = Loop(tmp_path)
    for _ in range(4):
        loop.go(1)
    for _ in range(3):
        assert loop.go(9, **{what: what == "replayed"}) == {}


def test_patience_ends_and_a_restart_knows_of_it(tmp_path):
    loop = Loop(tmp_path)
    loop.evaluate(0, 0.9)  # of other questions
    loop.restart()
    for version, accuracy in ((20, 0.5), (40, 0.6), (60, 0.6)):
        loop.evaluate(version, accuracy)
        assert not loop.stopped
    loop.restart()
    assert not loop.stopped
    loop.evaluate(80, 0.55)
    assert "60.0% of step 40" in loop.stopped
    loop.stopped = ""
    loop.restart()
    assert "60.0% of step 40" in loop.stopped
