"""Rule 2 against a real S3 protocol: what was asked may have happened whatever the answer was."""

import pytest

from jax_t2sql.bus import Log, LostLeadership, open_store
from jax_t2sql.bus.keys import GROUPS, group_key, log_key
from jax_t2sql.bus.store import put_once

KEY = group_key(7)


@pytest.fixture
def store(s3_location):
    return open_store(s3_location)


@pytest.mark.parametrize("fault", ["store-500", "store-drop", "refuse-500", "refuse-409"])
def test_a_put_that_went_wrong_is_done_once(s3, store, fault):
    s3.faults([fault, "PUT", KEY])
    assert put_once(store, KEY, b"mine")
    assert store.read(KEY) == b"mine"


@pytest.mark.parametrize("fault", ["store-500", "store-drop", "refuse-500", "refuse-409"])
def test_a_put_that_went_wrong_and_lost_says_so(s3, store, fault):
    assert put_once(store, KEY, b"theirs")
    s3.faults([fault, "PUT", KEY])
    assert not put_once(store, KEY, b"mine")
    assert store.read(KEY) == b"theirs"


def test_many_faults_in_a_row_end_in_one_object(s3, store):
    s3.faults(
        ["refuse-409", "PUT", KEY],
        ["refuse-500", "GET", KEY],
        ["refuse-409", "PUT", KEY],
        ["store-500", "PUT", KEY],
        ["refuse-500", "GET", KEY],
    )
    assert put_once(store, KEY, b"mine")
    assert store.read(KEY) == b"mine"


@pytest.mark.parametrize("fault", ["store-500", "store-drop", "refuse-409"])
def test_an_entry_is_appended_once_whatever_the_store_says(s3, store, kit, fault):
    bus = kit.lead(store)
    s3.faults([fault, "PUT", log_key(2)])
    bus.issue(kit.new_tasks(1), cursor={})
    assert [entry.index for entry in Log.open(store).entries] == [0, 1, 2]
    rival = kit.lead(open_store_again(store), publish=False)
    s3.faults([fault, "PUT", log_key(4)])
    with pytest.raises(LostLeadership):
        bus.publish()
    s3.faults()
    rival.publish()
    assert Log.open(store).head == 4


def open_store_again(store):
    return open_store(f"s3://bucket/{store.raw.prefix}")


def test_listings_are_sorted_by_the_client_itself(s3, store):
    for seq in (3, 1, 2):
        store.create(group_key(seq), b"")
    s3.faults(["reverse", "GET", "list-type=2"])
    assert store.keys(GROUPS) == [group_key(n) for n in (1, 2, 3)]


def test_a_claim_and_a_group_cost_few_requests(s3, store, kit):
    bus = kit.lead(store)
    bus.issue(kit.new_tasks(2), cursor={})
    s3.requests()
    assert bus.ready_groups() == []
    assert [method for method, _ in s3.requests()] == ["GET"], "one listing"
