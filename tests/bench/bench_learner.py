"""Our learner against torch + PEFT and Tunix, one update at a time, in turns, in one run.

    python tests/bench/bench_learner.py [--shape rows|group|check] [--repeats 5] [--json FILE]
        [--tunix-python VENV/bin/python]

Each contestant is a process of its own that has compiled and warmed up before the first round. A
round is one update of each, one after the other, then a large matrix product: what the machine
gives at that moment. Printed are medians over rounds of CPU-seconds, of seconds, and of the ratios
within a round; ratios and CPU-seconds survive a busy machine, seconds do not. "share of peak" is
the plain count of arithmetic (`shapes.plain_gflop`) per CPU-second over that of the product.

Shapes: "rows" is 16 sequences of 128 prompt + 384 sampled tokens, "group" 16 rollouts of 192 tokens
of one prompt of 2,048; a Qwen3 of 12.6 million parameters and a vocabulary of 8,192 or 32,768, LoRA
of rank 32 on all linear layers, float32.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "learner_peers"
sys.path.insert(0, str(HERE))

from shapes import SHAPES, Shape, plain_gflop  # noqa: E402

PEAK_GFLOP = 4 * 2 * 2_048**3 / 1e9


class Contestant:
    """A worker process; `update` makes it do one update and tells what that took."""

    def __init__(self, python: str, *arguments: str):
        env = {**os.environ, "PYTHONPATH": str(HERE.parents[2]), "JAX_PLATFORMS": "cpu"}
        self.process = subprocess.Popen(
            [python, HERE / arguments[0], *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def update(self) -> dict:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[1]} died; its message is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def contestants(shape: Shape, tunix_python: str | None) -> dict[str, Contestant]:
    """Micro-batches are those that each does best with on this shape."""
    name = shape.name
    if shape.shared:
        running = {
            "ours": Contestant(sys.executable, "ours_worker.py", name, "4", "shared"),
            "ours_unshared": Contestant(sys.executable, "ours_worker.py", name, "1", "unshared"),
        }
    else:
        running = {"ours": Contestant(sys.executable, "ours_worker.py", name, "2", "unshared")}
    peft_rows = "2" if name == "group" else str(shape.rows)
    running["peft"] = Contestant(sys.executable, "peft_worker.py", name, peft_rows)
    if tunix_python:
        tunix_rows = "1" if name == "group" else str(shape.rows)
        running["tunix"] = Contestant(tunix_python, "tunix_worker.py", name, tunix_rows)
    running["peak"] = Contestant(sys.executable, "peak_worker.py")
    return running


def measure(shape: Shape, repeats: int, tunix_python: str | None) -> dict:
    running = contestants(shape, tunix_python)
    rounds: list[dict[str, dict]] = []
    try:
        first = {name: contestant.update() for name, contestant in running.items()}
        for number in range(repeats):
            rounds.append({name: contestant.update() for name, contestant in running.items()})
            spent = ", ".join(f"{name} {r['cpu']:.2f}" for name, r in rounds[-1].items())
            print(f"round {number + 1}: CPU-seconds {spent}; load {os.getloadavg()[0]:.1f}",
                  flush=True)  # fmt: skip
    finally:
        for contestant in running.values():
            contestant.close()

    def median(of) -> float:
        return statistics.median(of(one) for one in rounds)

    result = {"shape": shape.name, "repeats": repeats, "load": os.getloadavg(), "contestants": {}}
    for name in running:
        if name == "peak":
            continue
        ours_shared = shape.shared and name == "ours"
        gflop = plain_gflop(shape, shared=ours_shared)

        def share(one, name=name, gflop=gflop):
            return (gflop / one[name]["cpu"]) / (PEAK_GFLOP / one["peak"]["cpu"])

        result["contestants"][name] = {
            "cpu_seconds": median(lambda one, n=name: one[n]["cpu"]),
            "seconds": median(lambda one, n=name: one[n]["seconds"]),
            "tokens_per_cpu_second": shape.tokens / median(lambda one, n=name: one[n]["cpu"]),
            "ours_faster_cpu": median(lambda one, n=name: one[n]["cpu"] / one["ours"]["cpu"]),
            "ours_faster_wall": median(
                lambda one, n=name: one[n]["seconds"] / one["ours"]["seconds"]
            ),
            "plain_gflop": gflop,
            "share_of_peak": median(share),
            "first_update_cpu_seconds": first[name]["cpu"],
            "peak_rss_mib": max(one[name]["rss_mib"] for one in rounds),
        }
    result["peak_gflop_per_cpu_second"] = PEAK_GFLOP / median(lambda one: one["peak"]["cpu"])
    result["peak_gflop_per_second"] = PEAK_GFLOP / median(lambda one: one["peak"]["seconds"])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tunix-python", help="Python of an environment with google-tunix")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    result = measure(SHAPES[options.shape], options.repeats, options.tunix_python)
    print(f"matrix product: {result['peak_gflop_per_cpu_second']:.0f} GFLOP a CPU-second")
    print(
        f"{'':14}{'CPU-s':>8}{'s':>8}{'x ours, CPU':>13}{'x ours, s':>11}{'of peak':>9}{'MiB':>7}"
    )
    for name, row in result["contestants"].items():
        print(
            f"{name:14}{row['cpu_seconds']:8.2f}{row['seconds']:8.2f}{row['ours_faster_cpu']:13.2f}"
            f"{row['ours_faster_wall']:11.2f}{row['share_of_peak']:9.0%}{row['peak_rss_mib']:7.0f}"
        )
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
