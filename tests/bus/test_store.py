import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from jax_t2sql.bus import LostLeadership, SamplerBus, open_store
from jax_t2sql.bus.keys import (
    ADAPTERS,
    CLAIMS,
    GROUPS,
    LOG,
    check_key,
    check_name,
    claim_key,
    group_key,
    log_key,
)
from jax_t2sql.bus.store import put_all_once, put_once
from jax_t2sql.errors import UserError

ADAPTER = "adapters/run-e0-s3-0123abcd/"


class Faulty:
    """A store whose next creations raise: before the object is made, or after."""

    def __init__(self, inner, *, before: int = 0, after: int = 0):
        self.inner, self.before, self.after = inner, before, after

    def create(self, key, data, *, durable=True):
        if self.before:
            self.before -= 1
            raise ConnectionError("no route")
        self.inner.create(key, data, durable=durable)
        if self.after:
            self.after -= 1
            raise TimeoutError("no answer")

    def read(self, key, **options):
        return self.inner.read(key, **options)


def test_an_object_is_created_once_and_read_back(store):
    key = group_key(7)
    assert put_once(store, key, b"mine")
    assert put_once(store, key, b"mine"), "the same bytes are one's own put, arrived before"
    assert not put_once(store, key, b"other")
    assert store.read(key) == b"mine"
    with pytest.raises(FileExistsError):
        store.create(key, b"mine")
    with pytest.raises(FileNotFoundError):
        store.read(group_key(8))
    with pytest.raises(ValueError, match="limit is 3"):
        store.read(key, max_bytes=3)


def test_an_error_after_the_object_arrived_is_no_failure(store):
    assert put_once(Faulty(store, after=1), log_key(0), b"x")
    assert store.read(log_key(0)) == b"x"


def test_an_error_before_the_object_arrived_is_tried_again(store):
    assert put_once(Faulty(store, before=2), log_key(0), b"x")
    assert store.read(log_key(0)) == b"x"


def test_an_error_while_another_writer_wins_is_a_loss(store):
    store.create(log_key(0), b"theirs")
    assert not put_once(Faulty(store, before=1), log_key(0), b"x")


def test_a_store_that_stays_down_is_an_oserror_that_names_the_object(store):
    with pytest.raises(OSError, match=r"log/00000000.json.*2 attempts.*no route"):
        put_once(Faulty(store, before=9), log_key(0), b"x", attempts=2)


def test_many_puts_keep_their_order(store):
    store.create(group_key(3), b"theirs")
    objects = [(group_key(n), b"%d" % n) for n in range(20)]
    assert put_all_once(store, objects) == [n != 3 for n in range(20)]
    assert store.read(group_key(19)) == b"19"


def test_listing_is_sorted_and_starts_where_asked(store):
    for n in (12, 3, 100, 9):
        store.create(group_key(n), b"")
    assert store.keys(GROUPS) == [group_key(n) for n in (3, 9, 12, 100)]
    assert store.keys(GROUPS, start=group_key(9)) == [group_key(n) for n in (9, 12, 100)]
    assert store.keys(GROUPS, start=group_key(10)) == [group_key(n) for n in (12, 100)]
    assert store.keys(LOG) == []


def test_shards_of_a_thousand_are_listed_in_order_from_the_low_watermark(store):
    for seq in (2000, 999, 1000, 12_345_678):
        store.create(group_key(seq), b"")
        store.create(claim_key(seq, 1), b"")
    assert group_key(12_345_678) == "groups/12345/12345678.msgpack.zst"
    assert store.keys(GROUPS) == [group_key(n) for n in (999, 1000, 2000, 12_345_678)]
    assert store.keys(CLAIMS, start=claim_key(1000, 0)) == [
        claim_key(n, 1) for n in (1000, 2000, 12_345_678)
    ]
    # One who finishes late is below everything that is there, but not below the watermark.
    store.create(group_key(998), b"late")
    assert store.keys(GROUPS, start=group_key(998))[0] == group_key(998)
    store.delete([group_key(n) for n in (998, 999)])
    assert store.keys(GROUPS)[0] == group_key(1000)
    store.create(group_key(998), b"after its shard was collected")


