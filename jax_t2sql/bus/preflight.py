"""Is this store fit to be a bus, and are the numbers of the fleet sound? Asked before a run begins.

Everything wrong is reported at once. What is only doubtful comes back as warnings.
"""

import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jax_t2sql.bus.contract import Bounds
from jax_t2sql.bus.keys import PROBES, probe_key
from jax_t2sql.bus.store import Store, open_store, put_once
from jax_t2sql.errors import UserError

_RACES = 3
_NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p")


def check_bus(
    location: str | Path,
    *,
    bounds: Bounds | None = None,
    workers: int = 0,
    groups_in_flight: int = 1,
    open_client: Callable[[str | Path], Store] = open_store,
) -> list[str]:
    """Race two clients for objects of the store, and compare the fleet with the window.

    workers: sampler processes; 0 for a run with only an inline sampler. groups_in_flight: groups
    that each of them works on at a time. open_client: opens one more client of the store.

    Returns:
        Warnings, one sentence each.

    Raises:
        UserError: one message with every fault that was found.
    """
    faults = []
    if bounds is not None and (fault := window_fault(bounds, workers, groups_in_flight)):
        faults.append(fault)
    if str(location).startswith("memory:") and workers:
        faults.append(
            f"bus {str(location)!r} lives in one process, but {workers} sampler processes are to "
            "use it; give a directory that all of them see, or s3:// or gs://"
        )
    else:
        faults += _store_faults(location, open_client)
    if len(faults) == 1:
        raise UserError(faults[0])
    if faults:
        lines = [f"  {number}. {fault}" for number, fault in enumerate(faults, start=1)]
        raise UserError("\n".join([f"{len(faults)} faults of the bus:", *lines]))
    return _warnings(location)


def window_fault(bounds: Bounds, workers: int, groups_in_flight: int) -> str | None:
    """Why some samplers of such a fleet would starve; None if none would."""
    fleet = workers * groups_in_flight
    if fleet <= bounds.max_outstanding:
        return None
    needed = -(-fleet // (bounds.max_staleness + 1))
    return (
        f"{workers} samplers with {groups_in_flight} groups in flight work on {fleet} groups, but "
        f"only (max_staleness + 1) * groups_per_batch = {bounds.max_outstanding} may be "
        f"outstanding, so some would starve; use at least {needed} groups a batch, allow more "
        "staleness, or start fewer samplers"
    )


def _store_faults(location: str | Path, open_client: Callable[[str | Path], Store]) -> list[str]:
    """Faults of the store's promises, each found with objects that are removed again."""
    try:
        one = open_client(location)
        two = one if str(location).startswith("memory:") else open_client(location)
    except UserError as error:
        return [str(error)]
    faults: list[str] = []
    used: list[str] = []
    try:
        for _ in range(_RACES):
            used.append(key := probe_key(secrets.token_hex(8)))
            if fault := _race(one, two, key):
                faults.append(f"bus {str(location)!r}: {fault}")
                break
    except (OSError, ValueError) as error:
        faults.append(f"bus {str(location)!r} cannot be written and read: {error}")
    else:
        one.delete(used)
    return faults


def _race(one: Store, two: Store, key: str) -> str | None:
    """Let both create `key` at once: one must win, and both must at once see what it wrote."""
    contents = (b"one " + secrets.token_bytes(64), b"two " + secrets.token_bytes(64))
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(put_once, client, key, content)
            for client, content in zip((one, two), contents, strict=True)
        ]
        won = [job.result() for job in jobs]
    if won[0] == won[1]:
        return (
            f"of two clients that created {key!r} at once {'both' if won[0] else 'neither'} won; "
            "learners could overwrite each other. Use a store with conditional puts (a local "
            "directory, S3, GCS)"
        )
    winner = contents[won.index(True)]
    for client in (one, two):
        if client.read(key) != winner:
            return f"{key!r} does not read back as it was created; use another store"
        if key not in client.keys(PROBES):
            return f"{key!r} was created and is not in a listing made after that; use another store"
    return None


def _warnings(location: str | Path) -> list[str]:
    if "://" in str(location):
        return []
    kind = file_system(Path(location))
    if kind not in _NETWORK_FILE_SYSTEMS:
        return []
    return [
        f"bus {str(location)!r} is on a network file system ({kind}): other machines may see new "
        "files up to a minute late, and a server without locks may lose a create-once; a bucket "
        "is safer"
    ]


def file_system(path: Path, *, mounts: str | None = None) -> str:
    """Type of the file system that holds `path`, such as "ext4"; "" where that cannot be told.

    mounts: text in the form of /proc/mounts, by default that file's.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text()
        except OSError:
            return ""
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
