"""Mixtures of experts: the same logits and the same experts as Hugging Face transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.models import (
    extend_fn,
    hidden_fn,
    init_cache,
    load_model,
    routing_fn,
    save_hf,
    unembed_fn,
)

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")

LENGTH = 40
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 28,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "num_experts_per_tok": 3,
    "rms_norm_eps": 1e-5,
    # Wide, so that attention and routing are far from uniform.
    "initializer_range": 0.2,
}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "routed_scaling_factor": 2.5,
    "n_group": 4,
    "topk_group": 2,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 50_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 16.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.8,
}
GLM = {
    "num_key_value_heads": 2,
    "head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
CASES = {
    "qwen3_moe": (
        "Qwen3Moe",
        {"num_key_value_heads": 2, "head_dim": 32, "num_experts": 8, "norm_topk_prob": True},
    ),
    "qwen3_moe, one dense layer, not normalised": (
        "Qwen3Moe",
        {"num_key_value_heads": 2, "head_dim": 16, "num_experts": 6, "mlp_only_layers": [0]},
    ),
    "deepseek_v3": ("DeepseekV3", {**LATENT, "rope_parameters": YARN}),
    "deepseek_v3, queries at once, halves, no groups": (
        "DeepseekV3",
        {**LATENT, "q_lora_rank": None, "rope_interleave": False, "n_group": 1, "topk_group": 1},
    ),
    "glm4_moe": ("Glm4Moe", {**GLM, "attention_bias": True}),
    "glm4_moe, query and key norms": ("Glm4Moe", {**GLM, "use_qk_norm": True}),
}


@pytest.fixture(params=CASES, scope="module")
def pair(request, tokenizer, tmp_path_factory):
    """(transformers model, the same loaded here) from one directory."""
    family, options = CASES[request.param]
    config = getattr(transformers, f"{family}Config")(**SIZES, **options)
    torch.manual_seed(0)
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, array in (*theirs.named_parameters(), *theirs.named_buffers()):
            if "norm" in name or "bias" in name:  # Ones and zeros by default.
                array.add_(0.3 * torch.randn_like(array))
    directory = tmp_path_factory.mktemp("hf")
    theirs.save_pretrained(directory)
    tokenizer.save(directory)
    return theirs, load_model(directory)


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(4).integers(0, 320, (2, LENGTH)).astype(np.int32)


def row_of(tokens):
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    return tokens, positions, np.ones_like(tokens)


def their_logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens, dtype=torch.long)).logits.numpy()


def their_experts(model, tokens):
    """Experts [L, B, T, K] of every sparse layer, sorted, seen by hooks on the routers."""
    chosen = []

    def keep(module, inputs, output):
        chosen.append(np.sort(output[2].reshape(*tokens.shape, -1).numpy(), axis=-1))

    hooks = [
        module.register_forward_hook(keep)
        for name, module in model.named_modules()
        if name.endswith("mlp.gate")
    ]
    logits = their_logits(model, tokens)
    for hook in hooks:
        hook.remove()
    return logits, np.stack(chosen)


def test_logits_and_experts(pair, tokens):
    theirs, ours = pair
    expected, expected_LBTK = their_experts(theirs, tokens)
    hidden = jax.jit(hidden_fn(ours.config))(ours.params, None, *row_of(tokens))
    logits = unembed_fn(ours.config)(ours.params, None, hidden)
    np.testing.assert_allclose(logits, expected, atol=2e-4, rtol=0)
    assert expected.std() > 0.3
    experts_LBTK = jax.jit(routing_fn(ours.config))(ours.params, None, *row_of(tokens))
    np.testing.assert_array_equal(np.sort(experts_LBTK, axis=-1), expected_LBTK)
    assert len(np.unique(expected_LBTK)) == ours.config.moe.num_experts


def test_decoding_with_the_cache(pair, tokens):
    theirs, ours = pair
    expected = their_logits(theirs, tokens)
    config, params = ours.config, ours.params
    extend = jax.jit(extend_fn(config))
    cache = init_cache(config, 2, LENGTH)
    valid = jnp.ones((2, LENGTH), bool)
    parts = []
    for start, stop in ((0, 30), (30, 31), (31, 32)):
        _, positions, _ = row_of(tokens)
        hidden, cache = extend(
            params, None, tokens[:, start:stop], positions[:, start:stop], valid, cache, start
        )
        parts.append(unembed_fn(config)(params, None, hidden))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected[:, :32], atol=2e-4, rtol=0)


def test_transformers_reads_what_is_saved(pair, tokens, tmp_path):
    theirs, ours = pair
    save_hf(ours, tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(theirs)
    np.testing.assert_array_equal(their_logits(again, tokens), their_logits(theirs, tokens))
