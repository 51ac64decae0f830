"""Kills at every boundary with noisy replays, any order of completion, late puts, skewed clocks,
and objects made by an enemy. All in one process, so that every case is tried."""

import hashlib
import itertools
import os
import random
import time

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jax_t2sql.bus import (
    Bounds,
    Log,
    RunState,
    SamplerBus,
    collect_adapters,
    collect_groups,
    open_store,
    read_adapter,
)
from jax_t2sql.bus.audit import audit
from jax_t2sql.bus.groups import MAX_DECODED_BYTES, encode_group
from jax_t2sql.bus.keys import claim_key, group_key


class Killed(BaseException):
    """The process is gone; nothing may catch this as an error."""


class Boundaries:
    """A store, and all else that a learner does that lasts; dies before or after its n-th act."""

    def __init__(self, inner, *, acts=None, done=False):
        self.inner, self.acts, self.done = inner, acts, done
        self.names = []

    def act(self, name, do):
        self.names.append(name)
        if self.acts is None or len(self.names) <= self.acts:
            return do()
        if self.done and len(self.names) == self.acts + 1:
            do()
        raise Killed

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        if name not in ("create", "overwrite", "delete"):
            return method
        return lambda *args, **options: self.act(name, lambda: method(*args, **options))


class Trainer:
    """A run with adapters, checkpoints and garbage collection. Replayed weights get noise."""

    STEPS, EVERY, BATCH = 4, 2, 2

    def __init__(self, kit, store, disk, directory):
        self.kit, self.store, self.disk, self.directory = kit, store, disk, directory

    def run(self):
        limits = Bounds(vocab_size=self.kit.vocab, groups_per_batch=self.BATCH + 1)
        bus = self.kit.lead(self.store, publish=False, bounds=limits)
        weights, positions = self.disk.get("checkpoint", ("", []))
        for step in bus.replay(positions[-1] if positions else None):
            weights = self.store.act("update", lambda w=weights, s=step: train(w, s.groups))
            weights += f" noise {next(self.disk['noise'])}"
        self.publish(bus, weights, positions)
        sampler = SamplerBus(
            self.store, sampler="inline", contract=self.kit.contract, learner_epoch=bus.epoch
        )
        while bus.version < self.STEPS:
            if bus.capacity:
                at = bus.state.next_seq
                bus.issue(self.kit.new_tasks(bus.capacity, first_seed=at), cursor={"at": at})
            sampler.refresh()
            read_adapter(self.store, sampler.adapter)
            for task in sampler.claim(100):
                group = sampler.make_group(task, self.kit.rollouts(task, bus.version))
                sampler.put_groups([group])
            ready = bus.ready_groups()
            for group in ready[self.BATCH :]:
                bus.decide(group.task.seq, "zero-signal")
            bus.append_batch(ready[: self.BATCH], pack_seed=bus.version)
            groups = [group.group for group in ready[: self.BATCH]]
            weights = self.store.act("update", lambda w=weights, g=groups: train(w, g))
            if (bus.version + 1) % self.EVERY == 0:
                positions = [*positions[-1:], bus.position]
                saved = (weights, positions)
                self.store.act("checkpoint", lambda s=saved: self.disk.update(checkpoint=s))
            self.publish(bus, weights, positions)
        bus.end(reason="done", final=bus.state.last_publish.adapter.name)

    def publish(self, bus, weights, positions):
        (self.directory / "weights").write_text(weights)
        bus.publish(self.directory, floor=positions[0][0] if len(positions) == 2 else None)
        collect_groups(bus.store, bus.state)
        collect_adapters(bus.store, bus.state, keep_newest=1)


def train(weights, groups):
    digest = hashlib.sha256(weights.encode())
    for group in groups:
        for rollout in group.rollouts:
            digest.update(rollout.ids_i32 + rollout.logprobs_f32 + rollout.versions_i32)
    return digest.hexdigest()


def state_of(store):
    state = RunState()
    state.apply_all(Log.open(store).entries)
    return state


def fates_of(store):
    return {seq: fate for seq, (fate, _) in sorted(state_of(store).fates.items())}


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_kill_at_any_boundary_loses_and_repeats_nothing(kit, tmp_path, done):
    calm = Boundaries(open_store("memory:///"))
    Trainer(kit, calm, {"noise": itertools.count()}, tmp_path).run()
    assert audit(calm.inner).faults == []
    assert set(calm.names) == {"create", "update", "checkpoint", "delete"}
    expected = fates_of(calm.inner)
    names = set()
    for act in range(len(calm.names)):
        inner, disk = open_store("memory:///"), {"noise": itertools.count()}
        with pytest.raises(Killed):
            Trainer(kit, Boundaries(inner, acts=act, done=done), disk, tmp_path).run()
        place = f"killed {'after' if done else 'before'} act {act} ({calm.names[act]})"
        if inner.keys("log/"):
            assert audit(inner).faults == [], place
        if not inner.keys("log/") or state_of(inner).end is None:
            Trainer(kit, Boundaries(inner), disk, tmp_path).run()
        assert audit(inner).faults == [], place
        assert fates_of(inner) == expected, place
        names |= {ref.name for _, ref in state_of(inner).adapters}
    contents = {}
    for name in names:
        step = name.split("-")[2]
        contents.setdefault(step, set()).add(name)
    assert max(len(versions) for versions in contents.values()) > 1, "noise gave other names"


