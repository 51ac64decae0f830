"""Fixtures shared by all rooms: where real data and real models lie, if they do."""

import os
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
