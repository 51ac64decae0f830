"""Configurations: Hugging Face round trip, rope scaling, and clear refusals."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.models import ModelConfig
from jax_t2sql.models.rope_scaling import (
    DynamicScaling,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    YarnScaling,
    inverse_frequencies,
    llama3_frequencies,
    recognise_frequency_factors,
    scaling_from_hf,
)

factors = st.floats(1.0, 64.0)
scalings = st.one_of(
    st.none(),
    st.builds(LinearScaling, factor=factors),
    st.builds(DynamicScaling, factor=factors, original_max_position_embeddings=st.just(128)),
    st.builds(
        Llama3Scaling,
        factor=factors,
        low_freq_factor=st.floats(0.5, 2.0),
        high_freq_factor=st.floats(3.0, 8.0),
        original_max_position_embeddings=st.integers(16, 8192),
    ),
    st.builds(
        YarnScaling,
        factor=factors,
        original_max_position_embeddings=st.integers(16, 8192),
        attention_factor=st.floats(0.5, 2.0),
        beta_fast=st.floats(8.0, 64.0),
        beta_slow=st.floats(0.5, 4.0),
        truncate=st.booleans(),
    ),
)


@given(family=st.sampled_from(["llama", "qwen2", "qwen3"]), scaling=scalings, tied=st.booleans())
def test_hugging_face_round_trip(make_config, family, scaling, tied):
    config = make_config(family, rope_scaling=scaling, tie_embeddings=tied, rope_theta=5e5)
    assert ModelConfig.from_hf(config.to_hf()) == config


@given(family=st.sampled_from(["qwen3_moe", "deepseek_v3", "glm4_moe"]), data=st.data())
def test_hugging_face_round_trip_of_mixtures(make_sparse, family, data):
    config = make_sparse(family, rope_scaling=data.draw(scalings), rope_theta=5e4)
    changes = {"normalize": data.draw(st.booleans()), "dense_layers": data.draw(st.integers(0, 2))}
    if family != "qwen3_moe":
        changes |= {
            "scale": data.draw(st.floats(0.5, 4)),
            "shared_size": data.draw(st.sampled_from([28, 56])),
        }
    config = dataclasses.replace(config, moe=dataclasses.replace(config.moe, **changes))
    if config.mla:
        mla = dataclasses.replace(
            config.mla,
            query_rank=data.draw(st.sampled_from([None, 16])),
            interleaved=data.draw(st.booleans()),
        )
        config = dataclasses.replace(config, mla=mla)
    if family == "glm4_moe":
        bias, norm = data.draw(st.booleans()), data.draw(st.booleans())
        config = dataclasses.replace(config, qkv_bias=bias, qk_norm=norm)
    assert ModelConfig.from_hf(config.to_hf()) == config


def test_kimi_is_deepseek_by_another_name(make_sparse):
    config = make_sparse("deepseek_v3")
    assert ModelConfig.from_hf({**config.to_hf(), "model_type": "kimi_k2"}) == config


def test_both_spellings_of_rope_are_read(make_config):
    values = make_config("llama").to_hf()
    new = {**values, "rope_theta": None, "rope_scaling": None}
    new["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0}
    old = {**values, "rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert ModelConfig.from_hf(new) == ModelConfig.from_hf(old)
    assert ModelConfig.from_hf(new).rope_theta == 77.0


def test_yarn_defaults_are_those_of_the_paper():
    scaling = scaling_from_hf(
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        max_position_embeddings=128,
    )
    assert scaling.attention_factor == pytest.approx(0.1 * np.log(4) + 1)
    assert (scaling.beta_fast, scaling.beta_slow) == (32, 1)


def test_llama3_divisors_are_recognised_and_others_kept():
    plain = inverse_frequencies(5e5, 64)
    true = Llama3Scaling(
        factor=32.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    divisors = plain / llama3_frequencies(plain, true)
    assert recognise_frequency_factors(divisors, theta=5e5, head_dim=64) == true
    divisors[3] = 1.5
    kept = recognise_frequency_factors(divisors, theta=5e5, head_dim=64)
    assert isinstance(kept, FrequencyFactors)
    np.testing.assert_array_equal(np.float32(kept.factors), divisors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "gemma2"}, ("gemma2", "llama, qwen2, qwen3, qwen3_moe")),
        ({"model_type": None}, ("None", "llama, qwen2, qwen3")),
        ({"hidden_act": "gelu"}, ("hidden_act", "gelu")),
        ({"attention_bias": True}, ("attention_bias", "True")),
        ({"mlp_bias": True}, ("mlp_bias",)),
        ({"use_sliding_window": True}, ("use_sliding_window",)),
        ({"quantization_config": {"bits": 4}}, ("quantization_config",)),
        (
            {"rope_scaling": {"rope_type": "longrope"}},
            ("longrope", "linear, dynamic"),
        ),
        ({"rope_scaling": {"rope_type": "linear"}}, ("linear", "factor")),
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, ("partial_rotary_factor", "0.5")),
        ({"num_key_value_heads": 3}, ("num_heads 4", "num_kv_heads 3")),
        ({"head_dim": 31}, ("head_dim 31", "even")),
        ({"vocab_size": 0}, ("vocab_size is 0",)),
    ],
)
def test_what_is_not_supported_is_refused_by_name(make_config, change, words):
    with pytest.raises(UserError) as error:
        ModelConfig.from_hf({**make_config("llama").to_hf(), **change})
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("qwen3_moe", {"mlp_only_layers": [1]}, ("mlp_only_layers=[1]", "only the first")),
        ("qwen3_moe", {"decoder_sparse_step": 2}, ("decoder_sparse_step=2",)),
        ("qwen3_moe", {"num_experts": None}, ("num_experts",)),
        ("qwen3_moe", {"num_experts_per_tok": 9}, ("experts_per_token 9", "8 experts")),
        ("deepseek_v3", {"scoring_func": "softmax"}, ("scoring_func", "softmax")),
        ("deepseek_v3", {"topk_method": "greedy"}, ("topk_method", "greedy")),
        ("deepseek_v3", {"n_group": 3}, ("num_experts 8", "3 groups")),
        ("deepseek_v3", {"n_group": 8}, ("8 groups of one expert",)),
        ("deepseek_v3", {"topk_group": 5}, ("groups_used 5", "4 groups")),
        ("deepseek_v3", {"topk_group": 1}, ("experts_per_token 3", "2 experts")),
        ("deepseek_v3", {"v_head_dim": 30}, ("value_dim 30", "rope_dim 8")),
        ("deepseek_v3", {"first_k_dense_replace": 3}, ("dense_layers is 3", "num_layers 3")),
        ("deepseek_v3", {"kv_lora_rank": 0}, ("latent_dim is 0",)),
        ("glm4_moe", {"moe_layer_freq": 2}, ("moe_layer_freq", "2")),
        ("glm4_moe", {"partial_rotary_factor": 1.5}, ("rotary_dim 48", "head_dim 32")),
    ],
)
def test_mixtures_that_are_not_supported(make_sparse, family, change, words):
    with pytest.raises(UserError) as error:
        ModelConfig.from_hf({**make_sparse(family).to_hf(), **change})
    assert all(word in str(error.value) for word in words)


def test_a_missing_size_is_named(make_config):
    values = make_config("llama").to_hf()
    del values["intermediate_size"]
    with pytest.raises(UserError, match="intermediate_size"):
        ModelConfig.from_hf(values)


def test_a_mixture_of_switches_cannot_be_exported(make_config):
    config = dataclasses.replace(make_config("llama"), qk_norm=True)
    with pytest.raises(UserError, match="qk_norm"):
        config.to_hf()
