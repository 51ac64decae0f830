"""Datasets where programs take questions: train, its mixtures, eval."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow_datasets", reason="needs the [data] extra")

from data_pipelines import import_data  # noqa: E402
from jax_t2sql.config import DataConfig, TrainConfig  # noqa: E402
from jax_t2sql.config_loading import resolve  # noqa: E402
from jax_t2sql.datasets import heldout_split, open_data  # noqa: E402
from jax_t2sql.errors import UserError  # noqa: E402
from jax_t2sql.grading import GradingPool  # noqa: E402
from jax_t2sql.preflight import check_training  # noqa: E402
from jax_t2sql.question_set import load_questions  # noqa: E402
from jax_t2sql.sql import resolve_database  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("train", "train", "dev")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Datasets first and second (with published splits) and third (without), other databases."""
    folder = tmp_path_factory.mktemp("data")
    for name, marked in (("first", True), ("second", True), ("third", False)):
        databases = folder / f"{name}_databases"
        databases.mkdir()
        with sqlite3.connect(databases / "shop.sqlite") as connection:
            connection.execute(f"CREATE TABLE item_{name} (price INT)")
            connection.executemany(f"INSERT INTO item_{name} VALUES (?)", [(i,) for i in range(40)])
        connection.close()
        rows = [
            {
                "db_id": "shop",
                "question": f"How many over {i}?",
                "SQL": f"SELECT COUNT(*) FROM item_{name} WHERE price > {i}",
            }
            | ({"split": MARKS[i % 3]} if marked else {})
            for i in range(30)
        ]
        questions = folder / f"{name}.jsonl"
        questions.write_text("\n".join(map(json.dumps, rows)))
        arguments = ["--questions", str(questions), "--databases", str(databases)]
        import_data.main([*arguments, "--name", name, "--out", str(folder / "sets")])
    return folder


@pytest.fixture(scope="module")
def pool():
    with GradingPool(1) as pool:
        yield pool


def spec(folder, name):
    return f"tfds:{folder / 'sets' / name}"


def load(pool, **data):
    return load_questions(DataConfig(**data), pool=pool, need_warmup=True)


def test_published_splits_are_taken_as_they_are(folder, pool):
    assert heldout_split(spec(folder, "first")) == "dev"
    assert heldout_split(folder / "first.jsonl") is None
    questions = load(pool, train=spec(folder, "first"))
    assert len(questions.train) == 20 and len(questions.heldout) == 10
    assert questions.databases == folder / "first_databases"
    assert questions.warmup == questions.train and not questions.shares
    # A file or another dataset may be held out instead.
    questions = load(pool, train=spec(folder, "first"), eval=spec(folder, "third") + "@val")
    assert questions.heldout_databases == folder / "third_databases"
    assert {p.source for p in questions.heldout} == {"third"}


def test_a_named_split_is_split_by_hash(folder, pool):
    questions = load(pool, train=spec(folder, "first") + "@train")
    assert len(questions.train) + len(questions.heldout) == 20 and questions.heldout


def test_sets_are_mixed_with_their_shares(folder, pool, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    questions = load(
        pool,
        train=spec(folder, "first"),
        mix=(f"{spec(folder, 'second')}=0.3", f"{spec(folder, 'third')}=0.2"),
    )
    assert questions.shares == {"second": 0.3, "third": 0.2}
    assert {p.source for p in questions.train} == {"first", "second", "third"}
    assert {p.source for p in questions.heldout} == {"first"}
    # Their golds ran, so each was run on the database of its own set.
    for problem in questions.train:
        path = resolve_database(questions.databases, problem.db_id).resolve()
        assert path == folder / f"{problem.source}_databases" / "shop.sqlite"
    files = load(
        pool,
        train=str(folder / "first.jsonl"),
        databases=str(folder / "first_databases"),
        mix=(f"{spec(folder, 'second')}=0.5",),
    )
    assert {p.source for p in files.train} == {"data", "second"}


def test_faults_are_told_before_a_run(folder, tmp_path):
    def refuse(**data):
        config = TrainConfig(model="x/y", data=DataConfig(**data))
        with pytest.raises(UserError) as error:
            check_training(resolve(config), tmp_path / "run")
        return str(error.value)

    assert "no dataset none" in refuse(train=spec(folder, "none"))
    assert "no dataset none" in refuse(
        train=spec(folder, "first"), mix=(f"{spec(folder, 'none')}=0.5",)
    )
    assert "leave nothing" in refuse(train="tfds:a", mix=("tfds:b=0.6", "tfds:c=0.6"))
    assert "no split" in refuse(train=spec(folder, "first"), eval=spec(folder, "first") + "@x")
    with pytest.raises(UserError, match="needs --databases"):
        open_data(str(folder / "first.jsonl"), None)
    with pytest.raises(UserError, match="--databases"):
        resolve(TrainConfig(model="x/y", data=DataConfig(train="q.jsonl")))
    check_training(
        resolve(TrainConfig(model="x/y", data=DataConfig(train=spec(folder, "first")))),
        tmp_path / "run",
    )


def test_programs_take_datasets(folder, tmp_path):
    """Training (warm-up and evaluation alone) and scoring on datasets, as a user starts them."""
    import jax

    from jax_t2sql.models import LoadedModel, init_params, save_hf
    from jax_t2sql.models.tiny import tiny_config, train_tokenizer

    texts = ["How many over 17?", "SELECT COUNT(*) FROM item_first WHERE price > 23"] * 20
    tokenizer = train_tokenizer(texts, vocab_size=300)
    config = tiny_config(tokenizer.vocab_size, kv_heads=4)
    params = init_params(config, jax.random.key(0), "float32")
    save_hf(LoadedModel(config, params, tokenizer, "tiny", ""), tmp_path / "model")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(module, *options):
        command = [sys.executable, "-m", f"jax_t2sql.{module}", *map(str, options)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-2000:]

    run(
        *("train", "--config", "configs/quickstart.py", "--workdir", tmp_path / "run"),
        *("--model", tmp_path / "model", "--data", spec(folder, "first")),
        *("--data.mix", f"{spec(folder, 'third')}=0.4", "--prompt.style", "question"),
        *("--rl.steps", 0, "--warmup.steps", 2, "--warmup.batch", 8, "--prompt.max-tokens", 16),
    )
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["n"] == 10
    run(
        *("eval", "--policy", f"local:{tmp_path / 'model'}", "--data", spec(folder, "second")),
        *("--out", tmp_path / "scores", "--style", "question", "--max-tokens", 16),
    )
    score = json.loads((tmp_path / "scores" / "results.json").read_text())
    assert score["n"] == 10 and len(score["manifest"]["keys"]["gold"]["sha256"]) == 64
