"""Runs of the training program side by side, and how far they are."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.tracking import read_metrics

ROOT = Path(__file__).resolve().parents[3]
_POLL_SECONDS = 20.0


@dataclass(frozen=True)
class Job:
    """One run of the training program."""

    name: str
    workdir: Path
    options: tuple[str, ...]
    steps: int
    lag: int = 0

    @property
    def is_done(self) -> bool:
        return (self.workdir / "result.json").is_file()

    def steps_done(self) -> int:
        if self.is_done:
            return self.steps
        return sum(row["phase"] != "eval" for row in read_metrics(self.workdir))


class Runner:
    """Runs jobs side by side, one a core, and says how far they are."""

    def __init__(self, out: Path, workers: int):
        self.out, self.workers = out, workers
        self.cores = sorted(os.sched_getaffinity(0))
        self.running: dict[str, subprocess.Popen] = {}
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._free = list(range(workers))

    def run(self, job: Job) -> None:
        """Runs a job unless it is done.

        Raises:
          SystemExit: it failed, or the program is to end.
        """
        if job.is_done or self.stopped.is_set():
            return
        job.workdir.parent.mkdir(parents=True, exist_ok=True)
        lagged = [str(Path(__file__).with_name("lagged.py")), str(job.lag)]
        command = [sys.executable, *(lagged if job.lag else ("-m", "jax_t2sql.train"))]
        command += ["--config", "configs/quickstart.py", "--workdir", str(job.workdir)]
        log = self.out / "logs" / f"{job.name.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            slot = self._free.pop(0)
        # One core a run: side by side, threads of two runs would only wait for each other.
        mine = {self.cores[slot % len(self.cores)]} if self.workers > 1 else set(self.cores)
        with open(log, "a") as file:
            process = subprocess.Popen(
                [*command, *job.options],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=file,
                stderr=file,
                preexec_fn=lambda: os.sched_setaffinity(0, mine),  # noqa: PLW1509
            )
            self.running[job.name] = process
            status = process.wait()
        del self.running[job.name]
        with self._lock:
            self._free.insert(0, slot)
        if status and not self.stopped.is_set():
            self.stop()
            tail = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise SystemExit(f"{job.name} failed (see {log}): {' '.join(tail)}")

    def stop(self) -> None:
        """Ends all runs; they can be resumed."""
        self.stopped.set()
        for process in list(self.running.values()):
            process.terminate()


def progress(runner: Runner, jobs: list[Job]) -> None:
    """Prints a line a minute: what runs, how much is left, and about how long it takes."""
    total, began = sum(job.steps for job in jobs), time.monotonic()
    at_start, said = sum(job.steps_done() for job in jobs), 0.0
    while not runner.stopped.is_set():
        done = sum(job.steps_done() for job in jobs)
        elapsed = time.monotonic() - began
        if elapsed - said >= 60:
            said = elapsed
            pace = (done - at_start) / elapsed
            left = f"about {(total - done) / pace / 60:.0f} min left" if pace else "left ?"
            names = ", ".join(sorted(runner.running)) or "preparing"
            print(f"{done} of {total} steps  {left}  now: {names}", flush=True)
        runner.stopped.wait(_POLL_SECONDS)
