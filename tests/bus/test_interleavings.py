"""Learners that come and go and samplers good and bad, in any order."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jax_t2sql.bus import Bounds, Log, LostLeadership, RunState, SamplerBus, open_store
from jax_t2sql.bus.groups import encode_group
from jax_t2sql.bus.keys import group_key


def read_back(store):
    """The state of a log, read from scratch: chain and meaning are verified on the way."""
    state = RunState()
    state.apply_all(Log.open(store).entries)
    return state


def assert_sound(store):
    """Each task was decided at most once and trained at most once; issued = open or decided."""
    log, state = Log.open(store), read_back(store)
    trained = [g.seq for e in log.entries if type(e).__name__ == "Batch" for g in e.groups]
    assert len(trained) == len(set(trained))
    decided = [d.seq for e in log.entries for d in getattr(e, "fates", ())]
    assert len(decided) == len(set(decided))
    assert sorted([*decided, *state.open_tasks]) == list(range(state.next_seq))
    return state


class Interleavings(RuleBasedStateMachine):
    """Learners that come and go, samplers good and bad, in any order."""

    kit = None  # set by the test

    @initialize(k=st.integers(0, 2), size=st.integers(1, 3))
    def begin(self, k, size):
        self.store = open_store("memory:///")
        self.bounds = Bounds(
            vocab_size=self.kit.vocab, groups_per_batch=size, max_staleness=k, max_attempts=3
        )
        self.now = 0.0
        self.ended = False
        self.learner = self.kit.lead(self.store, bounds=self.bounds)
        self.old = []
        self.samplers = [self.sampler("s0", None), self.sampler("s1", None)]
        self.working = []

    def sampler(self, name, epoch):
        return SamplerBus(self.store, sampler=name, contract=self.kit.contract, learner_epoch=epoch)

    @rule(data=st.data())
    @precondition(lambda self: not self.ended and self.learner.capacity > 0)
    def issue(self, data):
        count = data.draw(st.integers(1, self.learner.capacity))
        first = self.learner.state.next_seq
        self.learner.issue(self.kit.new_tasks(count, first_seed=first), cursor={"at": first})

    @rule(which=st.integers(0, 1), inline=st.booleans(), limit=st.integers(1, 3))
    def claim(self, which, inline, limit):
        sampler = self.samplers[which]
        if inline:
            sampler = self.sampler("inline", self.learner.epoch)
        sampler.refresh()
        version = sampler.version
        self.working += [(sampler, task, version) for task in sampler.claim(limit)]

    @rule(data=st.data(), bad=st.sampled_from([None, None, None, "corrupt", "ids"]))
    @precondition(lambda self: self.working)
    def deliver(self, data, bad):
        at = data.draw(st.integers(0, len(self.working) - 1))
        sampler, task, version = self.working.pop(at)
        group = sampler.make_group(task, self.kit.rollouts(task, version))
        if bad is None:
            sampler.put_groups([group])
            return
        if bad == "ids":
            wrong = self.kit.rollout(ids_T=[self.kit.vocab] * 8)
            group = sampler.make_group(task, [wrong] * task.group_size)
        content = encode_group(group)[: -4 if bad == "corrupt" else None]
        try:
            self.store.create(group_key(task.seq), content)
        except FileExistsError:
            return

    @rule(data=st.data())
    @precondition(lambda self: not self.ended and self.learner.state.open_batch is None)
    def batch(self, data):
        ready = self.learner.ready_groups()
        for group in ready:
            assert group.staleness(self.learner.version) <= self.bounds.max_staleness
        zero = data.draw(st.sets(st.sampled_from(range(len(ready))))) if ready else set()
        for number in zero:
            self.learner.decide(ready[number].task.seq, "zero-signal")
        used = [group for number, group in enumerate(ready) if number not in zero]
        if used:
            self.learner.append_batch(used[: self.bounds.groups_per_batch], pack_seed=0)

    @rule(applied=st.booleans())
    @precondition(lambda self: not self.ended)
    def publish(self, applied):
        self.learner.publish(applied=applied)

    @rule(seconds=st.floats(0, 8))
    @precondition(lambda self: not self.ended)
    def expire(self, seconds):
        self.now += seconds
        self.samplers[0].heartbeat()
        self.learner.expire_claims(still_seconds=10, clock=lambda: self.now)

    @rule(zombie=st.booleans())
    @precondition(lambda self: not self.ended)
    def another_learner(self, zombie):
        if zombie:
            self.old.append(self.learner)
        else:  # a kill takes the inline sampler with it
            self.working = [w for w in self.working if w[0].sampler != "inline"]
        before = [e for e in self.learner.log.entries if type(e).__name__ == "Batch"]
        self.learner = self.kit.lead(self.store, bounds=self.bounds, publish=False)
        replayed = [step.batch for step in self.learner.replay(None)]
        skipped = [
            e.batch
            for e in self.learner.log.entries
            if type(e).__name__ == "Publish" and not e.applied
        ]
        assert replayed == [entry for entry in before if entry.index not in skipped]
        self.learner.publish()

    @rule()
    @precondition(lambda self: self.old)
    def zombie_writes(self):
        before = self.learner.log.head
        with pytest.raises(LostLeadership):
            self.old[-1].publish()
        assert Log.open(self.store).head == before

    @rule()
    @precondition(lambda self: self.learner.state.next_seq > 8 and not self.ended)
    def end(self):
        if self.learner.state.open_batch is None:
            self.learner.end(reason="enough")
            self.ended = True

    @invariant()
    def sound(self):
        if not hasattr(self, "learner"):
            return
        state = assert_sound(self.store)
        assert state.fates == self.learner.state.fates
        assert state.version == self.learner.version
        training = len(state.open_tasks) - len(self.learner.decided)
        assert self.ended or training >= 0
        if self.ended:
            assert sorted(state.fates) == list(range(state.next_seq))
        for seq, (fate, _) in state.fates.items():
            if fate == "trained":
                assert group_key(seq) in self.store.keys("groups/")


def test_any_interleaving_keeps_the_log_sound(kit):
    from hypothesis.stateful import run_state_machine_as_test

    Interleavings.kit = kit
    run_state_machine_as_test(
        Interleavings,
        settings=settings(max_examples=40, stateful_step_count=40, deadline=None),
    )
