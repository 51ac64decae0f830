import json
import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from jax_t2sql.bus import Bounds, Log, Quarantine, RunState, SamplerBus, open_store
from jax_t2sql.bus.audit import audit, main
from jax_t2sql.bus.entries import Batch, Issue, Publish, decode_entry, encode_entry, sha256_hex
from jax_t2sql.bus.groups import Group, decode_group, encode_group
from jax_t2sql.bus.keys import adapter_key, group_key, log_key


@pytest.fixture
def location(tmp_path):
    return tmp_path / "bus"


@pytest.fixture
def adapter(tmp_path):
    def make(step):
        directory = tmp_path / f"adapter{step}"
        directory.mkdir(exist_ok=True)
        (directory / "weights").write_bytes(b"%d" % step)
        return directory

    return make


@pytest.fixture
def run(kit, location, adapter):
    """Three steps of two groups, one zero-signal group a step, adapters, a takeover, an end."""
    store = open_store(location)
    limits = Bounds(vocab_size=kit.vocab, groups_per_batch=3)
    bus = kit.lead(store, bounds=limits, publish=False)
    bus.publish(adapter(0))
    sampler = SamplerBus(store, sampler="s1", contract=kit.contract)
    for step in range(3):
        if step == 2:
            bus = kit.lead(store, bounds=limits, publish=False)
            bus.publish(adapter(2))
        bus.issue(kit.new_tasks(3, first_seed=3 * step), cursor={"at": step})
        sampler.refresh()
        for task in sampler.claim(3):
            sampler.put_groups([sampler.make_group(task, kit.rollouts(task, step))])
        ready = bus.ready_groups()
        bus.decide(ready[0].task.seq, "zero-signal")
        bus.append_batch(ready[1:], pack_seed=step)
        bus.publish(adapter(step + 1))
    bus.end(reason="done", final=bus.state.last_publish.adapter.name)
    return store


def faults(store):
    return "\n".join(audit(store).faults)


def test_a_sound_run_has_no_fault_and_all_is_counted(run, location, capsys):
    result = audit(run)
    assert result.faults == []
    assert result.counts == {
        "entries": 14,
        "takeovers": 1,
        "issued": 9,
        "decided": 9,
        "open": 0,
        "quarantined": 0,
        "trained": 6,
        "ignored_objects": 0,
        "verified": 6,
        "adapters": 5,
    }
    assert main([str(location)]) == 0
    assert capsys.readouterr().out.startswith("sound: 14 entries, 1 takeovers")


def test_a_running_bus_is_sound_too(kit, location):
    store = open_store(location)
    kit.lead(store).issue(kit.new_tasks(2), cursor={})
    result = audit(store)
    assert result.sound and result.counts["open"] == 2


def test_places_freed_by_fates_that_are_not_logged_yet_are_no_fault(kit, location):
    store = open_store(location)
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    bus.decide(0, "zero-signal")
    bus.issue(kit.new_tasks(1), cursor={})
    assert audit(store).faults == []


def test_a_late_object_is_counted_and_no_fault(run):
    run.create(group_key(99), b"for a task that was never issued")
    result = audit(run)
    assert result.sound and result.counts["ignored_objects"] == 1


def replace(store, seq, data):
    store.delete([group_key(seq)])
    store.create(group_key(seq), data)


def test_changed_and_missing_groups_are_named(run):
    data = run.read(group_key(4))
    replace(run, 4, data[:-1] + bytes([data[-1] ^ 1]))
    run.delete([group_key(7)])
    found = faults(run)
    assert "groups/00000/00000004" in found and "is not the logged" in found
    assert "groups/00000/00000007" in found and "missing" in found
    assert audit(run).counts["verified"] == 5


