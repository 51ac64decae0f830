"""Real GGUF models against transformers' own reading of the same files."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_t2sql.models import extend_fn, hidden_fn, init_cache, load_model, unembed_fn
from jax_t2sql.models.gguf_files import GGUFFile
from jax_t2sql.models.gguf_tokenizer import gguf_tokenizer

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")

# Left out, because transformers reads less of GGUF than there is: numerals other than 0-9 (it
# ignores tokenizer.ggml.pre and does not cut them apart), decomposed letters (it drops Qwen's NFC).
TEXTS = [
    "SELECT T1.name, COUNT(*) FROM singer AS T1 WHERE age >= 1234567 GROUP BY 1 ORDER BY 2 DESC;",
    "What's the average price of products sold in 2019, by Müller & Söhne?\n\n  Don't guess.",
    "naïve café — “quotes” … 東京は日本の首都です。 Привет! 🦙🚀 ﬁ",
    "x = 3.14159; y=-42\t# tabs\r\n\r\n    indented   and   trailing   ",
    "1,000,000 + 0.001 = 1e6? 007",
    "",
    " leading blank",
]
QUESTIONS = [
    "Write a SQL query for SQLite that counts the orders of every customer.",
    "Name three rivers of France and say how long each of them is.",
]
NEW = 64


@pytest.fixture(scope="module")
def path(model_dir) -> Path:
    return model_dir / "smollm2.gguf"


@pytest.fixture(scope="module")
def ours(path):
    return load_model(path)


def test_smollm2_tokenizer_gives_identical_ids(ours, path):
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TEXTS:
        ids = ours.tokenizer.encode(text)
        assert ids == theirs(text, add_special_tokens=False)["input_ids"], text
        assert ours.tokenizer.decode(ids) == text
    messages = [{"role": "user", "content": "Hi"}]
    rendered = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ours.tokenizer.render(messages) == rendered


@pytest.mark.parametrize("question", QUESTIONS)
def test_smollm2_logits_and_greedy_tokens(ours, path, question):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    text = ours.tokenizer.render([{"role": "user", "content": question}])
    prompt = jnp.asarray([ours.tokenizer.encode(text, special=True)])
    tokens = np.asarray(greedy(ours, prompt))
    ids = torch.tensor(tokens, dtype=torch.long)
    with torch.no_grad():
        expected = theirs(ids).logits.numpy()
        exact = theirs.double()(ids).logits.numpy()
    positions = np.arange(tokens.shape[1], dtype=np.int32)[None]
    hidden = jax.jit(hidden_fn(ours.config))(
        ours.params, None, tokens, positions, np.ones_like(tokens)
    )
    logits = unembed_fn(ours.config)(ours.params, None, hidden)
    error = np.abs(logits - expected)
    assert np.quantile(error, 0.9999) < 1e-4
    # This model has activations of 22,000 at the first token, so that float32 itself is only good
    # to 1e-4 on logits up to 40: transformers' own are up to 9.3e-5 away from its float64 ones.
    assert error.max() < 2e-4
    assert np.abs(logits - exact).max() < 1.5 * np.abs(expected - exact).max()
    start = prompt.shape[1]
    np.testing.assert_array_equal(tokens[:, start:], expected.argmax(axis=-1)[:, start - 1 : -1])


def greedy(model, prompt):
    config, params = model.config, model.params
    length = prompt.shape[1]
    total = length + NEW
    extend, unembed = extend_fn(config), unembed_fn(config)
    valid = jnp.ones((1, total), bool)

    def best(params, hidden):
        return jnp.argmax(unembed(params, None, hidden[:, -1]), axis=-1).astype(jnp.int32)

    def run(params, prompt):
        positions = jnp.arange(length)[None]
        cache = init_cache(config, 1, total)
        hidden, cache = extend(params, None, prompt, positions, valid, cache, 0)

        def step(carry, slot):
            token, cache = carry
            hidden, cache = extend(
                params, None, token[:, None], slot[None, None], valid, cache, slot
            )
            return (best(params, hidden), cache), token

        _, new = jax.lax.scan(step, (best(params, hidden), cache), jnp.arange(length, total))
        return jnp.concatenate([prompt, new.T], axis=1)

    return jax.jit(run)(params, prompt)


def test_qwen2_coder_tokenizer(model_dir):
    """The other family's rule for cutting text: single digits, words with their punctuation."""
    path = model_dir / "qwen25coder05b.gguf"
    if not path.is_file():
        pytest.skip(f"no {path}")
    ours = gguf_tokenizer(GGUFFile(path))
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    assert ours.encode("e\u0301") == ours.encode("\u00e9")
