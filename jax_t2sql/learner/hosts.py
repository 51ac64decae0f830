"""How the hosts of a `jax.distributed` run stay of one mind: host 0 decides, all go on or none.

Every function is a collective: all hosts call it, in the same order. With one host they return at
once.
"""

from __future__ import annotations

import hashlib

import jax
import numpy as np

from .batch import LearnerBatch

_PROBLEM_BYTES = 512


def from_host_zero(payload: bytes | None) -> bytes:
    """Host 0's bytes, on every host; what the others pass does not matter.

    >>> from_host_zero(b"batch 7")
    b'batch 7'
    """
    payload = payload or b""
    if jax.process_count() == 1:
        return payload
    from jax.experimental import multihost_utils

    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(payload))))
    mine = np.frombuffer(payload.ljust(size, b"\0")[:size], np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(mine)).astype(np.uint8).tobytes()


def gather(payload: bytes, *, size: int) -> list[bytes]:
    """Every host's bytes, in order of hosts, on every host.

    Args:
      payload: at most `size` bytes; padded with zero bytes, which the results do not end in.
      size: the same on all hosts.

    Raises:
      ValueError: the payload is larger.

    >>> gather(b"ready", size=8)
    [b'ready']
    """
    if len(payload) > size:
        raise ValueError(f"{len(payload)} bytes do not fit the {size} that all hosts send")
    if jax.process_count() == 1:
        return [payload.rstrip(b"\0")]
    from jax.experimental import multihost_utils

    mine = np.frombuffer(payload.ljust(size, b"\0"), np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(mine)).astype(np.uint8)
    return [row.tobytes().rstrip(b"\0") for row in rows]


def batch_digest(batch: LearnerBatch) -> bytes:
    """SHA-256 of all arrays of a batch that is still in host memory, with their shapes."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves(batch):
        array = np.ascontiguousarray(array)
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def agree(digest: bytes, *, problem: str | None = None) -> None:
    """Returns on all hosts if each is well and holds the same; else raises on all of them.

    Call it before each update: an update that only some hosts enter would hang.

    Args:
      digest: 32 bytes that stand for what this host is about to do, such as `batch_digest`.
      problem: why this host cannot go on; None if it can.

    Raises:
      RuntimeError: a host has a problem, or another digest than host 0; the message names it.
    """
    # The digest in hex, since it may end in zero bytes.
    mine = digest[:32].hex().encode().ljust(64) + (problem or "").encode()[:_PROBLEM_BYTES]
    reports = gather(mine, size=64 + _PROBLEM_BYTES)
    faults = []
    for host, row in enumerate(reports):
        if text := row[64:].decode(errors="replace"):
            faults.append(f"host {host}: {text}")
        elif row[:64] != reports[0][:64]:
            faults.append(f"host {host}: holds another batch than host 0")
    if faults:
        raise RuntimeError(f"the update was not started; {'; '.join(faults)}")
