"""`train`, two samplers and one real vLLM server, which is killed in the middle."""

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jax_t2sql.bus import Batch, Log, Publish, open_store
from jax_t2sql.bus.audit import audit
from jax_t2sql.bus.groups import decode_group
from jax_t2sql.bus.intake import read_group
from jax_t2sql.tracking import read_metrics

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parent.parent
STEPS, GROUPS, MAX_STALENESS, KILL_AT = 20, 2, 2, 8


class Process:
    """One of our programs; `lines` grows as it speaks, each with the moment."""

    def __init__(self, program, *options):
        command = [sys.executable, "-m", f"jax_t2sql.{program}", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip()))

    @property
    def said(self):
        return "\n".join(line for _, line in self.lines)


def server_process(port):
    """The process id of the server on a port, by its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"vllm.entrypoints.openai.api_server" in words and str(port).encode() in words:
            return int(path.parent.name)
    return None


def published(bus):
    """Versions and the moments at which they came to be in the log."""
    found = {}
    if (bus / "log").is_dir():
        for entry in Log.open(open_store(bus)).entries:
            if isinstance(entry, Publish):
                path = bus / "log" / f"{entry.index:08d}.json"
                found.setdefault(entry.step, path.stat().st_mtime)
    return found


def test_twenty_steps_with_two_samplers_and_a_server_that_is_killed(
    vllm_python, fleet, tmp_path, capsys
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    workdir, bus = tmp_path / "run", tmp_path / "run" / "bus"
    learner = Process(
        "train",
        *("--config", "configs/quickstart.py", "--workdir", str(workdir)),
        *("--model", str(fleet.root / "model"), "--databases", str(fleet.root)),
        *("--data", str(fleet.root / "train.jsonl"), "--data.eval", str(fleet.root / "eval.jsonl")),
        *"--prompt.style question --prompt.max-context 256 --prompt.max-tokens 32".split(),
        *"--adapter.rank 8 --adapter.alpha 16 --optimizer.lr 1e-3".split(),
        # Enough for some answers to end and others not: a reward that differs.
        *"--warmup.steps 12 --warmup.lr 1e-2 --warmup.batch 16".split(),
        *f"--rl.steps {STEPS} --rl.groups {GROUPS} --rl.group-size 4".split(),
        *f"--rl.max-staleness {MAX_STALENESS} --eval.every 10 --grading.workers 1".split(),
        *"--fleet.workers 2 --fleet.groups-in-flight 3".split(),
    )
    common = ("--bus", str(bus), "--policy", f"vllm:http://127.0.0.1:{port}")
    common += ("--sql-workers", "1", "--groups", "3")
    running = [learner]
    try:
        while 0 not in published(bus):
            assert learner.process.poll() is None, learner.said
            time.sleep(0.2)
        samplers = [
            Process(
                *("sample", *common, "--name", "s1", "--spawn-vllm", "--vllm-python", vllm_python),
                "--vllm-args=--dtype float32 --enforce-eager --max-num-seqs 16",
                *("--vllm-log", str(tmp_path / "vllm.log")),
            ),
            Process("sample", *common, "--name", "s2"),
        ]
        running += samplers
        while max(published(bus)) < KILL_AT:
            for process in running:
                assert process.process.poll() is None, process.said
            time.sleep(0.2)
        os.kill(server_process(port), signal.SIGKILL)
        assert learner.process.wait(1500) == 0, learner.said
        for sampler in samplers:
            assert sampler.process.wait(120) == 0, sampler.said
            sampler.reader.join()
    finally:
        for process in running:
            process.process.terminate()
        for process in running:
            process.process.wait(60)
    assert server_process(port) is None, "the server ends with its sampler"
    store = open_store(bus)
    report = audit(store)
    assert report.faults == [] and report.counts["trained"] == STEPS * GROUPS
    assert "died" in samplers[0].said and "the server answers again" in samplers[1].said
    steps = [row for row in read_metrics(workdir) if row["phase"] == "rl"]
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert max(row["staleness_mean"] for row in steps) <= MAX_STALENESS
    fresh = [row["ratio_mean"] for row in steps if row["staleness_mean"] == 0]
    np.testing.assert_allclose(fresh, 1.0, atol=1e-3)
    last = [e for e in Log.open(store).entries if isinstance(e, Batch)][-1]
    assert {decode_group(read_group(store, g.seq)).sampler for g in last.groups} <= {"s1", "s2"}
    moments, waits = published(bus), []
    for moment, line in (line for sampler in samplers for line in sampler.lines):
        if match := re.match(r"serving version (\d+)", line):
            waits.append(moment - moments[int(match[1])])
    with capsys.disabled():
        print(
            f"\npublish to proven on the server: median {statistics.median(waits):.2f} s of "
            f"{len(waits)}; staleness mean {np.mean([r['staleness_mean'] for r in steps]):.2f}; "
            f"on-policy ratios {len(fresh)}, worst "
            f"{max((abs(r - 1) for r in fresh), default=0):.1e}; "
            f"bus share of a step {np.mean([r['bus_share'] for r in steps]):.1%}, idle "
            f"{np.mean([r['idle_share'] for r in steps]):.0%}"
        )
