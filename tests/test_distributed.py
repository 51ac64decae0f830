"""Who the hosts are, and who did not come."""

import socket
import threading

import pytest

from jax_t2sql.distributed import Place, read_place, roll_call
from jax_t2sql.errors import UserError

WHOLE = {
    "JAX_COORDINATOR_ADDRESS": "10.0.0.1:8476",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}


def test_one_host_needs_nothing():
    assert read_place({}) == Place(0, 1, "")


def test_hosts_by_environment():
    assert read_place(WHOLE) == Place(3, 4, "10.0.0.1:8476")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"JAX_PROCESS_ID": ""}, "but not JAX_PROCESS_ID"),
        ({"JAX_PROCESS_ID": "4"}, "JAX_PROCESS_ID=4 must be from 0 to JAX_NUM_PROCESSES - 1"),
        ({"JAX_NUM_PROCESSES": "four"}, "must be whole numbers"),
        ({"JAX_NUM_PROCESSES": "0"}, "JAX_PROCESS_ID=3 must be"),
        ({"JAX_COORDINATOR_ADDRESS": "10.0.0.1"}, "must be HOST:PORT"),
        ({"JAX_COORDINATOR_ADDRESS": "a:99999"}, "must be HOST:PORT"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    with pytest.raises(UserError, match=says):
        read_place(WHOLE | change)


def call(places, *, patience):
    """What each of the hosts is told: None or its error."""
    told = {}

    def one(place):
        try:
            told[place.index] = roll_call(place, patience=patience)
        except UserError as error:
            told[place.index] = str(error)

    threads = [threading.Thread(target=one, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


@pytest.fixture
def address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"127.0.0.1:{port}"


def test_all_hosts_come(address):
    assert call([Place(i, 3, address) for i in (2, 1, 0)], patience=60) == dict.fromkeys(range(3))


def test_the_missing_host_is_named_everywhere(address):
    told = call([Place(i, 4, address) for i in (0, 2)], patience=5)
    for index in (0, 2):
        assert told[index].startswith("host 1, host 3 of 4 did not come within 5 s")


def test_without_host_0_that_one_is_named(address):
    told = call([Place(1, 2, address)], patience=0.3)
    assert told[1].startswith("host 0 of 2 did not come")


def test_what_is_no_host_does_not_count(address):
    """Something scans the port before the other host comes."""
    told = {}
    host_0 = threading.Thread(
        target=lambda: told.update({0: roll_call(Place(0, 2, address), patience=600)})
    )
    host_0.start()
    port = int(address.rpartition(":")[2])
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            break
        except OSError:  # host 0 does not listen yet
            continue
    roll_call(Place(1, 2, address), patience=600)
    host_0.join()
    assert told == {0: None}
