import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_transformer as tiny

from jax_t2sql.learner import FullSpec, LoraPair, LoraSpec, lora_linear, lora_pairs, merge_lora


def paths(adapter):
    return sorted("/".join(keys) for keys, _ in lora_pairs(adapter))


def test_all_linear_targets_every_kernel_but_the_head():
    base = tiny.init_base()
    adapter = LoraSpec(rank=4, alpha=8).init(base, jax.random.key(0))
    assert paths(adapter) == ["layers/mix", "layers/out", "layers/qkv"]
    pair = adapter["layers"]["qkv"]
    assert pair.a.shape == (2, 16, 4) and pair.b.shape == (2, 4, 48) and pair.scale == 2.0
    assert np.abs(pair.a).max() <= 16**-0.5 and np.std(pair.a) > 0.1
    assert not pair.b.any()


def test_patterns_choose_by_path_and_never_touch_scales_or_embeddings():
    base = tiny.init_base()
    assert paths(LoraSpec(targets=("qkv", "lm_head")).describe(base)) == ["layers/qkv", "lm_head"]
    everything = paths(LoraSpec(targets=(".",)).describe(base))
    assert everything == ["layers/mix", "layers/out", "layers/qkv", "lm_head"]


@pytest.mark.parametrize("targets", [("q_proj",), ("qkv", "q_proj"), ()])
def test_targets_that_match_nothing_are_refused_with_the_candidates(targets):
    with pytest.raises(ValueError, match="match nothing.*layers/mix/kernel.*lm_head/kernel"):
        LoraSpec(targets=targets).describe(tiny.init_base())


def test_a_model_without_kernels_is_refused():
    with pytest.raises(ValueError, match="'all-linear' match nothing.*candidates are: w"):
        LoraSpec().describe({"w": jnp.zeros((2, 2))})


def test_impossible_specs_are_refused():
    with pytest.raises(ValueError, match="rank .* got 0"):
        LoraSpec(rank=0)
    with pytest.raises(ValueError, match=r"write \('q_proj',\)"):
        LoraSpec(targets="q_proj")


def test_kernels_outside_modules_and_in_lists_are_found_under_their_own_path():
    base = {"blocks": [{"wq": jnp.ones((3, 2))}, {"mlp": {"kernel": jnp.ones((3, 2))}}]}
    adapter = LoraSpec(targets=("wq", "mlp"), rank=1).init(base, jax.random.key(0))
    assert isinstance(adapter["blocks"][0]["wq"], LoraPair)
    assert isinstance(adapter["blocks"][1]["mlp"], LoraPair)
    merged = merge_lora(base, jax.tree.map(jnp.ones_like, adapter))
    np.testing.assert_allclose(merged["blocks"][0]["wq"], 1 + 32.0)


def test_merged_weights_act_like_the_adapter():
    base = {"m": {"kernel": jax.random.normal(jax.random.key(0), (5, 3))}}
    adapter = LoraSpec(rank=2, alpha=3).init(base, jax.random.key(1))
    adapter = jax.tree.map(lambda x: x + 0.3, adapter)
    x = jax.random.normal(jax.random.key(2), (2, 4, 5))
    np.testing.assert_allclose(
        lora_linear(x, base["m"]["kernel"], adapter["m"]),
        x @ merge_lora(base, adapter)["m"]["kernel"],
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("spec", [LoraSpec(), FullSpec()])
def test_what_trains_is_float32_and_described_truthfully(spec):
    base = tiny.init_base(dtype=jnp.bfloat16)
    trainable = spec.init(base, jax.random.key(0))
    described = spec.describe(base)
    jax.tree.map(lambda d, x: np.testing.assert_equal((d.shape, d.dtype), (x.shape, x.dtype)),
                 described, trainable)  # fmt: skip
    assert {leaf.dtype for leaf in jax.tree.leaves(trainable)} == {jnp.dtype("float32")}


def test_full_training_refuses_what_has_no_gradient():
    with pytest.raises(ValueError, match="layer/codes has dtype int8"):
        FullSpec().describe({"layer": {"codes": jnp.zeros(3, jnp.int8)}})
