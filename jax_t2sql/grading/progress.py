"""A few bytes of memory that a worker and its owner share: what the worker is at, and since when.

Written for every query, so it must cost less than a message; and readable after the worker's death.
"""

import contextlib
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from jax_t2sql.grading.requests import Stage

_STAGES = get_args(Stage)
_WORK = struct.Struct("@qqd")  # serial of the request, index of its stage, when that began
_CUT = struct.Struct("@q")  # from this request on, leave the rest of the batch undone
_CUT_AT = 32
_SIZE = 64


@dataclass(frozen=True)
class Work:
    """What a worker is at: the serial number of a request, its stage, and for how many seconds."""

    serial: int
    stage: Stage
    seconds: float


class Progress:
    """One worker's shared memory. The worker begins stages; its owner looks, and may cut."""

    def __init__(self, descriptor: int) -> None:
        """Maps the memory; the descriptor may be closed afterwards."""
        self._memory = mmap.mmap(descriptor, _SIZE)

    def begin(self, serial: int, stage: Stage) -> None:
        """Notes that a stage begins now."""
        # A monotonic clock is the machine's, not the process's, so the owner's agrees.
        _WORK.pack_into(self._memory, 0, serial, _STAGES.index(stage), time.monotonic())

    def now(self) -> Work:
        """What was noted last."""
        serial, stage, since = _WORK.unpack_from(self._memory, 0)
        return Work(serial, _STAGES[stage], time.monotonic() - since)

    def cut(self, serial: int) -> None:
        """Asks the worker to leave this request, and those of its batch that follow, undone."""
        _CUT.pack_into(self._memory, _CUT_AT, serial)

    def is_cut(self, first: int, serial: int) -> bool:
        """Whether this request, of the batch with that first one, is to be left undone."""
        return first <= _CUT.unpack_from(self._memory, _CUT_AT)[0] <= serial


@contextlib.contextmanager
def shared_memory() -> Iterator[int]:
    """The descriptor of new memory for a Progress, to be handed to the worker. No name, no file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("progress")
    else:  # a file without a name
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, _SIZE)
        yield descriptor
    finally:
        os.close(descriptor)
