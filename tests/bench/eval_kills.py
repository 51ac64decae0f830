"""An evaluation killed at random moments ends with the same figures as one that was left alone.

    python tests/bench/eval_kills.py [--data DIR] [--kills 20] [--seed 0]

Evaluates public predictions for Spider-dev under five graders. Once unbroken; then time and again,
each time killed (SIGKILL) after a random part of that run's time, until it has been killed often
enough; where one comes to its end in spite of that, the next begins anew. Compares answers,
executions, verdicts and results of every folder, and prints how far each life came.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("answers.jsonl", "executions.jsonl", "verdicts.jsonl")
# R-VES measures time, so it is not among them.
GRADERS = "set,multiset,list,question,bird"


def command(data: Path, out: Path) -> list[str]:
    predictions = data / "test_suite" / "spider_dev_predictions.jsonl"
    return [
        *(sys.executable, "-m", "jax_t2sql.eval", "--suite", "spider-dev"),
        *("--benchmarks", str(data), "--policy", f"file:{predictions}"),
        *("--grader", GRADERS, "--out", str(out)),
    ]


def run(data: Path, out: Path, seconds: float | None = None) -> bool:
    """Whether it came to its end; killed after so many seconds."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(data, out), cwd=ROOT, start_new_session=True, **quiet)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return False
    if process.returncode:
        raise SystemExit(f"the evaluation failed with status {process.returncode}")
    return True


def lines(out: Path) -> dict[str, int]:
    return {
        name: (out / name).read_bytes().count(b"\n") if (out / name).exists() else 0
        for name in FILES
    }


def contents(out: Path) -> dict:
    """All that must be equal; rows in any order."""
    rows = {name: sorted((out / name).read_text().splitlines()) for name in FILES}
    return rows | {"results.json": json.loads((out / "results.json").read_text())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("JAX_T2SQL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    moments = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, torn = Path(folder) / "whole", Path(folder) / "torn"
        started = time.monotonic()
        run(args.data, whole)
        unbroken = time.monotonic() - started
        kills = ended = 0
        same = True
        while kills < args.kills:
            # Once all is done a run is short: then it starts anew, so that kills land everywhere.
            if run(args.data, torn, moments.random() * unbroken):
                same &= contents(torn) == contents(whole)
                torn = Path(folder) / f"torn{kills}-{ended}"
                ended += 1
                continue
            kills += 1
            print(f"kill {kills:2d}: {lines(torn)}", flush=True)
        run(args.data, torn)
        same &= contents(torn) == contents(whole)
        print(f"after {kills} kills: {'the same' if same else 'NOT the same'} as unbroken")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
