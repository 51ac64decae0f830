"""What RL adds on the quickstart's world, against supervised training of equal processor time.

    python tests/bench/quickstart_seeds.py --out runs/seeds [--seeds 0 1 2 3 4] [--jobs 2]

For each seed: the quickstart (warm-up, then RL), and a control that goes on with supervised
training on the same warm-up pairs for about the processor time of the whole RL run, evaluations and
compilation included. Prints the table of README.md. A seed that is done is not run again.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def train(workdir: Path, *options: str) -> dict:
    """Runs the program; returns its result with `cpu`, processor seconds of all its processes."""
    done = workdir / "bench.json"
    if done.is_file():
        return json.loads(done.read_text())
    command = [sys.executable, "-m", "jax_t2sql.train", "--config", "configs/quickstart.py"]
    command += ["--workdir", str(workdir), *options]
    with open(workdir.with_suffix(".log"), "w") as log:
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed; see {workdir.with_suffix('.log')}")
    result = json.loads((workdir / "result.json").read_text())
    result["cpu"] = usage.ru_utime + usage.ru_stime
    result["wall"] = time.monotonic() - started
    done.write_text(json.dumps(result))
    return result


def control_steps(workdir: Path, cpu: float) -> int:
    """Supervised steps that take `cpu` seconds in all, by the pace of the run's own warm-up."""
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    warm = [row for row in rows if row["phase"] == "warmup"]
    early, last = warm[len(warm) // 3], warm[-1]
    pace = (last["cpu_seconds"] - early["cpu_seconds"]) / (last["step"] - early["step"])
    return last["step"] + round((cpu - last["cpu_seconds"]) / pace)


def one_seed(out: Path, seed: int) -> dict:
    """RL and control of one seed."""
    rl = train(out / f"rl-{seed}", "--seed", str(seed))
    steps = control_steps(out / f"rl-{seed}", rl["cpu"])
    options = ("--seed", str(seed), "--rl.steps", "0", "--warmup.steps", str(steps))
    control = train(out / f"control-{seed}", *options)
    return {"seed": seed, "rl": rl, "control": control, "control_steps": steps}


def main() -> None:
    """Runs all seeds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=1, help="seeds run side by side")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda seed: one_seed(args.out.resolve(), seed), args.seeds))
    print(
        "| seed | warm-up | after RL | gain | seen templates | new templates | control |"
        " CPU s RL | CPU s control |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        rl, control = row["rl"], row["control"]
        before, after = rl["parts"]["before"], rl["parts"]["after"]
        parts = [
            f"{before[name]['accuracy']:.1%} → {after[name]['accuracy']:.1%}"
            for name in ("seen", "unseen")
        ]
        print(
            f"| {row['seed']} | {rl['before']:.1%} | {rl['after']:.1%} |"
            f" +{100 * (rl['after'] - rl['before']):.1f} | {parts[0]} | {parts[1]} |"
            f" {control['after']:.1%} | {rl['cpu']:.0f} | {control['cpu']:.0f} |"
        )
    mean = {
        name: sum(row[kind][key] for row in rows) / len(rows)
        for name, kind, key in (
            ("before", "rl", "before"),
            ("after", "rl", "after"),
            ("control", "control", "after"),
            ("cpu", "rl", "cpu"),
            ("cpu_control", "control", "cpu"),
        )
    }
    print(
        f"| mean | {mean['before']:.1%} | {mean['after']:.1%} |"
        f" +{100 * (mean['after'] - mean['before']):.1f} | | | {mean['control']:.1%} |"
        f" {mean['cpu']:.0f} | {mean['cpu_control']:.0f} |"
    )


if __name__ == "__main__":
    main()
