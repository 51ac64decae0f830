"""From a name to a model: Hugging Face directory, GGUF file, or hub id; and back to a directory."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh

from jax_t2sql.errors import UserError
from jax_t2sql.learner.arrays import ShardingRules
from jax_t2sql.models.assemble import Layout
from jax_t2sql.models.checkpoints import weight_files
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.files import digest_files, read_json
from jax_t2sql.models.gguf_files import GGUFFile, check_header, gguf_config, load_gguf
from jax_t2sql.models.gguf_tokenizer import gguf_tokenizer
from jax_t2sql.models.params import Params, describe_params
from jax_t2sql.models.quantized import Quantization
from jax_t2sql.models.safetensors_files import load_safetensors, save_safetensors
from jax_t2sql.models.tokenizer import Tokenizer

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model with everything that belongs to it.

    Attributes:
      source: what the user named.
      sha256: of the weight and configuration files; identifies the model in a run's contract.
      layout: how the parameters are kept, and where.
    """

    config: ModelConfig
    params: Params
    tokenizer: Tokenizer
    source: str
    sha256: str
    layout: Layout = Layout()

    @property
    def described(self) -> Params:
        """An `ArrayDesc` for each parameter."""
        return describe_params(self.config, self.layout.dtype, self.layout.quantization)


def load_model(
    source: str | Path,
    *,
    dtype: Any = "float32",
    quantization: Quantization | None = None,
    mesh: Mesh | None = None,
    rules: ShardingRules | None = None,
    cache_dir: str | Path | None = None,
) -> LoadedModel:
    """Loads weights, configuration, tokenizer and chat template.

    Args:
      source: a directory in Hugging Face format (config.json, safetensors whole or sharded,
        tokenizer.json), a `.gguf` file, or the id of a model on the Hugging Face hub.
      dtype: of the parameters; quantised GGUF tensors are dequantised to it.
      quantization: how to store the kernels of the frozen base; None as `dtype` says.
      mesh, rules: those of the learner: every device gets its part of every array, and a process
        reads the parts of its own devices only. Without them all is on the default device.
      cache_dir: where downloads from the hub are kept; the hub's own default otherwise.

    Raises:
      UserError: not found, corrupt, or not supported. One message says what to do.
      ValueError: the mesh cannot divide an array evenly.
    """
    layout = Layout(
        dtype=jnp.dtype(dtype),
        quantization=quantization,
        mesh=mesh,
        rules=rules or ShardingRules(),
    )
    check_model(source)
    path = Path(source).expanduser()
    if path.is_file():
        model = _load_gguf_file(path, layout)
    elif path.is_dir():
        model = _load_directory(path, layout)
    else:
        model = _load_directory(_download(str(source), cache_dir), layout)
    if model.tokenizer.vocab_size > model.config.vocab_size:
        raise UserError(
            f"the tokenizer of {source} has {model.tokenizer.vocab_size} ids, but the model embeds "
            f"only {model.config.vocab_size}; they do not belong together"
        )
    return dataclasses.replace(model, source=str(source), layout=layout)


def check_model(source: str | Path) -> None:
    """Finds in an instant most reasons why `load_model` would refuse; reads no weights.

    A hub id is only checked when it is loaded.

    Raises:
      UserError: as `load_model` does.
    """
    path = Path(source).expanduser()
    if path.is_file():
        check_header(path)
    elif path.is_dir():
        ModelConfig.from_hf(read_json(path / "config.json"))
        weight_files(path)
    elif not _HUB_ID.fullmatch(str(source)):
        raise UserError(
            f"no model at {str(source)!r}: give a directory with config.json, a .gguf file, or a "
            "hub id such as Qwen/Qwen3-0.6B"
        )


def save_hf(model: LoadedModel, directory: str | Path) -> None:
    """Writes a directory in Hugging Face format, readable by transformers, vLLM and `load_model`.

    config.json, generation_config.json, model.safetensors or several of them with an index,
    tokenizer.json, tokenizer_config.json.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = model.tokenizer
    ends = {"eos_token_id": list(tokenizer.stop_ids), "pad_token_id": tokenizer.pad_id}
    dtype = model.params["embed"]["embedding"].dtype.name
    values = {**model.config.to_hf(), **ends, "torch_dtype": dtype}
    _write_json(directory / "config.json", values)
    _write_json(directory / "generation_config.json", ends)
    save_safetensors(directory, model.config, model.params)
    tokenizer.save(directory)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _load_directory(directory: Path, layout: Layout) -> LoadedModel:
    config = ModelConfig.from_hf(read_json(directory / "config.json"))
    files = weight_files(directory)
    # The tokenizer first: its faults show at once, the weights may take minutes.
    tokenizer = Tokenizer.from_directory(directory)
    params = load_safetensors(directory, config, layout)
    sha256 = digest_files([*files, directory / "config.json"])
    return LoadedModel(config, params, tokenizer, str(directory), sha256)


def _load_gguf_file(path: Path, layout: Layout) -> LoadedModel:
    file = GGUFFile(path)
    config = gguf_config(file)
    tokenizer = gguf_tokenizer(file)
    params = load_gguf(file, config, layout)
    return LoadedModel(config, params, tokenizer, str(path), digest_files([path]))


def _download(name: str, cache_dir: str | Path | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UserError(
            f"no directory {name!r}; to fetch it from the Hugging Face hub run "
            "pip install huggingface_hub"
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES, cache_dir=cache_dir))
    # Any failure of network, hub or disk; their types differ between versions of the library.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"no directory {name!r}, and fetching it from the Hugging Face hub failed ({reason}); "
            "check the name and the network, or download the model elsewhere and give its path"
        ) from error
