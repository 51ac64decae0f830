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

import pytest

from jax_t2sql.bus import Bounds, Contract, open_store, start_or_takeover


def _load(name: str):
    """A module beside this file, which tests then import by its name."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toy_run = _load("toy_run")
CONTRACT, VOCAB = toy_run.CONTRACT, toy_run.VOCAB


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


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    return SimpleNamespace(
        contract=CONTRACT,
        vocab=VOCAB,
        rollout=toy_run.rollout,
        rollouts=toy_run.rollouts,
        lead=lead,
        new_tasks=toy_run.new_tasks,
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