def test_two_kills_in_one_run_lose_nothing_either(kit, tmp_path):
    calm = Boundaries(open_store("memory:///"))
    Trainer(kit, calm, {"noise": itertools.count()}, tmp_path).run()
    total = len(calm.names)
    rng = random.Random(0)
    for _ in range(40):
        inner, disk = open_store("memory:///"), {"noise": itertools.count()}
        for _ in range(2):
            killed = Boundaries(inner, acts=rng.randrange(total), done=rng.random() < 0.5)
            try:
                Trainer(kit, killed, disk, tmp_path).run()
                break
            except Killed:
                continue
        else:
            if not inner.keys("log/") or state_of(inner).end is None:
                Trainer(kit, Boundaries(inner), disk, tmp_path).run()
        assert audit(inner).faults == []
        assert fates_of(inner) == fates_of(calm.inner)


@pytest.fixture
def lead(kit):
    def make(**changes):
        store = open_store("memory:///")
        limits = Bounds(**({"vocab_size": kit.vocab, "groups_per_batch": 4} | changes))
        return store, kit.lead(store, bounds=limits)

    return make


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(order=st.permutations(range(12)), sizes=st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_any_order_of_completion_trains_what_is_there(kit, lead, order, sizes):
    store, bus = lead(max_staleness=2)
    bus.issue(kit.new_tasks(12), cursor={})
    sampler = SamplerBus(store, sampler="s1", contract=kit.contract)
    tasks = sampler.claim(12)
    arrived = iter(order)
    trained = []
    for size in sizes:
        for seq in itertools.islice(arrived, size):
            sampler.put_groups([sampler.make_group(tasks[seq], kit.rollouts(tasks[seq], 0))])
        ready = bus.ready_groups()
        due = set(order[: len(trained) + size]) - set(trained)
        assert [group.task.seq for group in ready] == sorted(due)
        bus.append_batch(ready, pack_seed=0)
        trained += [group.task.seq for group in ready]
        bus.publish()
    assert sorted(trained) == sorted(order[: sum(sizes)])
    assert audit(store).faults == []


def test_a_put_after_its_task_was_collected_is_ignored_for_ever(kit, lead):
    store, bus = lead(max_staleness=1)
    bus.issue(kit.new_tasks(2), cursor={})
    slow = SamplerBus(store, sampler="slow", contract=kit.contract)
    late, quick = slow.claim(2)
    slow.put_groups([slow.make_group(quick, kit.rollouts(quick, 0))])
    bus.decide(late.seq, "failed")
    bus.append_batch(bus.ready_groups(), pack_seed=0)
    bus.publish(floor=bus.log.head + 1)
    collect_groups(store, bus.state)
    assert store.keys("groups/") == []
    assert slow.put_groups([slow.make_group(late, kit.rollouts(late, 0))]) == [True]
    assert bus.ready_groups() == []
    assert bus.state.fates[late.seq][0] == "failed"
    again = kit.lead(store, bounds=bus.state.start.bounds, publish=False)
    assert list(again.replay((bus.log.head, bus.log.head_sha))) == []
    again.publish()
    assert again.ready_groups() == []
    assert audit(store).faults == []
    collect_groups(store, again.state)
    assert store.keys("groups/") == [], "and the next collection takes it"


@pytest.mark.parametrize("place", ["memory", "directory"])
def test_clocks_that_are_wrong_by_minutes_change_no_fate(kit, tmp_path, monkeypatch, place):
    def run(location, clock):
        monkeypatch.setattr(time, "time", clock)
        store = Boundaries(open_store(location))
        Trainer(kit, store, {"noise": itertools.count()}, files).run()
        return fates_of(store.inner)

    files = tmp_path / "files"
    files.mkdir()
    real, rng = time.time, random.Random(1)
    folder = "memory:///" if place == "memory" else None
    calm = run(folder or tmp_path / "calm", real)
    skewed = run(folder or tmp_path / "skewed", lambda: real() + rng.choice([-600.0, 600.0]))
    assert skewed == calm


def bomb(group):
    return zstandard.ZstdCompressor(level=1).compress(bytes(MAX_DECODED_BYTES + 1))


def deep(group):
    return zstandard.compress(b"\x91" * 100_000 + b"\xc0")


def with_rollout(**changes):
    def make(group):
        rollout = msgspec.structs.replace(group.rollouts[0], **changes)
        return encode_group(msgspec.structs.replace(group, rollouts=(rollout, rollout)))

    return make


def floats(value):
    return np.full(8, value, "<f4").tobytes()


def ints(value):
    return np.full(8, value, "<i4").tobytes()


ATTACKS = {
    "a bomb": bomb,
    "deep nesting": deep,
    "nothing": lambda group: b"",
    "no zstandard": lambda group: b"x" * 100,
    "cut off": lambda group: encode_group(group)[:-9],
    "NaN log-probs": with_rollout(logprobs_f32=floats(np.nan)),
    "infinite log-probs": with_rollout(logprobs_f32=floats(-np.inf)),
    "positive log-probs": with_rollout(logprobs_f32=floats(1.0)),
    "negative ids": with_rollout(ids_i32=ints(-1)),
    "ids above the vocabulary": with_rollout(ids_i32=ints(100)),
    "lengths that differ": with_rollout(ids_i32=ints(1)[:-4]),
    "a mask of twos": with_rollout(mask_u8=b"\x02" * 8),
    "a version of the future": with_rollout(versions_i32=ints(7)),
    "NaN reward": with_rollout(reward=float("nan")),
    "NaN term": with_rollout(terms={"x": float("inf")}),
    "another contract": lambda g: encode_group(msgspec.structs.replace(g, contract="0" * 64)),
    "another task": lambda g: encode_group(msgspec.structs.replace(g, seq=g.seq + 1)),
    "too few rollouts": lambda g: encode_group(msgspec.structs.replace(g, rollouts=())),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_enemys_group_gets_its_fate_and_names_the_enemy(kit, lead, attack):
    store, bus = lead()
    bus.issue(kit.new_tasks(2), cursor={})
    enemy = SamplerBus(store, sampler="enemy", contract=kit.contract)
    bad, good = enemy.claim(2)
    group = enemy.make_group(bad, kit.rollouts(bad, 0))
    store.create(group_key(bad.seq), ATTACKS[attack](group))
    enemy.put_groups([enemy.make_group(good, kit.rollouts(good, 0))])
    ready = bus.ready_groups()
    assert [group.task.seq for group in ready] == [good.seq], "the learner lives"
    (decision,) = bus.decided
    assert decision.fate in ("corrupt", "invalid") and decision.sampler == "enemy"
    assert "enemy" in decision.reason
    bus.append_batch(ready, pack_seed=0)
    bus.publish()
    assert audit(store).faults == []


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_groups_never_stop_the_learner(kit, lead, data):
    store, bus = lead()
    bus.issue(kit.new_tasks(1), cursor={})
    enemy = SamplerBus(store, sampler="enemy", contract=kit.contract)
    (task,) = enemy.claim(1)
    plain = bytearray(
        zstandard.decompress(encode_group(enemy.make_group(task, kit.rollouts(task, 0))))
    )
    for _ in range(data.draw(st.integers(1, 8))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    store.create(group_key(0), zstandard.compress(bytes(plain)))
    ready = bus.ready_groups()
    assert len(ready) + len(bus.decided) == 1
    for group in ready:  # whatever passed is sound as far as numbers go
        bus.append_batch([group], pack_seed=0)
        bus.publish()
        assert audit(store).faults == []


def test_links_pipes_and_odd_names_on_a_directory_bus(kit, tmp_path):
    store = open_store(tmp_path / "bus")
    bus = kit.lead(store, bounds=Bounds(vocab_size=kit.vocab, groups_per_batch=8))
    bus.issue(kit.new_tasks(4), cursor={})
    enemy = SamplerBus(store, sampler="enemy", contract=kit.contract)
    tasks = enemy.claim(4)
    enemy.put_groups([enemy.make_group(tasks[0], kit.rollouts(tasks[0], 0))])
    root = tmp_path / "bus"
    os.symlink(root / group_key(0), root / group_key(1))
    os.mkfifo(root / group_key(2))
    os.mkdir(root / group_key(3))
    for name in ("groups/00000/x", "groups/x", "log/x.json", "claims/00000/é", "samplers/a b"):
        (root / name).write_text("x")
    (root / "groups" / "00001").symlink_to(root / "groups" / "00000")
    assert [group.task.seq for group in bus.ready_groups()] == [0]
    assert {(d.seq, d.fate, d.sampler) for d in bus.decided} == {
        (seq, "corrupt", "enemy") for seq in (1, 2, 3)
    }
    bus.expire_claims(still_seconds=1)
    bus.append_batch(bus.ready_groups(), pack_seed=0)
    bus.publish()
    assert audit(store).faults == []


def test_a_claim_that_is_none_expires(kit, lead):
    store, bus = lead()
    bus.issue(kit.new_tasks(1), cursor={})
    store.create(claim_key(0, 0), b'{"seq": 0, "sampler": 3}')
    assert bus.expire_claims(still_seconds=5, clock=lambda: 0.0) == ()
    (offer,) = bus.expire_claims(still_seconds=5, clock=lambda: 6.0)
    assert (offer.seq, offer.attempt) == (0, 1)
