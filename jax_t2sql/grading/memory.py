"""How much memory a worker may have: what the machine can spare, divided by the workers."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# More helps no query that deserves an answer; less starves Python, SQLite and a gold result of the
# size that predictions may have.
_MOST, _LEAST = 4 * 2**30, 512 * 2**20
# The rest is for the program that owns the workers, and for everybody else.
_SHARE = 0.5


def worker_memory(workers: int) -> int:
    """Bytes for each of so many workers: half of the machine's memory in all, within bounds."""
    return int(min(max(machine_memory() * _SHARE / workers, _LEAST), _MOST))


def machine_memory(root: Path = Path("/")) -> int:
    """Bytes of memory that this process can have at most: the machine's, or its container's.

    Args:
      root: where the system's own files are.
    """
    return min(_physical(), *_container_limits(root))


def _physical() -> int:
    with contextlib.suppress(AttributeError, ValueError, OSError):  # no such value on some systems
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def _container_limits(root: Path) -> Iterator[int]:
    """What the control groups of this process allow, those around them included.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html
    """
    yield sys.maxsize
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            mount, name = ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            if not controllers:
                mount, name = "sys/fs/cgroup", "memory.max"
            parts = Path(group.lstrip("/")).parts
            for depth in range(len(parts) + 1):
                file = root.joinpath(mount, *parts[:depth], name)
                with contextlib.suppress(OSError, ValueError):  # "max", or not ours to see
                    yield int(file.read_text())
