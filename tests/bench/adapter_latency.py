"""From an adapter's publish to tokens by it: ``python tests/bench/adapter_latency.py [ROUNDS]``.

A learner on a local bus, one sampler process and one real vLLM server (JAX_T2SQL_VLLM_VENV, which
launch/install_vllm_cpu.sh makes) with a tiny model. Each round publishes a new version and offers a
task; timed is until the sampler says that it serves the version, loaded and proven, and until the
group is on the bus whose every token was sampled with it: later than the first token, so a bound.
Prints the median of ROUNDS (20).
"""

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from conftest import make_fleet  # noqa: E402

from jax_t2sql.bus import NewTask, open_store  # noqa: E402


def start_sampler(folder, python, served):
    """A sampler with a server of its own; `served` gets the moment of each version."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jax_t2sql.sample", "--bus", str(folder / "bus")]
    command += ["--policy", f"vllm:http://127.0.0.1:{port}", "--sql-workers", "1", "--groups", "3"]
    command += ["--spawn-vllm", "--vllm-python", python, "--vllm-log", str(folder / "vllm.log")]
    command.append("--vllm-args=--dtype float32 --enforce-eager --max-num-seqs 16")
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env=environment,
    )  # fmt: skip

    def read():
        for line in process.stdout:
            if match := re.match(r"serving version (\d+)", line):
                served[int(match[1])] = time.monotonic()
            elif not line.startswith("waiting"):
                print(f"  {line.rstrip()}", flush=True)

    threading.Thread(target=read, daemon=True).start()
    return process


def wait_for_group(bus, process):
    while not (ready := bus.ready_groups()):
        if process.poll() is not None:
            sys.exit("the sampler ended; see above")
        time.sleep(0.01)
    return ready


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    python = Path(os.environ.get("JAX_T2SQL_VLLM_VENV", ROOT / ".venv-vllm")) / "bin" / "python"
    if not python.is_file():
        sys.exit(f"no vLLM at {python}: run launch/install_vllm_cpu.sh")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = make_fleet(folder)
        bus = fleet.lead(open_store(folder / "bus"), groups_per_batch=1, max_staleness=0)
        served, moments, published = {}, [], 0.0
        process = start_sampler(folder, str(python), served)
        try:
            for number in range(rounds + 1):
                task = NewTask(problem=f"q{number % 8}", group_size=1, seed=number)
                bus.issue([task], cursor={})
                ready = wait_for_group(bus, process)
                arrived = time.monotonic()
                if number:
                    moments.append((served[bus.version] - published, arrived - published))
                time.sleep(3.0)  # as long as an update: by now the sampler looks at its slowest
                bus.append_batch(ready, pack_seed=0)
                bus.publish(fleet.adapters[number % 3 + 1])
                published = time.monotonic()
            bus.end(reason="done")
            process.wait(60)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    for what, at in (("served and proven", 0), ("first group", 1)):
        times = [moment[at] for moment in moments]
        print(f"{what}: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")


if __name__ == "__main__":
    main()