def test_of_two_clients_that_create_at_once_one_wins_and_both_know(clients):
    one, two = clients(), clients()
    with ThreadPoolExecutor(2) as pool:
        for seq in range(10):
            puts = [(one, b"one" * 99), (two, b"two" * 99)]
            jobs = [pool.submit(put_once, client, group_key(seq), data) for client, data in puts]
            won = [job.result() for job in jobs]
            assert sorted(won) == [False, True]
            content = puts[won.index(True)][1]
            assert one.read(group_key(seq)) == two.read(group_key(seq)) == content
            assert group_key(seq) in two.keys(GROUPS, start=group_key(seq))


def test_a_whole_run_in_any_store(kit, clients):
    bus = kit.lead(clients())
    sampler = SamplerBus(clients(), sampler="s1", contract=kit.contract)
    for step in range(2):
        bus.issue(kit.new_tasks(2, first_seed=2 * step), cursor={"at": step})
        sampler.refresh()
        tasks = sampler.claim(2)
        sampler.heartbeat(served=step)
        groups = [sampler.make_group(task, kit.rollouts(task, step)) for task in tasks]
        assert sampler.put_groups(groups) == [True, True]
        bus.append_batch(bus.ready_groups(), pack_seed=step)
        bus.publish()
    again = kit.lead(clients(), publish=False)
    assert [step.batch.pack_seed for step in again.replay(None)] == [0, 1]
    with pytest.raises(LostLeadership):
        bus.end(reason="late")
    again.end(reason="done")
    sampler.refresh()
    assert sampler.ended


def test_adapter_files_are_listed_and_deleted(store):
    store.create(ADAPTER + "b.json", b"1")
    store.create(ADAPTER + "a.bin", b"2")
    assert store.keys(ADAPTERS) == [ADAPTER + "a.bin", ADAPTER + "b.json"]
    store.delete([ADAPTER + "a.bin", ADAPTER + "b.json", ADAPTER + "absent"])
    assert store.keys(ADAPTERS) == []


def test_only_heartbeats_are_replaced(store):
    store.overwrite("samplers/s1.json", b"1")
    store.overwrite("samplers/s1.json", b"2")
    assert store.read("samplers/s1.json") == b"2"


@pytest.mark.parametrize(
    "key",
    [
        "../log/00000000.json",
        "log/../../etc/passwd",
        "/log/00000000.json",
        "log/0.json",
        "log/00000000.json\n",
        "groups/00000/00000001.msgpack",
        "groups/00000001.msgpack.zst",
        "groups/00001/00000001.msgpack.zst",
        "claims/00000/00000001.1",
        "adapters/run-e0-s3-0123abcd/../x",
        "adapters/run-e0-s3-0123abcd/.hidden",
        "adapters/latest/a.bin",
        "samplers/a.b.json",
        "other",
        "",
    ],
)
def test_foreign_names_are_refused_everywhere(store, key):
    with pytest.raises(ValueError, match="not a name of a bus object"):
        check_key(key)
    for use in (
        lambda: put_once(store, key, b""),
        lambda: store.overwrite(key, b""),
        lambda: store.read(key),
        lambda: store.delete([key]),
    ):
        with pytest.raises(ValueError, match="not a name of a bus object"):
            use()


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x", "x" * 65, "ü"])
def test_run_and_sampler_names_are_plain(name):
    with pytest.raises(ValueError, match="cannot be a run or sampler name"):
        check_name(name)


def test_numbers_outside_the_padding_are_refused():
    with pytest.raises(ValueError, match="seq 100000000 is outside"):
        group_key(10**8)


