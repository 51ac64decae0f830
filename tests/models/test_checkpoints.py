"""Quantised checkpoints and sharded ones: what their files say is what is read."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from jax_t2sql.errors import UserError
from jax_t2sql.models import ModelConfig, Quantization, load_model, save_hf
from jax_t2sql.models.checkpoints import Checkpoint
from jax_t2sql.models.quantized import QuantizedKernel
from jax_t2sql.models.safetensors_files import save_safetensors
from jax_t2sql.models.safetensors_reader import TensorFile

NAME, INDEX = "model.safetensors", "model.safetensors.index.json"
GROUP, BLOCK = 8, (16, 24)
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "group_size": GROUP},
        }
    },
}
FP8 = {"quant_method": "fp8", "weight_block_size": list(BLOCK)}


def pack_int4(weight, generator):
    """A weight as compressed-tensors stores it, and the numbers that it then stands for."""
    rows, columns = weight.shape
    values = generator.integers(-8, 8, (rows, columns))
    scales = generator.uniform(0.01, 0.1, (rows, columns // GROUP)).astype(jnp.bfloat16)
    words = np.zeros((rows, columns // 8), np.uint32)
    for place in range(8):
        words |= (values[:, place::8] + 8).astype(np.uint32) << np.uint32(4 * place)
    stored = {
        "weight_packed": words.view(np.int32),
        "weight_scale": scales,
        "weight_shape": np.array([rows, columns], np.int64),
    }
    return stored, values * np.repeat(scales.astype(np.float32), GROUP, axis=1)


def cast_fp8(weight, generator):
    """A weight as DeepSeek stores it, and the numbers that it then stands for."""
    rows, columns = (-(-size // block) for size, block in zip(weight.shape, BLOCK, strict=True))
    scales = generator.uniform(0.5, 2.0, (rows, columns)).astype(np.float32)
    values = weight.astype(jnp.float8_e4m3fn)
    whole = np.repeat(np.repeat(scales, BLOCK[0], axis=0), BLOCK[1], axis=1)
    whole = whole[: weight.shape[0], : weight.shape[1]]
    stored = {"weight": values, "weight_scale_inv": scales}
    return stored, values.astype(np.float32) * whole


def quantise_files(directory, store, config, match):
    """Replaces matching weights of a saved model by what `store` makes of them."""
    generator = np.random.default_rng(0)
    tensors, expected = load_file(directory / NAME), {}
    for name in [name for name in tensors if match in name and name.endswith(".weight")]:
        stored, expected[name] = store(tensors.pop(name), generator)
        stem = name.removesuffix("weight")
        tensors |= {stem + suffix: values for suffix, values in stored.items()}
    save_file(tensors, directory / NAME)
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}))
    return expected


@pytest.fixture
def saved(qwen3, make_sparse, make_params, tmp_path):
    moe = dataclasses.replace(make_sparse("deepseek_v3").moe, expert_size=32, shared_size=32)
    config = make_sparse("deepseek_v3", moe=moe)
    model = dataclasses.replace(qwen3, config=config, params=make_params(config))
    save_hf(model, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("store", "config"), [(pack_int4, PACKED), (cast_fp8, FP8)], ids=["int4", "fp8"]
)
def test_quantised_experts_are_multiplied_out(saved, store, config):
    plain = load_model(saved).params
    expected = quantise_files(saved, store, config, "mlp.experts.")
    params = load_model(saved).params
    name = "model.layers.2.mlp.experts.5.down_proj.weight"
    np.testing.assert_allclose(
        params["layers"]["expert_down_proj"]["kernel"][1, 5], expected[name].T, rtol=1e-6
    )
    np.testing.assert_array_equal(
        params["layers"]["q_b_proj"]["kernel"], plain["layers"]["q_b_proj"]["kernel"]
    )


def test_four_bits_are_kept_as_they_are_stored(saved):
    expected = quantise_files(saved, pack_int4, PACKED, "mlp.experts.")
    quantization = Quantization(bits=4, group=GROUP, targets="expert_")
    kernel = load_model(saved, quantization=quantization).params["layers"]["expert_up_proj"][
        "kernel"
    ]
    assert isinstance(kernel, QuantizedKernel)
    # -8 occurs, which quantising anew would never make.
    assert int(kernel.values.astype(jnp.int8).min()) == -8
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    np.testing.assert_allclose(np.asarray(kernel)[0, 3], expected[name].T, rtol=1e-6)


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_any_part_is_a_part_of_the_whole(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("part")
    generator = np.random.default_rng(1)
    store, config = data.draw(st.sampled_from([(pack_int4, PACKED), (cast_fp8, FP8), (None, None)]))
    weight = generator.standard_normal((40, 48)).astype(np.float32)
    stored, whole = ({"weight": weight}, weight) if store is None else store(weight, generator)
    save_file({f"a.{key}": value for key, value in stored.items()}, directory / NAME)
    rows, columns = (
        tuple(sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2))))
        for size in whole.shape
    )
    values = {} if config is None else {"quantization_config": config}
    with Checkpoint.open(directory, values) as checkpoint:
        assert checkpoint.names() == ["a.weight"]
        assert checkpoint.shape("a.weight") == whole.shape
        part = checkpoint.read("a.weight", (rows, columns))
        np.testing.assert_allclose(checkpoint.read("a.weight"), whole, rtol=1e-6)
    np.testing.assert_allclose(part, whole[slice(*rows), slice(*columns)], rtol=1e-6)


def test_large_models_are_written_in_shards(saved, tmp_path):
    model = load_model(saved)
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    save_safetensors(tmp_path, model.config, model.params, shard_bytes=100_000)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    index = json.loads((tmp_path / INDEX).read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in jax.tree.leaves(model.params))
    for path in saved.glob("tokenizer*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    jax.tree.map(np.testing.assert_array_equal, load_model(tmp_path).params, model.params)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "fp8"},
        {**PACKED, "format": "float-quantized"},
        {**PACKED, "config_groups": {}},
        "fp8",
    ],
)
def test_other_forms_are_refused(make_sparse, config):
    values = make_sparse("deepseek_v3").to_hf() | {"quantization_config": config}
    with pytest.raises(UserError, match="quantization_config.*fp8 with weight_block_size"):
        ModelConfig.from_hf(values)


def test_a_weight_without_its_scale_is_missed(saved):
    quantise_files(saved, pack_int4, PACKED, "mlp.experts.")
    tensors = load_file(saved / NAME)
    tensors.pop("model.layers.2.mlp.experts.5.down_proj.weight_scale")
    save_file(tensors, saved / NAME)
    with pytest.raises(UserError, match=r"lacks 1 of .*experts\.5\.down_proj\.weight"):
        load_model(saved)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"[]", "corrupt"),
        (b'{"a": 1}', "corrupt"),
        (b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}', "unknown type F99"),
        (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', "another size"),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 9]}}', "outside the file"),
        (b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}', "outside the file"),
    ],
)
def test_headers_that_make_no_sense(tmp_path, header, words):
    path = tmp_path / NAME
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"1234")
    with pytest.raises(UserError, match=f"corrupt or cut off.*{words}|{words}"):
        TensorFile(path)
