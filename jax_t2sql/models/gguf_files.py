"""Models in GGUF files (llama.cpp's format): configuration, weights of every quantised type."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.models.assemble import Layout, Source, assemble
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.naming import FileTensor, gguf_module
from jax_t2sql.models.params import Params
from jax_t2sql.models.rope_scaling import (
    LinearScaling,
    RopeScaling,
    YarnScaling,
    recognise_frequency_factors,
    yarn_attention_factor,
)
from jax_t2sql.models.shapes import DENSE_ARCHITECTURES, check_architecture

# Number of the text type in the metadata.
_GGUF_TEXT = 8
# Enough for the first key and its value, less than any model has.
_HEADER_BYTES = 256


class GGUFFile:
    """An open GGUF file: metadata by key and tensors by name, memory-mapped."""

    def __init__(self, path: Path):
        """Raises UserError unless the file is a complete GGUF file."""
        from gguf import GGUFReader

        self.path = path
        with self._guard("read"):
            self._reader = GGUFReader(path)
            self.tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        # Checks this before anything else, for the clearest message.
        self.architecture = str(self.get("general.architecture"))

    @contextlib.contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        # The reader trusts its input: a damaged file shows as whatever numpy raises on it.
        try:
            yield
        except UserError:
            raise
        except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.path} is not a complete GGUF file (cannot {action} it: {error}); get it "
                "again"
            ) from error

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value, or `default`. "{arch}." stands for the architecture's prefix."""
        key = key.replace("{arch}", getattr(self, "architecture", ""))
        field = self._reader.get_field(key)
        if field is None:
            return default
        with self._guard(f"decode {key!r} of"):
            return field.contents()

    def require(self, key: str) -> Any:
        """A metadata value that must be there."""
        value = self.get(key)
        if value is None:
            raise UserError(f"{self.path} lacks {key.replace('{arch}', self.architecture)!r}")
        return value

    def values(self, name: str) -> np.ndarray:
        """A tensor dequantised to float32, in row-major (PyTorch) order."""
        from gguf.quants import dequantize

        tensor = self.tensors[name]
        try:
            flat = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise UserError(
                f"tensor {name!r} of {self.path} has type {tensor.tensor_type.name}, which the "
                "gguf library cannot dequantise; requantise the model, e.g. to Q8_0 or F16"
            ) from None
        return flat.reshape([int(n) for n in reversed(tensor.shape)])


def check_header(path: Path) -> None:
    """Checks a file's first bytes: that it is GGUF and, where told there, its architecture.

    The whole metadata hold the vocabulary, which takes the library seconds to read; writers put
    the architecture first.

    Raises:
      UserError: no GGUF file, or an architecture that is not supported.
    """
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    if head[:4] != b"GGUF":
        raise UserError(
            f"{path} is not a GGUF file; for safetensors give the directory that holds them"
        )
    # Magic, version (4 bytes), counts of tensors and keys (8 each); then key, type, value.
    key, rest = _text(head[24:])
    if len(head) < _HEADER_BYTES:
        return  # cut off, in the middle of this text perhaps: the reader will say so
    if key == "general.architecture" and int.from_bytes(rest[:4], "little") == _GGUF_TEXT:
        check_architecture(_text(rest[4:])[0], DENSE_ARCHITECTURES)


def _text(data: bytes) -> tuple[str, bytes]:
    """A text with its length before it, and what follows."""
    end = 8 + int.from_bytes(data[:8], "little")
    return data[8:end].decode("utf-8", "replace"), data[end:]


