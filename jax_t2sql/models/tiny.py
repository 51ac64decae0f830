"""A model and a tokenizer small enough to train from nothing on a laptop."""

from collections.abc import Iterable

from jax_t2sql.errors import UserError
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.gguf_tokenizer import QWEN2_PATTERN, split_by
from jax_t2sql.models.tokenizer import Tokenizer

_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# ChatML without role names: an assistant's turn is the one with a start token. One token opens an
# answer and one closes each turn, where spelled-out roles would cost a small vocabulary ten more.
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|im_start|>' }}{% endif %}"
    "{{ message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
)


def tiny_config(
    vocab_size: int,
    *,
    hidden: int = 128,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int | None = None,
    max_positions: int = 2048,
) -> ModelConfig:
    """A Qwen3-style configuration with tied embeddings.

    Args:
      intermediate: width of the feed-forward part, three times `hidden` by default.
    """
    if hidden % heads:
        raise UserError(f"hidden size {hidden} is not a multiple of {heads} heads")
    return ModelConfig(
        architecture="qwen3",
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=3 * hidden if intermediate is None else intermediate,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        tie_embeddings=True,
        qk_norm=True,
        max_position_embeddings=max_positions,
    )


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = 512) -> Tokenizer:
    """Learns a byte-level BPE from `texts`; the same texts always give the same tokenizer.

    Every text can be encoded. Digits stay single tokens, so that a number in a question and in its
    SQL is the same sequence, whatever stands beside it.

    Raises:
      UserError: `vocab_size` leaves no room beyond the 256 bytes and the special tokens.
    """
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Backend

    smallest = 256 + len(_SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise UserError(
            f"vocab_size is {vocab_size}; the bytes and special tokens alone take {smallest}"
        )
    backend = Backend(models.BPE())
    backend.pre_tokenizer = split_by(Regex(QWEN2_PATTERN))
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(
        backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_CHAT_TEMPLATE,
    )
