"""The fold over the log: visits, failures that wait for a hint, outcomes by step."""

import itertools

from jax_t2sql.bus import Batch, Decision, Issue, Outcome, Task
from jax_t2sql.history import History

CHAIN = {"previous": "0" * 64, "epoch": 0, "nonce": "n"}


def outcome(solved, valid=4, **fields):
    counts = {"cut_off": 0, "broken": 0, "tokens": 40} | fields
    return Outcome(rollouts=4, valid=valid, solved=solved, **counts)


def task(seq, problem, **fields):
    return Task(seq=seq, problem=problem, group_size=4, seed=seq, **fields)


class Log:
    def __init__(self):
        self.entries, self._index = [], itertools.count()

    def issue(self, *tasks):
        self.entries.append(Issue(index=next(self._index), tasks=tasks, cursor={}, **CHAIN))

    def batch(self, step, **fates):
        """fates: seq (as s3) to an outcome, or None for a task whose group never came."""
        decisions = tuple(
            Decision(seq=int(name[1:]), fate="failed" if x is None else "zero-signal", outcome=x)
            for name, x in fates.items()
        )
        common = {"pack_seed": 0, "length_ratio": 1.0, "groups": (), **CHAIN}
        self.entries.append(Batch(index=next(self._index), step=step, fates=decisions, **common))


def test_visits_failures_and_steps():
    log, history = Log(), History()
    log.issue(task(0, "a"), task(1, "b"), task(2, "c"), task(3, "d"))
    history.follow(log.entries)
    log.batch(0, s0=outcome(0), s1=outcome(3))
    log.batch(1, s2=None, s3=outcome(0, valid=0))
    history.follow(log.entries)
    history.follow(log.entries)  # nothing new: nothing is counted twice
    assert {name: [v.outcome.solved for v in vs] for name, vs in history.visits.items()} == {
        "a": [0],
        "b": [3],
        "d": [0],
    }
    assert history.unanswered() == [(0, "a")], "without a valid rollout nothing has failed"
    assert [(step, len(outcomes)) for step, outcomes in history.steps] == [(0, 2), (1, 1)]


def test_a_failure_is_answered_once():
    log, history = Log(), History()
    log.issue(task(0, "a"), task(1, "b"))
    log.batch(0, s0=outcome(0), s1=outcome(0))
    log.issue(task(2, "a", kind="hinted", origin=0))
    log.batch(1, s2=outcome(0))
    history.follow(log.entries)
    assert history.unanswered() == [(1, "b")], "nor is a hinted failure answered again"
    assert len(history.visits["a"]) == 1, "visits are those without a hint"
    log.issue(task(3, "a"))
    log.batch(2, s3=outcome(0))
    history.follow(log.entries)
    assert history.unanswered() == [(1, "b"), (3, "a")]


def test_fates_that_no_entry_holds_yet_count_too():
    log, history = Log(), History()
    log.issue(task(0, "a"), task(1, "b"))
    history.follow(log.entries)
    waiting = [Decision(seq=0, fate="zero-signal", outcome=outcome(0))]
    assert history.unanswered(waiting) == [(0, "a")] and history.unanswered() == []


def test_what_fails_without_its_own_evidence_is_no_failure():
    log, history = Log(), History()
    log.issue(task(0, "a"))
    log.batch(0, s0=outcome(0, plain=False))
    history.follow(log.entries)
    assert history.unanswered() == [] and len(history.visits["a"]) == 1
