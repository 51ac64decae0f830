"""How long hostile queries take beyond their limit, one after the other.

    python tests/bench/hostile.py [--seconds 1.0]

Prints the machine's load, what became of the queries, the latest of them, and every verdict that is
not among those it may have.
"""

import argparse
import os
import runpy
import tempfile
import time
from collections import Counter
from pathlib import Path

from jax_t2sql.grading import GradingPool
from jax_t2sql.sql import Limits

GRADING = Path(__file__).resolve().parents[1] / "grading"


def main() -> None:
    """Runs them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="the time limit")
    seconds = parser.parse_args().seconds
    soak = runpy.run_path(str(GRADING / "soak.py"))
    statuses: Counter = Counter()
    beyond: list[tuple[float, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = soak["make_shop"](Path(folder))
        with GradingPool(1, limits=Limits(seconds=seconds)) as pool:
            for attack in soak["CORPUS"]:
                pool.execute(path, "SELECT 1").result()  # the worker is there, and its own
                start = time.perf_counter()
                verdict = pool.grade(path, soak["GOLD"], attack.sql).result()
                beyond.append((time.perf_counter() - start - seconds, attack.name))
                statuses[verdict.status] += 1
                if verdict.status not in attack.statuses:
                    print(f"unexpected: {attack.name}: {verdict.status} {verdict.detail}")
    print(f"{sum(statuses.values())} queries, limit {seconds:g} s, load {os.getloadavg()[0]:.1f}")
    print(", ".join(f"{count} {status}" for status, count in statuses.most_common()))
    late = sum(excess > 1 for excess, _ in beyond)
    print(f"{late} took more than the limit and one second; the latest, beyond the limit:")
    for excess, name in sorted(beyond, reverse=True)[:5]:
        print(f"  {excess:+.2f} s {name}")


if __name__ == "__main__":
    main()
