"""Text to token ids and back, with the chat template and the stop tokens of the same model."""

import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.models.chat_template import CHATML, Message, render_chat
from jax_t2sql.models.files import read_json

# Tokens that end a turn or a text in the supported families; they stop generation where they are
# special tokens of the vocabulary, besides the end token that the model names itself.
_END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "</s>")


class Tokenizer:
    """A byte-pair encoder with its special tokens and chat template.

    Attributes:
      vocab_size: number of ids, special tokens included. A model's table may be larger (padding).
      stop_ids: ids that end generation, the model's own end token first.
      pad_id: id for padding; never read by a model, since padding is masked.
    """

    def __init__(
        self,
        backend: Any,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        pad_token: str | None = None,
        stop_ids: Sequence[int] = (),
        chat_template: str | None = None,
    ):
        """Wraps a `tokenizers.Tokenizer`; use `from_directory` or `load_model` to read files."""
        self._backend = backend
        self._lock = threading.Lock()
        self._special = {
            name: token
            for name, token in (
                ("bos_token", bos_token),
                ("eos_token", eos_token),
                ("pad_token", pad_token),
            )
            if token is not None
        }
        for name, token in self._special.items():
            if backend.token_to_id(token) is None:
                raise UserError(f"{name} {token!r} is not in the vocabulary of the tokenizer")
        self.chat_template = chat_template
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        added = {t.content: i for i, t in backend.get_added_tokens_decoder().items() if t.special}
        own = [backend.token_to_id(eos_token)] if eos_token else []
        known = [added[token] for token in _END_TOKENS if token in added]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([*own, *stop_ids, *known]))
        if not self.stop_ids:
            raise UserError(
                "the tokenizer has no end token, so generation could never stop: "
                'set "eos_token" in tokenizer_config.json'
            )
        self.pad_id: int = (
            backend.token_to_id(pad_token) if pad_token is not None else self.stop_ids[0]
        )

    @classmethod
    def from_directory(cls, directory: Path | str) -> "Tokenizer":
        """Reads tokenizer.json, tokenizer_config.json and the chat template of a HF directory.

        Raises:
          UserError: tokenizer.json is missing or unreadable.
        """
        from tokenizers import Tokenizer as Backend

        directory = Path(directory)
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise UserError(
                f"{directory} has no tokenizer.json; save the tokenizer in its fast form with "
                "transformers (AutoTokenizer.from_pretrained(...).save_pretrained(...))"
            )
        try:
            backend = Backend.from_file(str(path))
        except Exception as error:  # The library raises bare Exception for every fault.
            raise UserError(f"{path} is not a readable tokenizer: {error}") from error
        values = _read_optional(directory / "tokenizer_config.json")
        ends = [_read_optional(directory / name).get("eos_token_id") for name in _CONFIGS]
        return cls(
            backend,
            bos_token=_token_text(values.get("bos_token")),
            eos_token=_token_text(values.get("eos_token")),
            pad_token=_token_text(values.get("pad_token")),
            stop_ids=_first_ids(ends),
            chat_template=_read_template(directory, values),
        )

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of `text`; nothing is added around them.

        Args:
          special: read the text of special tokens, such as `<|im_end|>`, as those tokens. By
            default it is plain text, so that data cannot forge the end of a turn.
        """
        # A switch of the shared backend, hence the lock.
        with self._lock:
            self._backend.encode_special_tokens = not special
            return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of `ids`; bytes that are no valid UTF-8 become U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_special)

    @property
    def sha256(self) -> str:
        """Identifies vocabulary, merges, special tokens and chat template in a run's contract."""
        text = self._backend.to_str() + json.dumps([self.chat_template, self.stop_ids])
        return hashlib.sha256(text.encode()).hexdigest()

    def token_id(self, token: str) -> int | None:
        """The id of one token by its exact text, or None."""
        return self._backend.token_to_id(token)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """A conversation in the model's own format; encode the result with special=True.

        Without a template of its own a model that knows the ChatML tokens gets plain ChatML.

        Raises:
          UserError: there is no template, or it fails.
        """
        template = self.chat_template
        if template is None:
            if self.token_id("<|im_start|>") is None or self.token_id("<|im_end|>") is None:
                raise UserError(
                    "the model has no chat template and does not know ChatML: use an instruction-"
                    'tuned model, or set "chat_template" in tokenizer_config.json'
                )
            template = CHATML
        return render_chat(
            template,
            messages,
            add_generation_prompt=add_generation_prompt,
            special_tokens=self._special,
        )

    def save(self, directory: Path | str) -> None:
        """Writes tokenizer.json and tokenizer_config.json, readable by transformers and vLLM."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._backend.encode_special_tokens = False
            self._backend.save(str(directory / "tokenizer.json"))
        values: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **self._special}
        values["clean_up_tokenization_spaces"] = False
        if self.chat_template is not None:
            values["chat_template"] = self.chat_template
        text = json.dumps(values, indent=2, ensure_ascii=False)
        (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


# Where the end tokens of generation are named, the most specific first.
_CONFIGS = ("generation_config.json", "config.json")


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _first_ids(candidates: Sequence[int | list[int] | None]) -> list[int]:
    for value in candidates:
        if value is not None:
            return [value] if isinstance(value, int) else list(value)
    return []


def _token_text(value: str | dict[str, Any] | None) -> str | None:
    return value.get("content") if isinstance(value, dict) else value


def _read_template(directory: Path, values: dict[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = values.get("chat_template")
    if isinstance(template, list):  # Several named templates: tool use, retrieval, default.
        template = next((t["template"] for t in template if t["name"] == "default"), None)
    return template
