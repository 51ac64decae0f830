"""Kernels in few bits: how near they are, that they act as arrays, and what they weigh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.learner import FullSpec, LoraSpec, merge_lora
from jax_t2sql.models import (
    Quantization,
    describe_params,
    hidden_fn,
    load_model,
    quantize_params,
    save_hf,
)
from jax_t2sql.models.quantized import QuantizedKernel

GROUP = 4
BITS = {8: Quantization(bits=8, group=GROUP), 4: Quantization(bits=4, group=GROUP)}


def multiplied_out(params):
    """The same values as plain arrays."""

    def plain(leaf):
        return leaf.astype(jnp.float32) if isinstance(leaf, QuantizedKernel) else leaf

    return jax.tree.map(plain, params, is_leaf=lambda x: isinstance(x, QuantizedKernel))


@settings(deadline=None)  # the first call compiles
@given(bits=st.sampled_from([4, 8]), seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_every_number_is_within_half_a_step(bits, seed, scale):
    kernel = scale * np.random.default_rng(seed).standard_normal((3, 8, 5)).astype(np.float32)
    kernel[0, :GROUP] = 0  # a group of zeros has no scale
    values, scales = BITS[bits].quantize(kernel, np.float32)
    limit = {4: 7, 8: 127}[bits]
    assert np.abs(values.astype(np.int32)).max() <= limit
    again = np.asarray(QuantizedKernel(jnp.asarray(values), jnp.asarray(scales)))
    step = np.abs(kernel.reshape(3, 2, GROUP, 5)).max(axis=2, keepdims=True) / limit
    error = np.abs(again - kernel).reshape(3, 2, GROUP, 5)
    assert (error <= 0.5001 * step).all()


@pytest.mark.parametrize("bits", BITS)
def test_a_quantised_base_computes_with_the_multiplied_out_values(
    bits, make_sparse, make_params, make_adapter
):
    config = make_sparse("qwen3_moe", num_layers=1)
    params = quantize_params(make_params(config), BITS[bits])
    adapter = make_adapter(config, LoraSpec(rank=2, alpha=2))
    tokens = np.random.default_rng(0).integers(0, 320, (1, 12)).astype(np.int32)
    row = (tokens, np.arange(12, dtype=np.int32)[None], np.ones_like(tokens))

    def loss(adapter, params):
        return jnp.sum(jnp.sin(hidden_fn(config)(params, adapter, *row)))

    run = jax.jit(jax.value_and_grad(loss))
    want = run(adapter, multiplied_out(params))
    got = run(adapter, params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3), got, want)


def test_what_is_quantised_and_what_not(make_sparse):
    config = make_sparse("deepseek_v3")
    experts = Quantization(bits=4, group=4, targets="expert_")
    for quantization, in_attention in ((BITS[8], True), (experts, False)):
        descs = describe_params(config, jnp.bfloat16, quantization)
        layer = descs["layers"]
        assert isinstance(layer["expert_up_proj"]["kernel"], QuantizedKernel)
        assert isinstance(layer["q_a_proj"]["kernel"], QuantizedKernel) == in_attention
        for leaf in (layer["router"]["embedding"], descs["lm_head"]["kernel"]):
            assert not isinstance(leaf, QuantizedKernel)
    kernel = describe_params(config, jnp.bfloat16, experts)["layers"]["expert_down_proj"]["kernel"]
    assert (kernel.values.dtype, kernel.scales.dtype) == (jnp.int4, jnp.bfloat16)
    assert (kernel.values.shape, kernel.scales.shape) == ((2, 8, 28, 64), (2, 8, 7, 64))


def test_adapters_and_shardings_take_it_for_one_array(make_sparse, make_params):
    config = make_sparse("qwen3_moe")
    plain = make_params(config)
    quantised = quantize_params(plain, BITS[8])
    spec = LoraSpec(rank=2)
    shapes = [jax.tree.map(lambda x: x.shape, spec.describe(x)) for x in (plain, quantised)]
    assert shapes[0] == shapes[1]
    descs = spec.describe(describe_params(config, quantization=BITS[8]))
    assert descs["layers"]["expert_up_proj"].a.axes == ("layers", "expert", "embed", "lora_rank")
    adapter = spec.init(quantised, jax.random.key(0))
    merged = merge_lora(quantised, adapter)["layers"]["q_proj"]["kernel"]
    np.testing.assert_allclose(merged, plain["layers"]["q_proj"]["kernel"], atol=0.02)
    with pytest.raises(ValueError, match="int8 and cannot be trained"):
        FullSpec().describe(quantised)


def test_four_bits_take_four_bits(make_sparse):
    config = make_sparse("qwen3_moe")
    kernel = describe_params(config, jnp.bfloat16, BITS[4])["layers"]["expert_up_proj"]["kernel"]
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), kernel)
    compiled = jax.jit(lambda x: x.astype(jnp.bfloat16)).lower(abstract).compile()
    numbers = 3 * 8 * 64 * 28
    expected = numbers // 2 + 2 * numbers // GROUP
    assert compiled.memory_analysis().argument_size_in_bytes == expected


def test_loading_quantises_and_saving_multiplies_out(
    make_sparse, make_params, tokenizer, qwen3, tmp_path
):
    config = make_sparse("glm4_moe")
    model = dataclasses.replace(qwen3, config=config, params=make_params(config))
    save_hf(model, tmp_path / "plain")
    loaded = load_model(tmp_path / "plain", quantization=BITS[8])
    want = quantize_params(model.params, BITS[8])
    assert jax.tree.structure(loaded.params) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_array_equal, loaded.params, want)
    save_hf(loaded, tmp_path / "again")
    again = load_model(tmp_path / "again")
    jax.tree.map(np.testing.assert_array_equal, again.params, multiplied_out(want))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"bits": 3}, "bits is 3"), ({"group": 0}, "group is 0"), ({"group": 5}, "groups of 5")],
)
def test_refusals(make_config, change, words):
    with pytest.raises(UserError, match=words):
        quantization = dataclasses.replace(BITS[8], **change)
        describe_params(make_config("llama"), quantization=quantization)
