"""The shapes that learners are compared on, as plain numbers for every contestant."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Shape:
    """One update: `rows` sequences that share a prompt if `shared`, else have one each."""

    name: str
    rows: int
    prompt: int
    completion: int
    vocab: int
    shared: bool
    hidden: int = 384
    inner: int = 1024
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    rank: int = 32

    @property
    def length(self) -> int:
        return self.prompt + self.completion

    @property
    def tokens(self) -> int:
        return self.rows * self.length


SHAPES = {
    "rows": Shape("rows", 16, 128, 384, 8_192, shared=False),
    "group": Shape("group", 16, 2_048, 192, 32_768, shared=True),
    # Small enough to see in seconds that every contestant runs.
    "check": Shape("check", 4, 64, 32, 512, shared=True, hidden=64, inner=128, layers=2, heads=2,
                   kv_heads=1, head_dim=32, rank=4),
}  # fmt: skip


def make_data(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [rows, length] and advantages [rows], the same for every contestant."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, shape.vocab, (shape.rows, shape.length), dtype=np.int32)
    if shape.shared:
        ids[:, : shape.prompt] = ids[0, : shape.prompt]
    advantages = rng.normal(size=shape.rows).astype(np.float32)
    return ids, advantages - advantages.mean()


def hf_values(shape: Shape) -> dict:
    """The model as a Hugging Face config.json says it."""
    return {
        "model_type": "qwen3",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": True,
        "rope_theta": 10_000.0,
        "max_position_embeddings": 4_096,
    }


def plain_gflop(shape: Shape, *, shared: bool = False) -> float:
    """Arithmetic of one update in GFLOP: two per multiply-add, nothing recomputed.

    Frozen kernels have no gradient of their own: forward and input gradient. LoRA factors have one.
    Logits are made at sampled positions. Causal attention counts the pairs that are seen; backward
    takes two and a half times the forward. With `shared` the prompt counts once.
    """
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    linears = [(shape.hidden, queries), (shape.hidden, keys), (shape.hidden, keys),
               (queries, shape.hidden), (shape.hidden, shape.inner), (shape.hidden, shape.inner),
               (shape.inner, shape.hidden)]  # fmt: skip
    kernels = sum(i * o for i, o in linears)
    factors = sum((i + o) * shape.rank for i, o in linears)
    if shared:
        tokens = shape.prompt + shape.rows * shape.completion
        pairs = shape.prompt**2 / 2 + shape.rows * (
            shape.completion * shape.prompt + shape.completion**2 / 2
        )
    else:
        tokens, pairs = shape.tokens, shape.rows * shape.length**2 / 2
    layers = shape.layers * (2 * tokens * (2 * kernels + 3 * factors) + 3.5 * 4 * pairs * queries)
    head = 2 * 2 * shape.rows * shape.completion * shape.hidden * shape.vocab
    return (layers + head) / 1e9
