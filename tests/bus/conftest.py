"""Small real parts that all bus tests share."""

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jax_t2sql.bus import Bounds, Contract, NewTask, Rollout, open_store, start_or_takeover

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
VOCAB = 100


def rollout(*, seed: int = 0, version: int = 0, length: int = 8, **changes) -> Rollout:
    """A rollout that follows from seed and version alone; `changes` replace arguments of make."""
    rng = np.random.default_rng([seed, version])
    arguments = dict(
        mask_T=np.arange(length) >= 3,
        logprobs_T=-rng.random(length),
        versions_T=np.full(length, version),
        reward=float(seed % 3 > 0),
        terms={"result": 1.0},
        ending="answered",
    )
    ids = changes.pop("ids_T", rng.integers(0, VOCAB, length))
    return Rollout.make(ids, **(arguments | changes))


def rollouts(task, version: int) -> list[Rollout]:
    return [rollout(seed=task.seed + n, version=version) for n in range(task.group_size)]


def lead(store, *, bounds: Bounds | None = None, contract: Contract = CONTRACT, publish=True):
    """A learner that leads the run, with its weights published."""
    bus = start_or_takeover(
        store,
        run="run",
        contract=contract,
        bounds=bounds or Bounds(vocab_size=VOCAB, groups_per_batch=2),
        learner="test",
    )
    if publish:
        bus.publish()
    return bus


def new_tasks(count: int, *, first_seed: int = 0, **changes) -> list[NewTask]:
    return [
        NewTask(**{"problem": f"q{n}", "group_size": 2, "seed": first_seed + n} | changes)
        for n in range(count)
    ]


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    return SimpleNamespace(
        contract=CONTRACT,
        vocab=VOCAB,
        rollout=rollout,
        rollouts=rollouts,
        lead=lead,
        new_tasks=new_tasks,
    )


class S3:
    """A running S3 server of `s3_server.py`."""

    def __init__(self, url):
        self.url = url

    def ask(self, method, path, value=None):
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        with urllib.request.urlopen(request) as reply:
            return reply.read()

    def faults(self, *faults):
        """Each [what, method, part of the path]; see s3_server.py."""
        self.ask("PUT", "/faults", faults)

    def requests(self):
        return json.loads(self.ask("GET", "/requests"))


@pytest.fixture(scope="session")
def s3():
    if importlib.util.find_spec("moto") is None:
        pytest.skip("no S3 server to test with: pip install 'moto[server]'")
    program = Path(__file__).with_name("s3_server.py")
    process = subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        server = S3(f"http://127.0.0.1:{process.stdout.readline().strip()}")
        server.ask("PUT", "/bucket")
        settings = {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        yield server
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        process.kill()


@pytest.fixture
def s3_location(s3):
    """An empty place in the bucket."""
    return f"s3://bucket/{uuid.uuid4().hex}"


@pytest.fixture(params=["directory", "memory", "s3"])
def clients(request, tmp_path):
    """Opens one empty store as often as called; in memory all clients are one object."""
    if request.param == "memory":
        shared = open_store("memory:///")
        return lambda: shared
    if request.param == "directory":
        return lambda: open_store(tmp_path / "bus")
    location = request.getfixturevalue("s3_location")
    return lambda: open_store(location)


@pytest.fixture
def store(clients):
    return clients()
