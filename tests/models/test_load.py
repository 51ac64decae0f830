"""Models in Hugging Face's format: written, read back, sharded, damaged."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jax_t2sql.errors import UserError
from jax_t2sql.models import load_model, save_hf

NAME = "model.safetensors"


@pytest.fixture
def saved(qwen3, tmp_path):
    save_hf(qwen3, tmp_path / "model")
    return tmp_path / "model"


def edit_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_tensors(directory, change):
    tensors = load_file(directory / NAME)
    change(tensors)
    save_file(tensors, directory / NAME)


def split_in_shards(directory):
    tensors = load_file(directory / NAME)
    names = sorted(tensors)
    table = {}
    for i in range(3):
        file = f"model-{i + 1:05}-of-00003.safetensors"
        part = {name: tensors[name] for name in names[i::3]}
        save_file(part, directory / file)
        table.update(dict.fromkeys(part, file))
    (directory / f"{NAME}.index.json").write_text(json.dumps({"weight_map": table}))
    (directory / NAME).unlink()


def same_params(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_what_is_saved_is_loaded(qwen3, saved):
    model = load_model(saved)
    assert model.config == qwen3.config
    assert model.source == str(saved)
    same_params(model.params, qwen3.params)
    assert model.tokenizer.encode("WHERE a = 1") == qwen3.tokenizer.encode("WHERE a = 1")


def test_shards_give_the_same_model(qwen3, saved):
    split_in_shards(saved)
    same_params(load_model(saved).params, qwen3.params)


def test_dtype_is_that_asked_for_and_kept_on_saving(saved, tmp_path):
    model = load_model(saved, dtype="bfloat16")
    assert {x.dtype.name for x in jax.tree.leaves(model.params)} == {"bfloat16"}
    save_hf(model, tmp_path / "half")
    same_params(load_model(tmp_path / "half", dtype="bfloat16").params, model.params)
    assert json.loads((tmp_path / "half/config.json").read_text())["torch_dtype"] == "bfloat16"


def test_the_hash_tells_models_apart(saved):
    before = load_model(saved).sha256
    assert load_model(saved).sha256 == before
    edit_tensors(saved, lambda t: t["model.norm.weight"].__setitem__(0, 9.0))
    assert load_model(saved).sha256 != before


def test_wrong_shape_names_the_tensor_and_both_shapes(saved):
    name = "model.layers.1.mlp.up_proj.weight"
    edit_tensors(saved, lambda t: t.update({name: np.zeros((95, 64), np.float32)}))
    with pytest.raises(UserError) as error:
        load_model(saved)
    assert all(word in str(error.value) for word in (name, "[95, 64]", "[96, 64]"))


def test_a_missing_tensor_is_named(saved):
    edit_tensors(saved, lambda t: t.pop("model.layers.0.self_attn.q_norm.weight"))
    with pytest.raises(UserError, match=r"lacks 1 of .*layers\.0\.self_attn\.q_norm"):
        load_model(saved)


def test_tensors_of_another_architecture_are_not_ignored(saved):
    bias = {"model.layers.0.self_attn.q_proj.bias": np.zeros(128, np.float32)}
    edit_tensors(saved, lambda t: t.update(bias))
    with pytest.raises(UserError, match=r"qwen3 model does not have.*q_proj\.bias"):
        load_model(saved)


def test_harmless_leftovers_are_ignored(saved):
    extra = {
        "lm_head.weight": np.zeros((320, 64), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(16, np.float32),
    }
    edit_tensors(saved, lambda t: t.update(extra))
    load_model(saved)


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: cut(d / NAME, 1000), f"{NAME} is corrupt or cut off"),
        (lambda d: cut(d / NAME, (d / NAME).stat().st_size - 8), "corrupt or cut off"),
        (lambda d: cut(d / NAME, 0), "corrupt or cut off"),
        (lambda d: (d / NAME).unlink(), "holds neither model.safetensors nor"),
        (lambda d: cut(d / "config.json", 20), "config.json is not valid JSON"),
        (lambda d: (d / "config.json").unlink(), "cannot read .*config.json"),
        (lambda d: (d / "config.json").write_text("[]"), "config.json holds a list"),
        (lambda d: (d / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda d: edit_json(d / "config.json", model_type="mamba"), "'mamba' is not supported"),
    ],
)
def test_damaged_directories(saved, damage, words):
    damage(saved)
    with pytest.raises(UserError, match=words):
        load_model(saved)


def test_missing_shards_are_named(saved):
    split_in_shards(saved)
    (saved / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UserError, match="lacks the shards model-00002-of-00003.safetensors"):
        load_model(saved)


def test_an_index_cannot_point_outside_its_directory(saved):
    (saved / NAME).rename(saved.parent / "outside.safetensors")
    table = {"weight_map": {"model.norm.weight": "../outside.safetensors"}}
    (saved / f"{NAME}.index.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match="lacks the shards outside.safetensors"):
        load_model(saved)


def test_a_tokenizer_larger_than_the_model(qwen3, tmp_path, make_config, make_params):
    config = make_config("qwen3", vocab_size=300)
    model = dataclasses.replace(qwen3, config=config, params=make_params(config))
    save_hf(model, tmp_path)
    with pytest.raises(UserError, match="320 ids.*only 300"):
        load_model(tmp_path)


@pytest.mark.parametrize("source", ["/no/such/dir", "no-such-dir", "./a/b", "~/no/such"])
def test_nothing_there(source):
    with pytest.raises(UserError, match="no model at .*config.json, a .gguf file, or a hub id"):
        load_model(source)


def test_a_file_that_is_no_gguf(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"12345678")
    with pytest.raises(UserError, match="not a GGUF file.*give the directory"):
        load_model(tmp_path / "x.safetensors")


def test_a_hub_id_without_network(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as error:
        load_model("no-such-owner/no-such-model", cache_dir=tmp_path)
    assert "no directory 'no-such-owner/no-such-model'" in str(error.value)
    assert "give its path" in str(error.value)
    assert "\n" not in str(error.value)
