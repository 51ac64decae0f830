"""GGUF files written here: weights, every tensor type, metadata, tokenizers, damage."""

import gguf
import jax
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.models import load_model
from jax_t2sql.models.gguf_files import GGUFFile, gguf_config
from jax_t2sql.models.gguf_tokenizer import SUPPORTED_PRE, gguf_tokenizer
from jax_t2sql.models.naming import file_tensors, gguf_module
from jax_t2sql.models.rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    YarnScaling,
    inverse_frequencies,
    llama3_frequencies,
)

# The sizes of the file are those of tests' qwen3, but 32-wide so that blocks of Q8_0 fit.
PIECES = [*(chr(c) for c in range(33, 127)), "Ġ", "Ċ", "SE", "LE", "SELE", "CT", "SELECT", "ĠF"]
MERGES = ["S E", "L E", "SE LE", "C T", "SELE CT", "Ġ F"]
CONTROL = ["<|im_start|>", "<|im_end|>", "<think>"]


def write_tokenizer(writer, *, pre="qwen2", kind="gpt2", size=320):
    tokens = PIECES + CONTROL
    tokens += [f"<unused{i}>" for i in range(size - len(tokens))]
    types = [1] * len(PIECES) + [3, 3, 4] + [5] * (size - len(PIECES) - 3)
    writer.add_tokenizer_model(kind)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(len(PIECES) + 1)
    writer.add_bos_token_id(len(PIECES))