def gguf_config(file: GGUFFile) -> ModelConfig:
    """The model configuration in a GGUF file's metadata.

    Raises:
      UserError: unsupported architecture or option, or a missing key.
    """
    check_architecture(file.architecture, DENSE_ARCHITECTURES)
    if file.get("{arch}.expert_count", 0):
        raise UserError(f"{file.path} is a mixture of experts; only dense models are supported")
    heads = file.require("{arch}.attention.head_count")
    kv_heads = file.get("{arch}.attention.head_count_kv", heads)
    if not isinstance(heads, int) or not isinstance(kv_heads, int):
        raise UserError(f"{file.path} has another number of heads in each layer: not supported")
    hidden = int(file.require("{arch}.embedding_length"))
    head_dim = int(file.get("{arch}.attention.key_length", hidden // heads))
    rotated = int(file.get("{arch}.rope.dimension_count", head_dim))
    if rotated != head_dim:
        raise UserError(
            f"{file.path} rotates {rotated} of {head_dim} dimensions a head; only full rotary "
            "embeddings are supported"
        )
    theta = float(file.get("{arch}.rope.freq_base", 10_000.0))
    context = int(file.require("{arch}.context_length"))
    if "token_embd.weight" not in file.tensors:
        raise UserError(f"{file.path} holds no token embeddings; is it a whole model?")
    return ModelConfig(
        architecture=file.architecture,
        vocab_size=int(file.tensors["token_embd.weight"].shape[1]),
        hidden_size=hidden,
        intermediate_size=int(file.require("{arch}.feed_forward_length")),
        num_layers=int(file.require("{arch}.block_count")),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rope_theta=theta,
        rope_scaling=_scaling(file, theta=theta, head_dim=head_dim, context=context),
        # Stored as float32; this gives back the decimal number that was meant.
        rms_norm_eps=float(f"{file.require('{arch}.attention.layer_norm_rms_epsilon'):.6g}"),
        tie_embeddings="output.weight" not in file.tensors,
        qkv_bias=file.architecture == "qwen2",
        qk_norm=file.architecture == "qwen3",
        max_position_embeddings=context,
    )


def _scaling(file: GGUFFile, *, theta: float, head_dim: int, context: int) -> RopeScaling | None:
    if "rope_freqs.weight" in file.tensors:
        return recognise_frequency_factors(
            file.values("rope_freqs.weight"), theta=theta, head_dim=head_dim
        )
    factor = file.get("{arch}.rope.scaling.factor", file.get("{arch}.rope.scale_linear"))
    kind = file.get("{arch}.rope.scaling.type", "linear" if factor else "none")
    match kind:
        case "none":
            return None
        case "linear":
            return LinearScaling(factor=float(factor)) if factor else None
        case "yarn":
            factor = float(factor or 1.0)
            original = file.get("{arch}.rope.scaling.original_context_length", context)
            extra = float(file.get("{arch}.rope.scaling.attn_factor", 1.0))
            return YarnScaling(
                factor=factor,
                original_max_position_embeddings=int(original),
                attention_factor=extra * yarn_attention_factor(factor),
            )
    raise UserError(
        f"{file.path} has rope scaling {kind!r}, which is not supported; supported: none, linear, "
        "yarn, and Llama 3's frequency factors"
    )


def load_gguf(file: GGUFFile, config: ModelConfig, layout: Layout) -> Params:
    """The parameters of a GGUF file, dequantised and cast tensor by tensor.

    Raises:
      UserError: tensors missing, of wrong shape, or of a type that cannot be dequantised.
    """
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}

    # Parts of one tensor are asked for in a row.
    @functools.lru_cache(maxsize=1)
    def whole(tensor: FileTensor) -> np.ndarray:
        values = file.values(tensor.name)
        if config.architecture == "llama" and tensor.module in heads:
            return _split_halves(values, heads[tensor.module])
        return values

    source = Source(
        text=str(file.path),
        names=file.tensors,
        ignored=lambda name: name == "rope_freqs.weight",
        shape=lambda tensor: tuple(int(n) for n in reversed(file.tensors[tensor.name].shape)),
        read=lambda tensor, box: whole(tensor)[tuple(slice(*part) for part in box)],
    )
    return assemble(config, gguf_module, source, layout)


def _split_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undoes llama.cpp's row order of query and key projections.

    For the llama architecture it rotates neighbours (2i, 2i+1) where we rotate halves
    (i, i + K/2), and its converter interleaves the rows accordingly.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
