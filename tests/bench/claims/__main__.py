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
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import arms
import table
from arms import CLAIMS, WARMS, Arm, Paths, Size
from measure import measure
from runner import Job, Runner, progress

from data_pipelines.world import build_world

# Rows of another world, whose databases have the same schemas.
_SECOND_SEED = 1000


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
        writing = threading.Lock()

        def finished() -> None:
            with writing:
                report(chosen, out, args.seeds, size)

        for seed in range(args.seeds):
            run_seed(runner, chosen, seed, size, finished)
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


def run_seed(runner: Runner, chosen, seed: int, size: Size, finished: Callable[[], None]) -> None:
    """One seed: its start, its question files, its warm-ups, its arms; tells of each that ends."""
    out, paths = runner.out, paths_of(runner.out, seed)
    runner.run(start_job(out, seed, size))
    build_world(paths.second.parent, seed=seed + _SECOND_SEED, warmup=30, train=30, heldout=30)
    arms.make_files(paths, {claim.letter for claim in chosen}, seed=seed)
    every = {arm.name: arm for claim in chosen for arm in claim.arms}
    warms = sorted({arm.warm for arm in every.values()} - {"plain"})

    def run_arm(arm: Arm) -> None:
        runner.run(arm_job(arm, out, seed, size))
        finished()

    with ThreadPoolExecutor(runner.workers) as pool:
        list(pool.map(lambda name: runner.run(warm_job(name, out, seed, size)), warms))
        list(pool.map(run_arm, every.values()))


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