def test_file_and_directory_are_fsynced_before_a_durable_put_returns(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    synced = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real_fsync(handle)

    def link(source, target):
        assert synced == [str(source)], "content must be on disk before it gets its name"
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    store.create(log_key(0), b"x")
    assert synced[1:] == [str(tmp_path / "log")]
    synced.clear()
    monkeypatch.setattr(os, "link", real_link)
    store.create("claims/00000/00000000.000", b"x", durable=False)
    assert synced == [str(tmp_path / "claims")], "only the new shard itself"
    store.create("claims/00000/00000000.001", b"x", durable=False)
    assert len(synced) == 1
    store.create(ADAPTER + "a.bin", b"x")
    assert str(tmp_path / "adapters") in synced, "a new directory is durable itself"


def test_every_group_of_a_batch_put_is_fsynced(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    calls = []
    real = os.fsync
    store.create(group_key(9), b"x")  # its shard is made
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append(handle), real(handle)))
    put_all_once(store, [(group_key(n), b"x") for n in range(5)])
    assert len(calls) == 10


def test_symbolic_links_are_never_followed(tmp_path):
    store = open_store(tmp_path / "bus")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    store.create(group_key(2), b"x")
    (tmp_path / "bus" / group_key(1)).symlink_to(secret)
    with pytest.raises(ValueError, match="symbolic link"):
        store.read(group_key(1))
    assert not put_once(store, group_key(1), b"secret"), "a link is somebody else's object"
    (tmp_path / "bus" / "adapters" / "run-e0-s3-0123abcd").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symbolic link"):
        store.read(ADAPTER + "secret")
    with pytest.raises(ValueError, match="symbolic link"):
        store.create(ADAPTER + "new", b"x")
    assert store.keys(ADAPTERS) == []
    assert not (tmp_path / "new").exists()
    (tmp_path / "bus" / "groups" / "00007").symlink_to(tmp_path / "bus" / "groups" / "00000")
    assert store.keys(GROUPS) == [group_key(1), group_key(2)]


def test_a_pipe_in_the_place_of_an_object_does_not_hang(tmp_path):
    store = open_store(tmp_path)
    store.create(group_key(2), b"x")
    os.mkfifo(tmp_path / group_key(1))
    with pytest.raises(ValueError, match="not a regular file"):
        store.read(group_key(1))


def test_what_a_killed_writer_left_is_swept_and_never_listed(tmp_path):
    store = open_store(tmp_path)
    old, new = tmp_path / ".staging" / "old", tmp_path / ".staging" / "new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    open_store(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)
    assert store.keys(LOG) == []


def test_the_layout_is_the_one_that_obstore_sees(tmp_path):
    open_store(tmp_path).create(group_key(1), b"x")
    seen = obstore.list(LocalStore(tmp_path), prefix=GROUPS).collect()
    assert [meta["path"] for meta in seen] == [group_key(1)]


def test_errors_of_opening_say_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.*give a directory"):
        open_store(tmp_path / "file")
    with pytest.raises(UserError, match="plain path"):
        open_store("file:///x")
    with pytest.raises(UserError, match="no bus in .*typo.*WORKDIR/bus"):
        open_store(tmp_path / "typo", create=False)
    assert not (tmp_path / "typo").exists()
    for wrong in ("gopher://x", "s3://", "memory://x"):
        with pytest.raises(UserError, match="cannot be opened") as caught:
            open_store(wrong)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="takes no writes"):
        open_store("https://example.com/bus")
    with pytest.raises(UserError, match="no process but the one"):
        open_store("memory:///", create=False)
    assert isinstance(open_store(Path(tmp_path / "new")).local_path(log_key(0)), Path)
    assert open_store("memory:///").local_path(log_key(0)) is None


def test_a_file_system_without_hard_links_is_refused_at_once(tmp_path, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(UserError, match="no hard links.*put the bus on another one"):
        put_once(open_store(tmp_path), "claims/00000/00000000.000", b"x")
