"""A learner that learns, two samplers and one real vLLM server, which is killed in the middle."""

import dataclasses
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

import jax
import numpy as np
import pytest

from jax_t2sql.batching import make_batch
from jax_t2sql.bus import NewTask, open_store
from jax_t2sql.bus.audit import audit
from jax_t2sql.learner import Trajectory
from jax_t2sql.models import export_adapter
from jax_t2sql.policies import make_rl_learner

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parent.parent
STEPS, GROUPS, MAX_STALENESS, KILL_AT = 20, 2, 2, 8


class Sampler:
    """A sampler process; `lines` grows as it speaks, each with the moment."""

    def __init__(self, *options):
        command = [sys.executable, "-m", "jax_t2sql.sample", "--sql-workers", "1", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

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


def step(fleet, learner, state, groups):
    """One real update. Longer answers are called better, so that there is something to learn."""
    found = []
    for group in groups:
        lengths = np.array([rollout.mask_T.sum() for rollout in group.rollouts], float)
        for rollout, advantage in zip(group.rollouts, lengths - lengths.mean(), strict=True):
            found.append(
                Trajectory(rollout.ids_T, rollout.mask_T, rollout.logprobs_T, float(advantage))
            )
    batch = make_batch(found, fleet.config.learner)
    state, metrics = learner.update(fleet.model.params, state, batch)
    return state, {name: float(value) for name, value in jax.device_get(metrics).items()}


def test_twenty_steps_with_two_samplers_and_a_server_that_is_killed(
    vllm_python, fleet, tmp_path, capsys
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    config = dataclasses.replace(
        fleet.config, optimizer=dataclasses.replace(fleet.config.optimizer, lr=1e-3)
    )
    learner = make_rl_learner(config, fleet.model)
    state = learner.init(fleet.model.params, jax.random.key(0))
    store = open_store(tmp_path / "bus")
    bus = fleet.lead(
        store, adapter=None, groups_per_batch=GROUPS, max_staleness=MAX_STALENESS, max_attempts=50
    )

    def publish():
        directory = tmp_path / f"export{bus.version}-{bus.log.head}"
        export_adapter(directory, fleet.model.config, state.trainable, fleet.spec)
        bus.publish(directory)
        return time.monotonic()

    common = ("--bus", str(tmp_path / "bus"), "--policy", f"vllm:http://127.0.0.1:{port}")
    vllm = "--dtype float32 --enforce-eager --max-num-seqs 16"
    samplers = [
        Sampler(
            *common, "--name", "s1", "--groups", "3", "--spawn-vllm", "--vllm-python", vllm_python,
            f"--vllm-args={vllm}", "--vllm-log", str(tmp_path / "vllm.log"),
        ),
        Sampler(*common, "--name", "s2", "--groups", "3"),
    ]  # fmt: skip
    published, ratios, ages, used = {0: publish()}, [], [], set()
    try:
        deadline = time.monotonic() + 1500
        while bus.version < STEPS:
            assert time.monotonic() < deadline, samplers[0].said + samplers[1].said
            for sampler in samplers:
                assert sampler.process.poll() is None, sampler.said
            if bus.capacity > 0:
                at = bus.state.next_seq
                tasks = [
                    NewTask(problem=f"q{(at + n) % 8}", group_size=4, seed=at + n)
                    for n in range(bus.capacity)
                ]
                bus.issue(tasks, cursor={"at": at})
            bus.expire_claims(still_seconds=60)
            ready = bus.ready_groups()[:GROUPS]
            if len(ready) < GROUPS:
                time.sleep(0.05)
                continue
            ages += [group.staleness(bus.version) for group in ready]
            used |= {group.group.sampler for group in ready}
            fresh = all(group.staleness(bus.version) == 0 for group in ready)
            bus.append_batch(ready, pack_seed=0)
            state, metrics = step(fleet, learner, state, [group.group for group in ready])
            if fresh:
                ratios.append(metrics["ratio_mean"])
            moment = publish()
            published[bus.version] = moment
            if bus.version == KILL_AT:
                os.kill(server_process(port), signal.SIGKILL)
        bus.end(reason="done")
        for sampler in samplers:
            assert sampler.process.wait(60) == 0, sampler.said
            sampler.reader.join()
    finally:
        for sampler in samplers:
            sampler.process.terminate()
        for sampler in samplers:
            sampler.process.wait(60)
    assert server_process(port) is None, "the server ends with its sampler"
    report = audit(store)
    assert report.faults == [] and report.counts["trained"] == STEPS * GROUPS
    assert max(ages) <= MAX_STALENESS and used == {"s1", "s2"}
    assert "died" in samplers[0].said and "the server answers again" in samplers[1].said
    np.testing.assert_allclose(ratios, 1.0, atol=1e-3)
    waits = []
    for moment, line in (line for sampler in samplers for line in sampler.lines):
        if match := re.match(r"serving version (\d+)", line):
            waits.append(moment - published[int(match[1])])
    with capsys.disabled():
        print(
            f"\npublish to proven on the server: median {statistics.median(waits):.2f} s of "
            f"{len(waits)}; staleness mean {np.mean(ages):.2f}; on-policy ratios {len(ratios)}, "
            f"worst {max(abs(r - 1) for r in ratios) if ratios else 0:.1e}"
        )
