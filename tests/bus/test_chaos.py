"""Kills at every boundary with noisy replays, any order of completion, late puts, skewed clocks,
and objects made by an enemy. All in one process, so that every case is tried."""

import contextlib
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
from toy_run import Dying, Killed, Trainer

from jax_t2sql.bus import Bounds, Log, RunState, SamplerBus, collect_groups, open_store
from jax_t2sql.bus.audit import audit
from jax_t2sql.bus.groups import MAX_DECODED_BYTES, encode_group
from jax_t2sql.bus.keys import claim_key, group_key


def state_of(store):
    state = RunState()
    state.apply_all(Log.open(store).entries)
    return state


def fates_of(store):
    return {seq: fate for seq, (fate, _) in sorted(state_of(store).fates.items())}


@pytest.fixture
def folders(tmp_path):
    """A new folder each time."""
    return (folder for n in itertools.count() if not (folder := tmp_path / str(n)).mkdir())


def calm_run(folder):
    """What nobody killed: its store, all that it did, and its weights."""
    store = Dying(open_store("memory:///"))
    weights = Trainer(store, folder).run()
    assert audit(store.inner).faults == []
    return store, weights


def go_on(inner, folder, **options):
    """A run to its end, unless it had just written that. The weights, if it went on."""
    if inner.keys("log/") and state_of(inner).end is not None:
        return None
    return Trainer(Dying(inner), folder, **options).run()


@pytest.mark.parametrize(
    ("done", "noisy"), [(False, False), (True, True)], ids=["before, exact", "after, noisy"]
)
def test_a_kill_at_any_boundary_loses_and_repeats_nothing(folders, done, noisy):
    calm, weights = calm_run(next(folders))
    assert set(calm.names) == {"create", "update", "checkpoint", "delete"}
    expected = fates_of(calm.inner)
    assert set(expected.values()) == {"trained", "zero-signal"}
    names = set()
    for act in range(len(calm.names)):
        inner, folder = open_store("memory:///"), next(folders)
        noise = itertools.count() if noisy else None
        with pytest.raises(Killed):
            Trainer(Dying(inner, acts=act, done=done), folder, noise).run()
        place = f"killed {'after' if done else 'before'} act {act} ({calm.names[act]})"
        if inner.keys("log/"):
            assert audit(inner).faults == [], place
        again = go_on(inner, folder, noise=noise)
        assert again is None or noisy or again == weights, place
        assert audit(inner).faults == [], place
        assert fates_of(inner) == expected, place
        names |= {ref.name for _, ref in state_of(inner).adapters}
    contents = {}
    for name in names:
        contents.setdefault(name.split("-")[2], set()).add(name.split("-")[3])
    several = max(len(hashes) for hashes in contents.values()) > 1
    assert several == noisy, "replayed weights with noise are others, and have names of their own"


def test_a_kill_at_any_reading_changes_nothing_either(folders):
    everything = ("create", "overwrite", "delete", "read", "keys")
    calm = Dying(open_store("memory:///"), watched=everything)
    weights = Trainer(calm, next(folders)).run()
    readings = [n for n, name in enumerate(calm.names) if name in ("read", "keys")]
    for act in readings:
        inner, folder = open_store("memory:///"), next(folders)
        with pytest.raises(Killed):
            Trainer(Dying(inner, acts=act, watched=everything), folder).run()
        assert go_on(inner, folder) == weights, f"killed before act {act}"
        assert fates_of(inner) == fates_of(calm.inner)


def test_two_kills_in_one_run_lose_nothing_either(folders):
    calm, weights = calm_run(next(folders))
    rng = random.Random(0)
    for _ in range(40):
        inner, folder = open_store("memory:///"), next(folders)
        for _ in range(2):
            killed = Dying(inner, acts=rng.randrange(len(calm.names)), done=rng.random() < 0.5)
            if inner.keys("log/") and state_of(inner).end is not None:
                break
            with contextlib.suppress(Killed):
                Trainer(killed, folder).run()
        assert go_on(inner, folder) in (None, weights)
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
def test_clocks_that_are_wrong_by_minutes_change_no_fate(folders, monkeypatch, place):
    def run(clock):
        monkeypatch.setattr(time, "time", clock)
        folder = next(folders)
        store = Dying(open_store("memory:///" if place == "memory" else folder / "bus"))
        Trainer(store, folder).run()
        return fates_of(store.inner)

    real, rng = time.time, random.Random(1)
    calm = run(real)
    assert run(lambda: real() + rng.choice([-600.0, 600.0])) == calm


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
