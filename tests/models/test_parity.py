"""The same numbers as Hugging Face transformers, on random models of every family.

The models are written by transformers, so that its own files are what is read here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.models import extend_fn, hidden_fn, init_cache, load_model, unembed_fn
from jax_t2sql.models.rope_scaling import DynamicScaling

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")

PROMPT, NEW = 16, 64
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
CASES = {
    "llama": ("Llama", {}, None),
    "llama tied, one kv head": ("Llama", {"tie_word_embeddings": True, "kv": 1}, None),
    "llama linear": ("Llama", {}, {"rope_type": "linear", "factor": 3.0}),
    "llama dynamic": ("Llama", {"positions": 48}, {"rope_type": "dynamic", "factor": 2.0}),
    "llama llama3": ("Llama", {}, LLAMA3),
    "qwen2": ("Qwen2", {}, None),
    "qwen2 yarn": ("Qwen2", {"tie_word_embeddings": True}, YARN),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}, None),
    "qwen3 yarn": (
        "Qwen3",
        {},
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False},
    ),
}


@pytest.fixture(params=CASES, scope="module")
def pair(request, tokenizer, tmp_path_factory):
    """(transformers model, the same loaded here) from one directory."""
    family, options, rope = CASES[request.param]
    options = dict(options)
    rope = {"rope_theta": 10_000.0, "rope_type": "default", **(rope or {})}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=options.pop("kv", 2),
        head_dim=32 if family == "Qwen3" else 16,
        max_position_embeddings=options.pop("positions", 128),
        rope_parameters=rope,
        # Wide, so that attention is far from uniform and the best token is clear.
        initializer_range=0.2,
        rms_norm_eps=1e-5,
        **options,
    )
    torch.manual_seed(0)
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "norm" in name or "bias" in name:  # Ones and zeros by default.
                parameter.add_(0.3 * torch.randn_like(parameter))
    directory = tmp_path_factory.mktemp("hf")
    theirs.save_pretrained(directory)
    tokenizer.save(directory)
    return theirs, load_model(directory)


def test_logits_and_greedy_tokens(pair):
    """Decoding here with a cache, transformers reading the outcome in one pass, must agree."""
    theirs, ours = pair
    prompt = np.random.default_rng(4).integers(0, 320, (2, PROMPT)).astype(np.int32)
    tokens = np.asarray(greedy(ours, prompt))
    if isinstance(ours.config.rope_scaling, DynamicScaling):
        # Past the original length one pass differs from token-by-token decoding by definition.
        expected = decode_with_transformers(theirs, prompt)
        np.testing.assert_array_equal(tokens, expected)
        tokens = tokens[:, : ours.config.max_position_embeddings - 1]
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    hidden = jax.jit(hidden_fn(ours.config))(
        ours.params, None, tokens, positions, np.ones_like(tokens)
    )
    logits = unembed_fn(ours.config)(ours.params, None, hidden)
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=0)
    chosen = expected.argmax(axis=-1)[:, PROMPT - 1 : -1]
    np.testing.assert_array_equal(tokens[:, PROMPT:], chosen)
    assert len(np.unique(tokens[:, PROMPT:])) > 10


def decode_with_transformers(model, prompt):
    with torch.no_grad():
        return model.generate(
            torch.tensor(prompt, dtype=torch.long),
            max_new_tokens=NEW,
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        ).numpy()


def greedy(model, prompt):
    config, params = model.config, model.params
    extend, unembed = extend_fn(config), unembed_fn(config)
    rows, total = len(prompt), PROMPT + NEW
    valid = jnp.ones((rows, total), bool)

    def best(hidden):
        return jnp.argmax(unembed(params, None, hidden[:, -1]), axis=-1).astype(jnp.int32)

    def step(carry, slot):
        token, cache = carry
        positions = jnp.full((rows, 1), slot)
        hidden, cache = extend(params, None, token[:, None], positions, valid, cache, slot)
        return (best(hidden), cache), token

    def run(prompt):
        positions = jnp.broadcast_to(jnp.arange(PROMPT), prompt.shape)
        cache = init_cache(config, rows, total)
        hidden, cache = extend(params, None, prompt, positions, valid, cache, 0)
        _, new = jax.lax.scan(step, (best(hidden), cache), jnp.arange(PROMPT, total))
        return jnp.concatenate([prompt, new.T], axis=1)

    return jax.jit(run)(prompt)
