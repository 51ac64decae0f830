import json

import msgspec
import pytest

from jax_t2sql.bus import Log, LogError, LostLeadership, Takeover, open_store
from jax_t2sql.bus.entries import NO_ENTRY, decode_entry, encode_entry, sha256_hex
from jax_t2sql.bus.keys import log_key


@pytest.fixture
def store(kit, tmp_path):
    """A log of four entries: start, publish, issue, takeover."""
    store = open_store(tmp_path)
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={"at": 2})
    kit.lead(store, publish=False)
    return store


def rewrite(store, index, data):
    store.local_path(log_key(index)).write_bytes(data)


def test_entries_are_dense_and_chained(store):
    log = Log.open(store)
    assert [type(entry).__name__ for entry in log.entries] == [
        "Start",
        "Publish",
        "Issue",
        "Takeover",
    ]
    assert [entry.index for entry in log.entries] == [0, 1, 2, 3]
    assert [entry.epoch for entry in log.entries] == [0, 0, 0, 3]
    previous = NO_ENTRY
    for index in range(4):
        data = store.read(log_key(index))
        assert decode_entry(data).previous == previous
        previous = sha256_hex(data)
    assert log.head_sha == previous
    assert len({entry.nonce for entry in log.entries}) == 4


def test_the_format_is_readable_json(store):
    entry = json.loads(store.read(log_key(2)))
    assert entry["kind"] == "issue"
    assert entry["cursor"] == {"at": 2}
    assert [task["seq"] for task in entry["tasks"]] == [0, 1]


def test_a_gap_is_named(store):
    store.delete([log_key(1)])
    with pytest.raises(LogError, match=r"gap: log/00000001.json is missing but log/00000003.json"):
        Log.open(store)


def test_foreign_files_in_the_log_are_ignored(store):
    store.local_path(log_key(0)).with_name("notes.txt").write_text("")
    assert Log.open(store).head == 3


@pytest.mark.parametrize("length", [0, 1, 50])
def test_a_torn_entry_is_named(store, length):
    rewrite(store, 3, store.read(log_key(3))[:length])
    with pytest.raises(LogError, match=rf"log/00000003.json \({length} bytes\) cannot be read"):
        Log.open(store)


def test_any_changed_byte_breaks_the_chain(store):
    data = store.read(log_key(2))
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 1
        rewrite(store, 2, bytes(changed))
        with pytest.raises(LogError, match=r"log/0000000[23].json"):
            Log.open(store)


def test_an_unknown_kind_is_named(store):
    data = store.read(log_key(3)).replace(b'"takeover"', b'"vote"')
    rewrite(store, 3, data)
    with pytest.raises(LogError, match="'vote'.*upgrade"):
        Log.open(store)


def test_an_unknown_field_is_named(store):
    rewrite(store, 3, store.read(log_key(3)).replace(b'"learner"', b'"loser":1,"learner"'))
    with pytest.raises(LogError, match="loser"):
        Log.open(store)


def test_a_moved_entry_is_named(store):
    store.create(log_key(4), store.read(log_key(3)))
    with pytest.raises(LogError, match="log/00000004.json calls itself 3"):
        Log.open(store)


def test_a_link_in_the_log_is_refused(store, tmp_path):
    (tmp_path / log_key(4)).symlink_to(tmp_path / log_key(3))
    with pytest.raises(LogError, match="symbolic link"):
        Log.open(store)


def takeover(**chain):
    return Takeover(epoch=chain["index"], learner="x", **chain)


def test_a_taken_slot_is_lost_leadership(store):
    first, second = Log.open(store), Log.open(store)
    first.append(takeover)
    with pytest.raises(LostLeadership, match="log/00000004.json"):
        second.append(takeover)
    assert [entry.index for entry in second.follow()] == [4]
    assert second.append(takeover).index == 5
    assert [entry.index for entry in first.follow()] == [5]


def test_positions_belong_to_one_history(store):
    log = Log.open(store)
    assert [entry.index for entry in log.since(1, log.shas[1])] == [2, 3]
    with pytest.raises(LogError, match="beyond the log's last entry"):
        log.since(4, log.shas[1])
    with pytest.raises(LogError, match="belongs to another run"):
        log.since(1, log.shas[2])
    with pytest.raises(LogError, match="belongs to another run"):
        log.since(-1, log.head_sha)


def test_entries_of_wrong_type_are_not_written(store):
    log = Log.open(store)
    good = log.entries[3]
    bad = msgspec.structs.replace(good, index=4, previous="?")
    with pytest.raises(msgspec.ValidationError):
        decode_entry(encode_entry(bad))
