"""Every recipe card: its facts, its dry run, and two steps of its shape on a toy model."""

import ast
import dataclasses
import json
import sqlite3
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_t2sql import training
from jax_t2sql.config import FleetConfig
from jax_t2sql.config_loading import load_config, resolve
from jax_t2sql.grading import GradingPool
from jax_t2sql.models import LoadedModel, ModelConfig, describe_params, save_hf
from jax_t2sql.models.tiny import train_tokenizer
from jax_t2sql.policies import make_rl_learner
from jax_t2sql.rl import assembly
from jax_t2sql.text2sql import Completion, Problem, PromptOptions, build_messages, evidence_pieces
from jax_t2sql.text2sql.evidence import entry
from jax_t2sql.tracking import read_metrics
from jax_t2sql.train import main

ROOT = Path(__file__).resolve().parent.parent
CARDS = sorted(path for path in (ROOT / "configs").glob("*.py"))
RECIPES = [
    path for path in CARDS if path.stem.partition("_")[0] in ("revisql", "refined", "ablation")
]


def test_there_are_cards():
    assert len(RECIPES) >= 20


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_card_says_what_a_reader_needs(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert f"configs/{path.name}" in text or "launch/" in text
    assert "Hardware:" in text
    if path.stem != "quickstart":
        for word in ("Published score:", "Ratio bounds:", "Run by us:", "Time"):
            assert word in text, word
        loss = load_config(path).loss
        said = text.partition("Ratio bounds: ")[2].partition(". ")[0]
        low, high = (float(part) for part in said.split(" to "))
        assert (low, high) == (loss.ratio_low, loss.ratio_high)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_resolves_without_network(path, capsys):
    assert main(["--config", str(path), "--dry-run"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rl"]["group_size"] == 16 and found["adapter"]["rank"] == 32
    assert found["prompt"]["style"] == "tools" and found["reward"]["cut_off"] == "strict"


@pytest.mark.parametrize("name", ["real_spider", "real_tools"])
def test_a_card_for_a_model_of_ones_own_needs_only_what_it_says(name, capsys):
    mine = ["--model", "m.gguf", "--data", "q.jsonl", "--databases", "dir"]
    assert main(["--config", str(ROOT / "configs" / f"{name}.py"), *mine, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "m.gguf"


PROBLEM = Problem(
    question_id="0",
    db_id="shop",
    question="How many items cost more than 1?",
    gold_sql="SELECT count(*) FROM item WHERE price > 1",
    evidence="cost refers to price; more refers to >",
)


def toy_config(vocab: int) -> ModelConfig:
    """One dense layer: what the families differ in is tested with their models."""
    return ModelConfig(
        architecture="qwen2",
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_layers=1,
        num_heads=2,
        num_kv_heads=2,
        head_dim=16,
        tie_embeddings=True,
        qkv_bias=True,
        max_position_embeddings=2048,
    )


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A toy model, questions, hints and a database."""
    folder = tmp_path_factory.mktemp("toys")
    with sqlite3.connect(folder / "shop.sqlite") as connection:
        connection.executescript(
            "CREATE TABLE item (name TEXT, price INTEGER);"
            "INSERT INTO item VALUES ('pen', 2), ('ink', 5), ('cap', 1);"
        )
    connection.close()
    rows = [
        {"question_id": f"{split}-{n}", "db_id": "shop", "question": f"{PROBLEM.question} ({n})"}
        | {"evidence": PROBLEM.evidence, "SQL": PROBLEM.gold_sql, "split": split}
        for split in ("train", "val")
        for n in range(4)
    ]
    for split in ("train", "val"):
        lines = [json.dumps(row) for row in rows if row["split"] == split]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    hints = [
        {"question_id": f"train-{n}", "strength": "light", "hint": "look at the price"}
        for n in range(4)
    ]
    (folder / "hints.jsonl").write_text("\n".join(map(json.dumps, hints)))
    options = PromptOptions(evidence="structured")
    messages = build_messages(PROBLEM, "CREATE TABLE item", style="tools", options=options)
    texts = [message["content"] for message in messages] * 2
    tokenizer = train_tokenizer(texts, vocab_size=1200)
    config = toy_config(tokenizer.vocab_size)
    rng = np.random.default_rng(0)  # JAX would compile a program for each shape
    params = jax.tree.map(
        lambda array: rng.normal(0, 0.02, array.shape).astype("float32"),
        describe_params(config),
        is_leaf=lambda node: hasattr(node, "shape"),
    )
    model = LoadedModel(config=config, params=params, tokenizer=tokenizer, source="", sha256="")
    save_hf(model, folder / "model")
    return folder


class Scripted:
    """In the sampler's place: half of its rollouts look, comply and answer right."""

    def __init__(self, codec, tokenizer):
        self._tokenizer, self._codec = tokenizer, codec
        self._written: list[tuple[int, ...]] = []
        self.version = 0

    def set_weights(self, base, adapter, *, version):
        self.version = version

    def generate(self, requests, *, stop_strings=()):
        return [self._complete(request) for request in requests]

    def _complete(self, request):
        looked = any(request.prompt_ids[: len(old)] == old for old in self._written)
        pieces = list(enumerate(evidence_pieces(PROBLEM.evidence), start=1))
        if looked:
            said = [entry("Verification", n, piece, "done") for n, piece in pieces]
            said.append(f"<solution>{PROBLEM.gold_sql}</solution>")
        elif request.seed % 2:
            said = ["<solution>SELECT 7</solution>"]
        else:
            said = [entry("Requirement", n, piece, "to do") for n, piece in pieces]
            call = {"name": "execute_sql_query", "arguments": {"query": "SELECT 1"}}
            said.append(f"<tool_call>{json.dumps(call)}</tool_call>")
        ids = (*self._tokenizer.encode("\n".join(said)), min(self._codec.stop_ids))
        if not looked and not request.seed % 2:
            self._written.append((*request.prompt_ids, *ids))
        logprobs = (-1.0,) * len(ids)
        return Completion(ids, logprobs, "stop_token", self.version)


def shrunk(path: Path, toys: Path):
    """The card's configuration at toy size."""
    config = load_config(path)
    hints = dataclasses.replace(
        config.hints, file=None if config.hints.file is None else str(toys / "hints.jsonl")
    )
    return resolve(
        dataclasses.replace(
            config,
            hints=hints,
            fleet=FleetConfig(),  # the sampler is in the process
            mesh=None,
            model=str(toys / "model"),
            data=dataclasses.replace(
                config.data,
                train=str(toys / "train.jsonl"),
                eval=str(toys / "val.jsonl"),
                databases=str(toys),
            ),
            prompt=dataclasses.replace(config.prompt, max_tokens=200, max_context=1024),
            adapter=dataclasses.replace(config.adapter, rank=2),
            rl=dataclasses.replace(config.rl, steps=2, groups=2, group_size=4),
            eval=dataclasses.replace(config.eval, every=0, final_questions=1, patience=None),
            grading=dataclasses.replace(config.grading, workers=1),
            # The scripted sampler makes its log-probs up.
            sampler=dataclasses.replace(config.sampler, ratio_tolerance=1e3),
            learner=dataclasses.replace(
                config.learner,
                dtype="float32",
                bits=None,
                bits_group=128,
                bits_targets="",
                row_length=1024,
                rows=1,
            ),
        )
    )


@pytest.fixture(scope="module")
def pool():
    with GradingPool(1) as pool:
        yield pool


class Shared:
    """A context around a pool that others go on using."""

    def __init__(self, pool):
        self._pool = pool

    def __enter__(self):
        return self._pool

    def __exit__(self, *_):
        pass


@pytest.fixture(scope="module")
def kept():
    """Shapes that ran (cards that differ in names and sizes alone have one), and their learners:
    of the same model, loss and optimizer there is one, whose programs are compiled once."""
    # The programs run for a moment only: what costs is to optimise them.
    jax.config.update("jax_disable_most_optimizations", True)
    yield {"rows": {}, "learners": {}}
    jax.config.update("jax_disable_most_optimizations", False)


def shared_learner(kept, config, model):
    key = config.model, config.loss, config.optimizer, config.adapter, config.learner
    if key not in kept["learners"]:
        kept["learners"][key] = make_rl_learner(config, model)
    return kept["learners"][key]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_two_steps_of_its_shape_on_a_toy_model(path, toys, pool, kept, tmp_path, monkeypatch):
    config, done = shrunk(path, toys), kept["rows"]
    if config not in done:
        monkeypatch.setattr(training, "enable_compilation_cache", lambda: None)
        monkeypatch.setattr(
            assembly, "make_rl_learner", lambda *parts: shared_learner(kept, *parts)
        )
        monkeypatch.setattr(training, "make_pool", lambda config: Shared(pool))
        monkeypatch.setattr(
            assembly, "make_engine", lambda config, model, codec: Scripted(codec, model.tokenizer)
        )
        training.run_training(config, tmp_path / "run")
        done[config] = read_metrics(tmp_path / "run")
        assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").is_file()
    steps = [row for row in done[config] if row["phase"] == "rl"]
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert row["skipped"] == 0 and row["grad_norm"] > 0
        assert 0 < row["accuracy_train"] < 1 and row["calls_mean"] > 0
        structured = config.prompt.evidence == "structured"
        assert ("evidence_complied_share" in row) == structured
        assert ("refuted_share" in row) == (config.reward.equivalence != "off")