def write_metadata(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def write_gguf(path, config, params, *, architecture=None, extra=None, tensors=True, **tokenizer):
    """Writes a model as llama.cpp's converter does: quantised matrices, interleaved llama rows."""
    writer = gguf.GGUFWriter(path, architecture or config.architecture)
    write_metadata(writer, config)
    write_tokenizer(writer, **tokenizer)
    if extra:
        extra(writer)
    if tensors:
        for keys, parts in file_tensors(config, gguf_module).items():
            leaf = params
            for key in keys:
                leaf = leaf[key]
            for part in parts:
                ours = np.asarray(leaf[part.index])
                values = np.ascontiguousarray(part.to_file(ours))
                heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
                if config.architecture == "llama" and part.module in heads:
                    values = interleave(values, heads[part.module])
                kind = Type.Q8_0 if values.ndim == 2 else Type.F32
                writer.add_tensor(part.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave(rows, heads):
    """The row order of llama.cpp's converter: halves of a head become neighbours."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


@pytest.mark.parametrize(
    ("family", "changes"),
    [("llama", {}), ("llama", {"tie_embeddings": True}), ("qwen2", {}), ("qwen3", {})],
)
def test_weights_and_configuration(family, changes, make_config, make_params, tmp_path):
    config = make_config(family, rope_theta=5e5, rms_norm_eps=1e-5, **changes)
    params = make_params(config)
    path = tmp_path / "model.gguf"
    write_gguf(path, config, params)
    model = load_model(path)
    assert model.config == config
    for ours, expected in zip(jax.tree.leaves(model.params), jax.tree.leaves(params), strict=True):
        # Q8_0 rounds to 1/254 of the largest in a block of 32.
        np.testing.assert_allclose(ours, expected, atol=0.006)
    assert len(model.sha256) == 64


@pytest.mark.parametrize("kind", sorted(gguf.quants._type_traits, key=lambda t: t.name))
def test_every_type_that_the_library_dequantises(kind, tmp_path):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(0).integers(0, 60, (3, 2 * size), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("t", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values = GGUFFile(tmp_path / "x.gguf").values("t")
    assert values.shape == (3, 2 * block)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, gguf.quants.dequantize(data, kind))


def rope_file(tmp_path, config, extra):
    path = tmp_path / "rope.gguf"
    write_gguf(path, config, None, extra=extra, tensors=False)
    file = GGUFFile(path)
    # Only the shape is read.
    file.tensors["token_embd.weight"] = type("T", (), {"shape": (64, 320)})
    return file


@pytest.mark.parametrize("kind", ["linear", "yarn", "none", "longrope"])
def test_rope_scaling_in_metadata(kind, make_config, tmp_path):
    def extra(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)

    file = rope_file(tmp_path, make_config("qwen3"), extra)
    if kind == "longrope":
        with pytest.raises(UserError, match="'longrope', which is not supported"):
            gguf_config(file)
        return
    scaling = gguf_config(file).rope_scaling
    if kind == "yarn":
        assert isinstance(scaling, YarnScaling)
        assert (scaling.factor, scaling.original_max_position_embeddings) == (4.0, 32)
        assert scaling.attention_factor == pytest.approx(0.1 * np.log(4) + 1)
    else:
        assert scaling == {"linear": LinearScaling(factor=4.0), "none": None}[kind]


def test_llama3_scaling_comes_from_the_frequency_tensor(make_config, tmp_path):
    true = Llama3Scaling(
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    plain = inverse_frequencies(5e5, 32)
    divisors = (plain / llama3_frequencies(plain, true)).astype(np.float32)
    file = rope_file(
        tmp_path,
        make_config("llama", rope_theta=5e5, tie_embeddings=True),
        lambda writer: writer.add_tensor("rope_freqs.weight", divisors),
    )
    assert gguf_config(file).rope_scaling == true


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "gemma3"}, "'gemma3' is not supported; supported: llama, qwen2, qwen3"),
        ({"extra": lambda w: w.add_expert_count(8)}, "mixture of experts"),
        ({"extra": lambda w: w.add_rope_dimension_count(8)}, "rotates 8 of 32"),
        ({"pre": "gpt-4o"}, "'gpt-4o', which is not supported; supported: .*qwen2"),
        ({"pre": None}, r"'\(none\)', which is not supported"),
        ({"kind": "llama"}, "kind 'llama'.*Hugging Face directory"),
        ({"tensors": False}, "no token embeddings"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    change, words, make_config, make_params, tmp_path
):
    config = make_config("qwen3")
    write_gguf(tmp_path / "x.gguf", config, make_params(config), **change)
    with pytest.raises(UserError, match=words):
        load_model(tmp_path / "x.gguf")


def test_wrong_shape_names_the_tensor_and_both_shapes(make_config, make_params, tmp_path):
    config = make_config("llama")
    path = tmp_path / "x.gguf"
    write_gguf(path, make_config("llama", intermediate_size=128), make_params(config))
    with pytest.raises(UserError) as error:
        load_model(path)
    text = str(error.value)
    assert "blk.0.ffn_gate.weight" in text or "blk.0.ffn_down.weight" in text
    assert "96" in text and "128" in text


def test_tensors_of_another_architecture_are_not_ignored(make_config, make_params, tmp_path):
    config = make_config("qwen3")
    bias = np.zeros(128, np.float32)
    write_gguf(
        tmp_path / "x.gguf",
        config,
        make_params(config),
        extra=lambda writer: writer.add_tensor("blk.0.attn_q.bias", bias),
    )
    with pytest.raises(UserError, match=r"does not have.*blk\.0\.attn_q\.bias"):
        load_model(tmp_path / "x.gguf")


@pytest.fixture(scope="module")
def intact(make_config, make_params, tmp_path_factory):
    config = make_config("qwen2")
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    write_gguf(path, config, make_params(config))
    return path.read_bytes()


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_cut_off_files_give_one_clear_error(intact, tmp_path_factory, data):
    keep = data.draw(st.integers(0, len(intact) - 1))
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(intact[:keep])
    with pytest.raises(UserError, match="not a GGUF file|not a complete GGUF file"):
        load_model(path)


def test_a_damaged_header_gives_one_clear_error(intact, tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(intact[:4] + b"\xff\xff\xff\xff" + intact[8:])
    with pytest.raises(UserError, match="not a complete GGUF file"):
        load_model(path)


@pytest.mark.parametrize("pre", SUPPORTED_PRE)
def test_text_survives_every_rule(pre, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    write_tokenizer(writer, pre=pre)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer = gguf_tokenizer(GGUFFile(tmp_path / "x.gguf"))
    text = "SELECT FROM t9 WHERE x1 = 2024;\n  -- <|im_end|>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    words = [tokenizer.decode([i]) for i in tokenizer.encode("SELECT F")]
    assert words == ["SELECT", " F"]
    assert tokenizer.encode("<|im_end|>", special=True) == [len(PIECES) + 1]
    assert len(tokenizer.encode("<|im_end|>")) > 1
    assert tokenizer.encode("<think>") == [len(PIECES) + 2]
    assert tokenizer.stop_ids == (len(PIECES) + 1,)