def test_the_program_names_faults_and_what_is_no_bus(run, location, tmp_path):
    run.delete([group_key(7)])
    command = [sys.executable, "-m", "jax_t2sql.bus.audit"]
    done = subprocess.run([*command, str(location)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "fault: groups/00000/00000007" in done.stdout and "1 faults: 14 entries" in done.stdout
    for wrong in (tmp_path / "typo", "gopher://x"):
        done = subprocess.run([*command, str(wrong)], capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith("error: ")
    (tmp_path / "empty" / "log").mkdir(parents=True)
    done = subprocess.run([*command, str(tmp_path / "empty")], capture_output=True, text=True)
    assert done.returncode == 2 and "no run in" in done.stderr
    away = os.environ | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"}
    away |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    done = subprocess.run([*command, "s3://bucket/run"], capture_output=True, text=True, env=away)
    assert done.returncode == 75 and done.stderr.startswith("error: "), done.stderr
    assert "Traceback" not in done.stderr and "check address" in done.stderr


def rewrite(store, change):
    """Write the log anew with an entry changed, and the chain after it made to fit."""
    entries, previous = [], "0" * 64
    index = 0
    while True:
        try:
            entry = decode_entry(store.read(log_key(index)))
        except FileNotFoundError:
            break
        entry = msgspec.structs.replace(change(entry), previous=previous)
        entries.append(encode_entry(entry))
        previous = sha256_hex(entries[-1])
        index += 1
    store.delete([log_key(n) for n in range(index)])
    for number, data in enumerate(entries):
        store.create(log_key(number), data)


def with_group(store, kit, seq, **changes):
    """Put another group in place of a trained one, and its sha256 into the log."""
    group = decode_group(store.read(group_key(seq)))
    rollouts = [kit.rollout(seed=n, **changes) for n in range(2)]
    fields = {name: getattr(group, name) for name in Group.__struct_fields__}
    data = encode_group(Group(**(fields | {"rollouts": tuple(rollouts)})))
    replace(store, seq, data)

    def change(entry):
        if not isinstance(entry, Batch):
            return entry
        groups = [
            msgspec.structs.replace(g, sha256=sha256_hex(data)) if g.seq == seq else g
            for g in entry.groups
        ]
        return msgspec.structs.replace(entry, groups=tuple(groups))

    rewrite(store, change)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"version": 1}, "1 versions old, the bound is 0"),
        ({"version": 2, "length": 9}, "lengths (9, 9) are not the logged (8, 8)"),
        ({"version": 2, "ids_T": np.full(8, 100)}, "vocabulary has 0..99"),
        ({"version": 3}, "versions in 3..3, the learner has 0..2"),
    ],
)
def test_groups_that_should_not_have_been_trained_are_named(run, kit, changes, fault):
    with_group(run, kit, 7, **changes)
    assert fault in faults(run)


def test_groups_of_a_quarantined_sampler_are_named(run):
    """Though the decisions of the log do not say who made them."""

    def change(entry):
        if isinstance(entry, Publish) and entry.step == 2 and entry.batch is not None:
            found = (Quarantine(sampler="s1", reason="ratio 0.8"),)
            return msgspec.structs.replace(entry, quarantined=found)
        if isinstance(entry, Batch):
            fates = tuple(msgspec.structs.replace(d, sampler=None) for d in entry.fates)
            return msgspec.structs.replace(entry, fates=fates)
        return entry

    rewrite(run, change)
    found = audit(run)
    assert found.counts["quarantined"] == 1 and len(found.faults) == 2, found.faults
    assert all("made by 's1', which entry" in f and "ratio 0.8" in f for f in found.faults)


def test_a_version_that_was_never_published_is_named(run):
    def change(entry):
        if not isinstance(entry, Publish) or entry.step != 0:
            return entry
        fields = {name: getattr(entry, name) for name in ("index", "previous", "epoch", "nonce")}
        return Issue(**fields, tasks=(), cursor={})

    assert faults(run) == ""
    rewrite(run, change)
    assert faults(run).count("sampled with versions [0], which no publish before it names") == 2


def test_a_broken_chain_and_a_gap_are_named(run):
    data = json.loads(run.read(log_key(3)))
    run.delete([log_key(3)])
    run.create(log_key(3), json.dumps(data, indent=1).encode())
    assert "log: log entry log/00000004.json follows an entry with sha256" in faults(run)
    run.delete([log_key(3)])
    assert "gap: log/00000003.json" in faults(run)


def test_too_many_outstanding_tasks_are_named(run):
    def change(entry):
        if type(entry).__name__ != "Start":
            return entry
        bounds = msgspec.structs.replace(entry.bounds, groups_per_batch=1)
        return msgspec.structs.replace(entry, bounds=bounds)

    rewrite(run, change)
    assert "2 training tasks are outstanding, the window has 1" in faults(run)


def test_adapters_are_compared_with_their_publish(run, location):
    names = [ref.name for _, ref in run_state(run).adapters]
    run.delete([adapter_key(names[1], "weights")])
    run.create(adapter_key(names[1], "weights"), b"other")
    run.create(adapter_key("other-e0-s0-01234567", "weights"), b"x")
    found = faults(run)
    assert f"adapter {names[1]}, file 'weights': wrong sha256" in found
    assert "adapters of other runs share this bus" in found


def run_state(store):
    state = RunState()
    state.apply_all(Log.open(store).entries)
    return state
