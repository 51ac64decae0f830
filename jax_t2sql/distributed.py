"""The hosts of one run: who they are, by environment, and a roll call before JAX joins them.

JAX ends a process with a stack trace when a host does not turn up, and names nobody. So host 0
first calls the roll on the coordinator's own address; whoever is missing after a while is named on
every host that came.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from jax_t2sql.errors import UserError

ADDRESS, COUNT, INDEX = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
_PATIENCE_SECONDS = 300.0
_RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class Place:
    """One host among the `count` of a run. address: HOST:PORT of host 0; "" with one host."""

    index: int = 0
    count: int = 1
    address: str = ""


def read_place(environ: Mapping[str, str] = os.environ) -> Place:
    """This host, as JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID say.

    Raises:
      UserError: only some of the three are set, or one makes no sense.
    """
    found = {name: environ[name] for name in (ADDRESS, COUNT, INDEX) if environ.get(name)}
    if not found:
        return Place()
    if missing := [name for name in (ADDRESS, COUNT, INDEX) if name not in found]:
        raise UserError(
            f"{', '.join(found)} is set, but not {', '.join(missing)}; set all three on every host"
            " of a run, or none where there is one host"
        )
    try:
        count, index = int(found[COUNT]), int(found[INDEX])
    except ValueError:
        raise UserError(
            f"{COUNT}={found[COUNT]} and {INDEX}={found[INDEX]} must be whole numbers"
        ) from None
    if count < 1 or not 0 <= index < count:
        raise UserError(f"{INDEX}={index} must be from 0 to {COUNT} - 1, which is {count - 1}")
    host, _, port = found[ADDRESS].rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"{ADDRESS}={found[ADDRESS]} must be HOST:PORT, the address of host 0")
    return Place(index, count, found[ADDRESS])


def join_hosts(place: Place, *, patience: float = _PATIENCE_SECONDS) -> None:
    """Joins the hosts of a run into one JAX program; with one host there is nothing to do.

    Args:
      patience: seconds to wait for the others.

    Raises:
      UserError: a host did not come; the message names it.
    """
    if place.count == 1:
        return
    roll_call(place, patience=patience)
    import jax

    jax.distributed.initialize(place.address, place.count, place.index)


def roll_call(place: Place, *, patience: float) -> None:
    """Returns on all hosts once all are there. Raises UserError as `join_hosts` does."""
    if missing := (_call if place.index == 0 else _answer)(place, patience):
        names = ", ".join(f"host {index}" for index in missing)
        raise UserError(
            f"{names} of {place.count} did not come within {patience:g} s ({INDEX} counts from 0);"
            f" see its own output, check that it reaches {place.address}, then start all hosts"
            " again"
        )


def _call(place: Place, patience: float) -> list[int]:
    """Host 0: waits for the others, tells each who is missing."""
    port = int(place.address.rpartition(":")[2])
    deadline = time.monotonic() + patience
    here: dict[int, socket.socket] = {}
    try:
        with socket.create_server(("", port)) as server:
            while len(here) < place.count - 1 and (left := deadline - time.monotonic()) > 0:
                server.settimeout(left)
                try:
                    connection, _ = server.accept()
                    connection.settimeout(min(left, 10.0))
                    index = int(connection.makefile().readline())
                except (OSError, ValueError):  # nobody, or something that is no host
                    continue
                if not 0 < index < place.count or index in here:
                    raise UserError(
                        f"a second host says that it is {INDEX}={index} of {place.count}: give"
                        " each host a number of its own"
                    )
                here[index] = connection
    except OSError as error:
        raise UserError(
            f"host 0 cannot listen on {place.address} ({error.strerror}); choose another port"
        ) from error
    missing = sorted(set(range(1, place.count)) - here.keys())
    for connection in here.values():
        with connection:
            connection.sendall(json.dumps(missing).encode() + b"\n")
    return missing


def _answer(place: Place, patience: float) -> list[int]:
    """Another host: reports to host 0, and waits for what that says."""
    host, _, port = place.address.rpartition(":")
    deadline = time.monotonic() + patience
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, int(port)), timeout=left) as connection:
                connection.sendall(f"{place.index}\n".encode())
                connection.settimeout(left + 10.0)
                return [int(index) for index in json.loads(connection.makefile().readline())]
        except (OSError, ValueError):  # not there yet, or gone again
            time.sleep(_RETRY_SECONDS)
    return [0]
