"""Do the recipe's claims hold on the quickstart's world? Trains, measures, prints a table.

    python tests/bench/claims --out runs/claims [--only a,c] [--seeds 3] [--jobs 2]

Claims: (a) wrong golds, (b) lenient truncation, (c) equivalence reward, (d) hints, (e) learnability
weighting, (f) staleness. Each compares runs of the same start, seed by seed. Kill it at any moment:
the same command goes on, within a run from its last checkpoint. OUT/claims.md and OUT/claims.json
are written anew after every run that ends. Nothing is tuned on the held-out questions: all settings
are in arms.py.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import arms
import table
from arms import CLAIMS, WARMS, Arm, Paths, Size
from measure import measure

from data_pipelines.world import build_world
from jax_t2sql.tracking import read_metrics

ROOT = Path(__file__).resolve().parents[3]
# Rows of another world, whose databases have the same schemas.
_SECOND_SEED = 1000
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


def paths_of(out: Path, seed: int) -> Paths:
    """Where a seed's files lie."""
    folder = out / f"seed-{seed}"
    return Paths(folder / "start", out / f"second-{seed}" / "databases", folder / "made")


def start_job(out: Path, seed: int, size: Size) -> Job:
    """World, base model and the plain warm-up."""
    options = ("--seed", str(seed), "--rl.steps", "0", "--warmup.steps", str(size.warmup))
    return Job(f"start {seed}", paths_of(out, seed).start, options + _final(size), size.warmup)


def warm_job(name: str, out: Path, seed: int, size: Size) -> Job:
    """Another warm-up of the same base model."""
    paths, warm = paths_of(out, seed), WARMS[name]
    options = (
        *("--model", str(paths.start / "base"), "--data", str(paths.world / "train.jsonl")),
        *("--data.warmup", str(warm.pairs(paths)), "--warmup.steps", str(size.warmup)),
        *("--data.eval", str(paths.world / "heldout.jsonl"), "--rl.steps", "0"),
        *_common(paths, seed, size),
        *warm.options(paths),
    )
    return Job(
        f"warm-up {name} {seed}", out / f"seed-{seed}" / f"warm-{name}", options, size.warmup
    )


