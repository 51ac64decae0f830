"""The asynchronous `train` as processes: a learner on one host or two, a sampler, a fake server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jax_t2sql.bus import Batch, Log, Publish, open_store
from jax_t2sql.bus.audit import audit
from jax_t2sql.tracking import read_metrics

ROOT = Path(__file__).resolve().parent.parent
# A store whose groups one host cannot read, from its third on.
BROKEN_HOST = """
from jax_t2sql.bus.directory import DirectoryStore
read, count = DirectoryStore.read, [0]
def broken(self, key, **options):
    count[0] += key.startswith("groups/")
    if count[0] > 2:
        raise OSError(5, "Input/output error", key)
    return read(self, key, **options)
DirectoryStore.read = broken
"""


class Learner:
    """A process of `train` whose output goes to a file."""

    def __init__(self, fleet, workdir, log, *options, environment, before=""):
        arguments = [
            *("--config", "configs/quickstart.py", "--workdir", str(workdir)),
            *("--model", str(fleet.root / "model"), "--databases", str(fleet.root)),
            *("--data", str(fleet.root / "train.jsonl")),
            *("--data.eval", str(fleet.root / "eval.jsonl")),
            *("--prompt.style", "question", "--prompt.max-context", "256"),
            *("--adapter.rank", "8", "--adapter.alpha", "16", "--rl.group-size", "4"),
            *("--rl.groups", "2", "--rl.max-staleness", "2", "--fleet.workers", "1"),
            *("--fleet.groups-in-flight", "4", "--grading.workers", "1"),
            *("--hints.file", str(fleet.root / "hints.jsonl"), "--learnability.enabled"),
            *("--sampler.ratio-tolerance", "1000"),  # the server makes its log-probs up
            *options,
        ]
        code = f"import sys\n{before}\nfrom jax_t2sql.programs import run_program\n"
        code += f"from jax_t2sql.train import main\nrun_program(lambda: main({arguments!r}))"
        self.log = log
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
            )

    @property
    def said(self):
        return self.log.read_text()

    def end(self):
        self.process.wait(1500)
        return self.process.returncode


@pytest.fixture
def fake_server(fake_vllm, fleet):
    server = fake_vllm(
        vocab=fleet.model.config.vocab_size,
        stop=fleet.model.tokenizer.stop_ids[0],
        tokenizer=str(fleet.root / "model"),
        answers=fleet.questions,
        context=2048,
    )
    yield server
    server.kill()


@pytest.fixture
def start(fleet, fake_server, tmp_path, tmp_path_factory):
    """Starts learners and samplers of one run; what is left of them is killed at the end."""
    cache = tmp_path_factory.getbasetemp() / "fleet-cache"
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    running = []

    def learner(*options, before="", **extra):
        log = tmp_path / f"learner{len(running)}.log"
        made = Learner(
            fleet,
            tmp_path / "run",
            log,
            *options,
            environment=environment | extra,
            before=before,
        )
        running.append(made.process)
        return made

    def sampler():
        command = [sys.executable, "-m", "jax_t2sql.sample", "--bus", str(tmp_path / "run" / "bus")]
        command += ["--policy", f"vllm:{fake_server.url}", "--sql-workers", "1"]
        log = open(tmp_path / "sampler.log", "w")  # noqa: SIM115
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=environment
        )
        running.append(process)
        return process

    yield learner, sampler
    for process in running:
        process.kill()
        process.wait()


def entries(workdir):
    return Log.open(open_store(workdir / "bus")).entries if (workdir / "bus").is_dir() else []


def until_version(workdir, version, *learners):
    """Waits until this many updates are published (or fails with what the learners said)."""
    while True:
        done = [e.step for e in entries(workdir) if isinstance(e, Publish)]
        if done and max(done) >= version:
            return
        for learner in learners:
            assert learner.process.poll() is None, learner.said
        time.sleep(0.1)


def test_a_learner_that_is_killed_and_told_to_end_loses_nothing(start, tmp_path):
    """SIGKILL, then SIGTERM, then to the end: six updates, each group trained once."""
    learner, sampler = start
    workdir = tmp_path / "run"
    options = "--rl.steps 6 --eval.every 2 --checkpoint.every 2 --checkpoint.keep 1".split()
    first = learner(*options)
    until_version(workdir, 0, first)
    worker = sampler()
    until_version(workdir, 2, first)
    first.process.kill()
    first.end()
    second = learner(*options)
    until_version(workdir, 3, second)
    second.process.send_signal(signal.SIGTERM)
    assert second.end() == 143, second.said
    assert "its checkpoint and weights are saved; the same command goes on" in second.said
    stopped = max(int(p.name) for p in (workdir / "checkpoints" / "rl").glob("[0-9]*"))
    assert f"stopped by SIGTERM after step {stopped}:" in second.said
    head = len(entries(workdir))
    bus = ("--bus", str(workdir / "bus"))
    stranger = learner(*options, "--workdir", str(tmp_path / "other"), *bus)
    assert stranger.end() == 2 and "can only go on from a checkpoint" in stranger.said
    assert len(entries(workdir)) == head, "it has not taken the run over"
    third = learner(*options)
    assert third.end() == 0, third.said
    assert "taking over the run in" in third.said
    assert worker.wait(1500) == 0, (tmp_path / "sampler.log").read_text()

    store = open_store(workdir / "bus")
    report = audit(store)
    assert report.faults == [] and report.counts["trained"] == 12
    log = Log.open(store).entries
    assert [e.step for e in log if isinstance(e, Batch)] == list(range(6))
    rows = read_metrics(workdir)
    steps = [row for row in rows if row["phase"] == "rl"]
    assert [row["step"] for row in steps] == list(range(1, 7))
    assert all(0 <= row["staleness_mean"] <= 2 for row in steps)
    last = steps[-1]
    assert 0 <= last["idle_share"] <= 1 and 0 <= last["bus_share"] <= 1
    assert last["fate_trained"] == 2 and last["samplers"] <= 1 and last["seconds_export"] > 0
    assert {0, 6} <= {row["step"] for row in rows if row["phase"] == "eval"}
    result = json.loads((workdir / "result.json").read_text())
    assert result["n"] == 4 and result["before"] == result["after"] == 1.0
    assert log[-1].best == result["best"]["adapter"] and log[-1].final is not None
    assert (workdir / "best" / "adapter_model.safetensors").is_file()
    assert (workdir / "adapter" / "adapter_model.safetensors").is_file()


def test_a_server_that_does_not_compute_what_the_learner_does_stops_the_run(start, tmp_path):
    learner, sampler = start
    first = learner(
        *"--rl.steps 4 --eval.every 0 --sampler.ratio-tolerance 0.001".split(),
        *"--sampler.ratio-tokens 1".split(),
    )
    until_version(tmp_path / "run", 0, first)
    sampler()
    assert first.end() == 2, first.said
    assert "no sampler is at work that does not deviate" in first.said
    assert "Traceback" not in first.said
    last = entries(tmp_path / "run")[-1]
    assert isinstance(last, Publish) and last.batch is not None, "the step is concluded"


@pytest.mark.multi_device
def test_two_hosts_stop_together(start, tmp_path):
    """One host cannot read the bus: it is named by both. One host is told to end: both do."""
    learner, sampler = start
    workdir = tmp_path / "run"
    options = "--rl.steps 50 --eval.every 0 --checkpoint.every 100".split()

    def hosts(before):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        return [
            learner(
                *options,
                before=before if index else "",
                JAX_COORDINATOR_ADDRESS=address,
                JAX_NUM_PROCESSES="2",
                JAX_PROCESS_ID=str(index),
            )
            for index in range(2)
        ]

    both = hosts(BROKEN_HOST)
    until_version(workdir, 0, *both)
    sampler()
    for host in both:
        assert host.end() == 2, host.said
        assert "host 1: cannot read its batch" in host.said and "host 0:" not in host.said
    version = max(e.step for e in entries(workdir) if isinstance(e, Publish))
    assert isinstance(entries(workdir)[-1], Batch), "the batch is in the log and will be trained"

    both = hosts("")
    until_version(workdir, version + 2, *both)
    both[1].process.send_signal(signal.SIGTERM)
    for host in both:
        assert host.end() == 143, host.said
    said = [line for host in both for line in host.said.splitlines() if "stopped by" in line]
    assert len(said) == 2 and said[0] == said[1]
    assert audit(open_store(workdir / "bus")).faults == []
