"""The tokenizer in a GGUF file's metadata: a byte-level BPE and the rule that cuts text first."""

from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.models.gguf_files import GGUFFile
from jax_t2sql.models.tokenizer import Tokenizer

# Words with one leading character that is no letter, `digits` digits at a time, punctuation with
# the line ends after it, white space without its last blank. Qwen2 and Llama 3 differ in digits.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = _WORDS.replace("DIGITS", "")
LLAMA3_PATTERN = _WORDS.replace("DIGITS", "{1,3}")

# Values of tokenizer.ggml.pre, by the rule they name in llama.cpp (llama-vocab.cpp).
_GPT2 = ("gpt-2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "gigachat")
_GPT2_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_QWEN2 = ("qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan")
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral-llama3", "smaug-bpe", "dbrx")
SUPPORTED_PRE = _GPT2 + _GPT2_DIGITS + _QWEN2 + _LLAMA3

# tokenizer.ggml.token_type
_CONTROL, _USER_DEFINED = 3, 4


def gguf_tokenizer(file: GGUFFile) -> Tokenizer:
    """Builds the tokenizer of a GGUF model.

    Raises:
      UserError: not a byte-level BPE, or an unknown rule for cutting text; guessing one would
        change the ids of numbers and punctuation silently.
    """
    from tokenizers import AddedToken, decoders, models, normalizers
    from tokenizers import Tokenizer as Backend

    kind = file.require("tokenizer.ggml.model")
    pre = file.get("tokenizer.ggml.pre", "(none)")
    advice = "use the model's Hugging Face directory instead"
    if kind != "gpt2":
        raise UserError(
            f"{file.path} has a tokenizer of kind {kind!r}; only 'gpt2' (byte-level BPE) can be "
            f"read from GGUF; {advice}"
        )
    if pre not in SUPPORTED_PRE:
        raise UserError(
            f"{file.path} cuts text by the rule {pre!r}, which is not supported; supported: "
            f"{', '.join(SUPPORTED_PRE)}; {advice}"
        )
    tokens = file.require("tokenizer.ggml.tokens")
    merges = [_merge(line) for line in file.require("tokenizer.ggml.merges")]
    try:
        backend = Backend(
            models.BPE(
                vocab={token: index for index, token in enumerate(tokens)},
                merges=merges,
                # Llama 3 takes whole words of the vocabulary that its merges cannot reach.
                ignore_merges=pre in _LLAMA3,
            )
        )
    except Exception as error:  # The library raises bare Exception for every fault.
        raise UserError(f"{file.path} has an inconsistent tokenizer: {error}") from error
    if pre in _QWEN2:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(pre)
    backend.decoder = decoders.ByteLevel()
    for index, kind in enumerate(file.get("tokenizer.ggml.token_type", [])):
        if kind in (_CONTROL, _USER_DEFINED):
            added = AddedToken(tokens[index], special=kind == _CONTROL, normalized=False)
            backend.add_tokens([added])
    ids = {
        name: file.get(f"tokenizer.ggml.{name}_token_id")
        for name in ("bos", "eos", "eot", "padding")
    }
    if wrong := {n: i for n, i in ids.items() if i is not None and not 0 <= i < len(tokens)}:
        raise UserError(f"{file.path} names special tokens outside its vocabulary: {wrong}")

    def text(name: str) -> str | None:
        return None if ids[name] is None else tokens[ids[name]]

    return Tokenizer(
        backend,
        bos_token=text("bos"),
        eos_token=text("eos"),
        pad_token=text("padding"),
        stop_ids=[ids["eot"]] if ids["eot"] is not None else (),
        chat_template=file.get("tokenizer.chat_template"),
    )


def _merge(line: str) -> tuple[str, str]:
    # In byte-level alphabets the blank is another character, so that one blank separates the two.
    left, _, right = line.partition(" ")
    return left, right


def _pre_tokenizer(pre: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if pre in _GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in _GPT2_DIGITS:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    return split_by(Regex(QWEN2_PATTERN if pre in _QWEN2 else LLAMA3_PATTERN))


def split_by(pattern: Any) -> Any:
    """A pre-tokenizer that cuts by a `tokenizers.Regex`, then maps bytes to characters."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