def arm_job(arm: Arm, out: Path, seed: int, size: Size) -> Job:
    """The reinforcement learning of an arm."""
    paths = paths_of(out, seed)
    warm = paths.start if arm.warm == "plain" else out / f"seed-{seed}" / f"warm-{arm.warm}"
    options = (
        *("--model", str(warm / "model"), "--data", str(arm.train(paths))),
        *("--data.eval", str(arm.heldout(paths)), "--rl.steps", str(size.steps)),
        *("--rl.groups", str(size.groups), "--warmup.steps", "0"),
        *("--eval.every", str(max(1, size.steps // 6))),
        *_common(paths, seed, size),
        *arm.options(paths),
    )
    workdir = out / f"seed-{seed}" / arm.name.replace(" ", "-")
    return Job(f"{arm.name} {seed}", workdir, options, size.steps, arm.lag)


def _common(paths: Paths, seed: int, size: Size) -> tuple[str, ...]:
    return (
        *("--databases", str(paths.databases), "--seed", str(seed), "--adapter.kind", "full"),
        *("--prompt.style", "question", "--sampler.rows", "384", "--grading.workers", "1"),
        *_final(size),
    )


def _final(size: Size) -> tuple[str, ...]:
    return () if size.heldout is None else ("--eval.final-questions", str(size.heldout))


def main() -> int:
    """Runs what is left and prints the table."""
    args = parse()
    size = Size(steps=args.steps, groups=args.groups, warmup=args.warmup, heldout=args.heldout)
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    lock = open(out / "lock", "w")  # noqa: SIM115 held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"error: another process works in {out}; wait for it, or give --out", file=sys.stderr)
        return 2
    kept = out / "size.json"
    if kept.is_file() and json.loads(kept.read_text()) != vars(size):
        print(
            f"error: {out} holds runs of {kept.read_text().strip()}, not of {vars(size)}; use the"
            " same options, or another --out",
            file=sys.stderr,
        )
        return 2
    kept.write_text(json.dumps(vars(size)) + "\n")
    runner = Runner(out, args.jobs)

    def interrupt(*_: object) -> None:
        runner.stop()
        raise KeyboardInterrupt

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, interrupt)
    chosen = [claim for claim in CLAIMS if claim.letter in args.only]
    jobs = plan(chosen, out, range(args.seeds), size)
    watch = threading.Thread(target=progress, args=(runner, jobs), daemon=True)
    watch.start()
    try:
        for seed in range(args.seeds):
            run_seed(runner, chosen, seed, size)
            report(chosen, out, args.seeds, size)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(report(chosen, out, args.seeds, size))
    print(f"written to {out / 'claims.md'} and {out / 'claims.json'}")
    return 0


def plan(chosen, out: Path, seeds, size: Size) -> list[Job]:
    """All runs, each once."""
    jobs: dict[str, Job] = {}
    for seed in seeds:
        wanted = [start_job(out, seed, size)]
        for claim in chosen:
            for arm in claim.arms:
                if arm.warm != "plain":
                    wanted.append(warm_job(arm.warm, out, seed, size))
                wanted.append(arm_job(arm, out, seed, size))
        jobs |= {job.name: job for job in wanted}
    return list(jobs.values())


def run_seed(runner: Runner, chosen, seed: int, size: Size) -> None:
    """One seed: its start, its question files, its warm-ups, its arms."""
    out, paths = runner.out, paths_of(runner.out, seed)
    runner.run(start_job(out, seed, size))
    build_world(paths.second.parent, seed=seed + _SECOND_SEED, warmup=30, train=30, heldout=30)
    arms.make_files(paths, {claim.letter for claim in chosen}, seed=seed)
    every = {arm.name: arm for claim in chosen for arm in claim.arms}
    warms = sorted({arm.warm for arm in every.values()} - {"plain"})
    with ThreadPoolExecutor(runner.workers) as pool:
        list(pool.map(lambda name: runner.run(warm_job(name, out, seed, size)), warms))
        list(pool.map(lambda arm: runner.run(arm_job(arm, out, seed, size)), every.values()))


def report(chosen, out: Path, seeds: int, size: Size) -> str:
    """Measures what is done and writes the table."""
    results: dict = defaultdict(lambda: defaultdict(dict))
    for claim in chosen:
        for arm in claim.arms:
            for seed in range(seeds):
                job = arm_job(arm, out, seed, size)
                if job.is_done:
                    results[claim.letter][arm.name][seed] = _measured(
                        claim.letter, arm, job, out, seed
                    )
    words = (
        f"{size.steps} CISPO steps of {size.groups} questions × 8 after a warm-up of {size.warmup}"
        f" steps; {seeds} seeds; Wilson intervals over the answers of all seeds, differences with"
        " Student's t over seeds."
    )
    return table.write(results, out, size=words)


def _measured(letter: str, arm: Arm, job: Job, out: Path, seed: int) -> dict:
    """A run's measures; kept, since some take a while."""
    path = job.workdir / f"claim-{letter}.json"
    if not path.is_file():
        paths = paths_of(out, seed)
        found = measure(letter, job.workdir, arm.heldout(paths), paths.second)
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


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


def parse() -> argparse.Namespace:
    """The command line."""
    letters = [claim.letter for claim in CLAIMS]
    parser = argparse.ArgumentParser(
        prog="python tests/bench/claims",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), help="folder of all runs")
    parser.add_argument("--only", default=",".join(letters), help="claims, such as a,c")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each arm")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one a core")
    parser.add_argument("--steps", type=int, default=Size.steps, help="RL steps of a run")
    parser.add_argument("--groups", type=int, default=Size.groups, help="questions a step")
    parser.add_argument("--warmup", type=int, default=Size.warmup, help="supervised steps before")
    parser.add_argument("--heldout", type=int, help="held-out questions; all by default")
    args = parser.parse_args()
    args.only = [part.strip() for part in args.only.split(",")]
    if unknown := set(args.only) - set(letters):
        parser.error(f"--only {','.join(sorted(unknown))}: claims are {', '.join(letters)}")
    for name in ("seeds", "jobs", "steps", "groups", "warmup"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}; it must be at least 1")
    return args


if __name__ == "__main__":
    sys.exit(main())
