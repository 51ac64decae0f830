"""Many items, some of them hostile, with workers killed meanwhile: is anything lost or left?

    python tests/grading/soak.py [--items 10000] [--hostile 0.05] [--workers 2] [--kills 20]

Prints what became of the items, and exits with 1 if an item went wrong or anything leaked.
"""

import argparse
import contextlib
import gc
import json
import os
import random
import runpy
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from jax_t2sql.grading import GradeJob, GradingPool
from jax_t2sql.sql import Limits

CORPUS = runpy.run_path(str(Path(__file__).with_name("hostile.py")))["CORPUS"]
GOLD = "SELECT name FROM item"
SCRIPT = """
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'ink', 4.0), (3, 'pad', NULL);
CREATE TABLE gone (id INTEGER);
"""


def exists(pid: int) -> bool:
    """Whether a process is there, ended but not waited for included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def handles() -> list[str]:
    """The open descriptors of this process, where the system tells."""
    folder = Path("/proc/self/fd")
    return sorted(os.listdir(folder)) if folder.is_dir() else []


class Killer(threading.Thread):
    """Kills a worker again and again, as a machine short of memory does."""

    def __init__(self, pool: GradingPool, kills: int) -> None:
        super().__init__(daemon=True)
        self.seen: set[int] = set(pool.worker_pids)
        self.kills = 0
        self._pool, self._wanted = pool, kills
        self._done = threading.Event()
        self._random = random.Random(1)

    def run(self) -> None:
        while not self._done.wait(0.05):
            pids = self._pool.worker_pids
            self.seen.update(pids)
            if pids and self.kills < self._wanted and self._random.random() < 0.1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(pids), signal.SIGKILL)
                    self.kills += 1

    def finish(self) -> None:
        """Ends the thread."""
        self._done.set()
        self.join()


def make_shop(folder: Path) -> Path:
    """A small database."""
    path = folder / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(SCRIPT)
    connection.close()
    return path


def soak(
    folder: Path, *, items: int, hostile: float, workers: int, kills: int, seconds: float = 0.1
) -> dict:
    """Grades that many items and tells what became of them and what is left."""
    path = make_shop(folder)
    before = path.read_bytes(), sorted(folder.rglob("*"))
    generator = random.Random(0)
    jobs, expected = [], []
    for i in range(items):
        if generator.random() < hostile:
            attack = generator.choice(CORPUS)
            jobs.append(GradeJob(path, GOLD, f"{attack.sql}\n-- {i}"))
            expected.append((attack.name, attack.statuses))
        elif generator.random() < 0.5:
            jobs.append(GradeJob(path, GOLD, f"SELECT name FROM item WHERE id < {i + 4}"))
            expected.append(("right", ("equal",)))
        else:
            jobs.append(GradeJob(path, GOLD, f"SELECT {i}, name FROM item"))
            expected.append(("wrong", ("different",)))

    gc.collect()  # what others have left open must not close meanwhile
    threads, open_before = threading.active_count(), handles()
    start = time.monotonic()
    with GradingPool(workers, limits=Limits(seconds=seconds), max_waiting=500) as pool:
        killer = Killer(pool, kills)
        killer.start()
        verdicts = pool.grade_many(jobs)
        killer.finish()
        workers_after = len(pool.worker_pids)
    counts = Counter(verdict.status for verdict in verdicts)
    # With so short a limit a busy machine may time a hostile query out before all else. And it may
    # be at one query that both of two kills strike; its twins, which are run once, share its fate.
    crashed = {
        name
        for (name, _), verdict in zip(expected, verdicts, strict=True)
        if verdict.status == "crashed"
    }
    also = {"timeout"} | ({"crashed"} if len(crashed) <= killer.kills // 2 else set())
    wrong = [
        (name, verdict.status, verdict.detail)
        for (name, statuses), verdict in zip(expected, verdicts, strict=True)
        if verdict.status not in statuses
        and (name in ("right", "wrong") or verdict.status not in also)
    ]
    return {
        "items": len(verdicts),
        "seconds": round(time.monotonic() - start, 1),
        "verdicts": dict(counts),
        "wrong": wrong,
        "killed": killer.kills,
        "processes_seen": len(killer.seen),
        "workers_at_the_end": workers_after,
        "processes_left": sorted(filter(exists, killer.seen)),
        # Fewer than before is no leak: what earlier work had open may end meanwhile.
        "threads_left": max(0, threading.active_count() - threads),
        "handles_left": max(0, len(handles()) - len(open_before)),
        "files_changed": (path.read_bytes(), sorted(folder.rglob("*"))) != before,
    }


def faults(report: dict) -> dict:
    """What is wrong, lost or left; empty if nothing is."""
    names = ("wrong", "processes_left", "threads_left", "handles_left", "files_changed")
    return {name: report[name] for name in names if report[name]}


def main() -> None:
    """Runs it in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--hostile", type=float, default=0.05, help="share of hostile items")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        os.environ["TMPDIR"] = os.environ["SQLITE_TMPDIR"] = str(scratch)
        report = soak(Path(folder), **vars(args))
    print(json.dumps(report, indent=1))
    sys.exit(bool(faults(report)))


if __name__ == "__main__":
    main()
