"""Fixtures shared by all rooms: where real data and real models lie, if they do."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

# Tests compile many small programs; two devices' worth of threads is all that helps them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

_ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption(
        "--full-data",
        action="store_true",
        help="use every real database and schema in the tests that else take a sample",
    )


@pytest.fixture(scope="session")
def sample(request):
    """Picks an even share of a list, or all of it with --full-data."""

    def pick(items: list, count: int) -> list:
        if request.config.getoption("--full-data") or len(items) <= count:
            return items
        return [items[i * len(items) // count] for i in range(count)]

    return pick


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real questions and databases: JAX_T2SQL_DATA, default ../shared/data beside the checkout."""
    path = Path(os.environ.get("JAX_T2SQL_DATA", _ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path}: set JAX_T2SQL_DATA to a folder that has it")
    return path


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """Real GGUF models: JAX_T2SQL_MODELS with smollm2.gguf and qwen25coder05b.gguf."""
    path = os.environ.get("JAX_T2SQL_MODELS")
    if not path or not Path(path).is_dir():
        pytest.skip("no real models: set JAX_T2SQL_MODELS to a folder with smollm2.gguf")
    return Path(path)


class FakeVllm:
    """A running process of `fake_vllm.py`."""

    def __init__(self, options: dict):
        self.options = options
        self.start()

    def start(self) -> None:
        program = Path(__file__).with_name("fake_vllm.py")
        command = [sys.executable, str(program), json.dumps(self.options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        port = int(self.process.stdout.readline())
        self.options = {**self.options, "port": port}  # started again, it answers there again
        self.url = f"http://127.0.0.1:{port}"

    def kill(self) -> None:
        with self.process:
            self.process.kill()

    def faults(self, *faults: list) -> None:
        """Each [what, part of the path, times]; see fake_vllm.py."""
        self._ask("PUT", "/faults", faults)

    def seen(self) -> dict:
        return self._ask("GET", "/seen")

    def _ask(self, method: str, path: str, value=None):
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        with urllib.request.urlopen(request) as reply:
            return json.loads(reply.read())


@pytest.fixture(scope="session")
def fake_vllm():
    """Starts servers that speak vLLM's HTTP: ``fake_vllm(vocab=…, stop=…, …)``."""
    with contextlib.ExitStack() as stack:

        def start(**options) -> FakeVllm:
            server = FakeVllm({"vocab": 50, "stop": 7} | options)
            stack.callback(server.kill)
            return server

        yield start
