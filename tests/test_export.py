"""Merged models: the same logits in transformers as base and adapter have here."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from jax_t2sql.errors import UserError
from jax_t2sql.export import ExportArgs, export, main
from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import (
    LoadedModel,
    ModelConfig,
    describe_params,
    export_adapter,
    hidden_fn,
    load_model,
    save_hf,
    tiny_config,
    train_tokenizer,
    unembed_fn,
)
from jax_t2sql.models.shapes import MLAConfig, MoEConfig

SPEC = LoraSpec(rank=3, alpha=6)
SPARSE = ModelConfig(
    architecture="deepseek_v3",
    vocab_size=300,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=12,
    rotary_dim=4,
    mla=MLAConfig(query_rank=16, latent_dim=12, nope_dim=8, rope_dim=4, value_dim=8),
    moe=MoEConfig(
        num_experts=4,
        experts_per_token=2,
        expert_size=20,
        shared_size=20,
        dense_layers=1,
        scoring="sigmoid",
    ),
)
DENSE = tiny_config(300, hidden=32, layers=2, heads=2, kv_heads=1)


def draw(descs, seed, scale):
    generator = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jnp.asarray(scale * generator.standard_normal(x.shape, np.float32)), descs
    )


@pytest.fixture(params=[DENSE, SPARSE], ids=["dense", "sparse"])
def saved(request, tmp_path):
    """(model, adapter, directory with base/ and adapter/)."""
    config = request.param
    tokenizer = train_tokenizer(["SELECT 1 FROM t"], vocab_size=300)
    params = draw(describe_params(config), 0, 0.3)
    model = LoadedModel(config, params, tokenizer, "memory", "0" * 64)
    adapter = draw(SPEC.describe(describe_params(config)), 1, 0.2)
    save_hf(model, tmp_path / "base")
    export_adapter(tmp_path / "adapter", config, adapter, SPEC)
    return model, adapter, tmp_path


def options(directory, **changes):
    values = {"model": directory / "base", "adapter": directory / "adapter"}
    return ExportArgs(**{**values, "out": directory / "merged", **changes})


def logits(model, adapter, tokens):
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    run = jax.jit(hidden_fn(model.config))
    hidden = run(model.params, adapter, tokens, positions, np.ones_like(tokens))
    return unembed_fn(model.config)(model.params, adapter, hidden)


@pytest.mark.parity
def test_transformers_loads_what_is_merged(saved):
    torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
    transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")
    model, adapter, directory = saved
    export(options(directory))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory / "merged").eval()
    tokens = np.random.default_rng(0).integers(0, 300, (2, 16)).astype(np.int32)
    with torch.no_grad():
        found = theirs(torch.tensor(tokens, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(found, logits(model, adapter, tokens), atol=5e-4, rtol=0)
    assert np.abs(found - logits(model, None, tokens)).max() > 0.1


def test_what_is_merged_and_what_is_kept(saved, capsys):
    model, adapter, directory = saved
    words = ["--model", "base", "--adapter", "adapter", "--out", "merged"]
    words = [w if w.startswith("--") else str(directory / w) for w in words]
    assert main(words) == 0
    before, after = (load_file(directory / x / "model.safetensors") for x in ("base", "merged"))
    assert before.keys() == after.keys()
    changed = [name for name in before if not np.array_equal(before[name], after[name])]
    assert len(changed) == len(load_file(directory / "adapter/adapter_model.safetensors")) // 2
    assert not [name for name in changed if "norm" in name or ".gate." in name]
    assert f"{len(changed)} weights of" in capsys.readouterr().out
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (directory / "base" / name).read_bytes() == (
            directory / "merged" / name
        ).read_bytes()
    again = load_model(directory / "merged")
    assert again.config == model.config
    assert sorted(x.name for x in directory.iterdir()) == ["adapter", "base", "merged"]


def test_another_dtype(saved):
    model, _, directory = saved
    assert export(options(directory, adapter=None, dtype="bfloat16")) == 0
    tensors = load_file(directory / "merged/model.safetensors")
    assert {x.dtype.name for x in tensors.values()} == {"bfloat16"}
    assert json.loads((directory / "merged/config.json").read_text())["torch_dtype"] == "bfloat16"
    table = tensors["model.embed_tokens.weight"]
    np.testing.assert_array_equal(table, model.params["embed"]["embedding"].astype(jnp.bfloat16))


@pytest.mark.parametrize("saved", [DENSE], indirect=True)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "nowhere"}, "nowhere does not exist"),
        ({"model": "adapter"}, "cannot read .*adapter/config.json"),
        ({"adapter": "base"}, "cannot read .*adapter_config.json"),
        ({"adapter": None}, "already in Hugging Face's format"),
        ({"out": "base"}, "exists and is not empty"),
    ],
)
def test_bad_input_leaves_nothing(saved, changes, words):
    _, _, directory = saved
    changes = {k: None if v is None else directory / v for k, v in changes.items()}
    before = sorted(directory.rglob("*"))
    with pytest.raises(UserError, match=words):
        export(options(directory, **changes))
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("saved", [DENSE], indirect=True)
def test_a_damaged_base_leaves_nothing(saved):
    _, _, directory = saved
    path = directory / "base/model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match="corrupt or cut off"):
        export(options(directory))
    assert sorted(x.name for x in directory.iterdir()) == ["adapter", "base"]


def test_the_adapter_of_another_model_is_refused(saved):
    model, _, directory = saved
    wider = dataclasses.replace(model.config, intermediate_size=50)
    adapter = draw(SPEC.describe(describe_params(wider)), 1, 0.2)
    export_adapter(directory / "other", wider, adapter, SPEC)
    with pytest.raises(UserError, match="has shape"):
        export(options(directory, adapter=directory / "other"))
