"""LoRA adapters in the file format of the `peft` library, which vLLM reads too."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.learner.lora import LoraPair, lora_pairs
from jax_t2sql.learner.trainables import LoraSpec
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.files import read_json, write_tensors
from jax_t2sql.models.naming import file_tensors, hf_module
from jax_t2sql.models.params import describe_params

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_MLP = ("gate_proj", "up_proj", "down_proj")


def export_adapter(
    directory: str | Path,
    config: ModelConfig,
    adapter: dict[str, Any],
    spec: LoraSpec,
    *,
    base_model: str | None = None,
) -> None:
    """Writes adapter_config.json and adapter_model.safetensors.

    Args:
      adapter: tree of `LoraPair`, mirroring the model's parameters, as the learner trains it.
      base_model: recorded for readers; the name or path of the model it belongs to.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    modules = _linear_modules(config)
    tensors: dict[str, np.ndarray] = {}
    targets, parameters = set(), set()
    for keys, pair in lora_pairs(adapter):
        a, b = np.asarray(pair.a, np.float32), np.asarray(pair.b, np.float32)
        for stem, index in modules[keys].stems:
            targets.add(stem.rpartition(".")[2])
            if config.moe is not None and keys[-1].endswith(_MLP) and "expert_" not in keys[-1]:
                parameters.add(re.sub(r"^model\.layers\.\d+\.", "", stem) + ".weight")
            name_a, name_b = _names(stem)
            tensors[name_a] = np.ascontiguousarray(a[index].T)
            tensors[name_b] = np.ascontiguousarray(b[index].T)
    values = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "target_modules": sorted(targets),
        # With transformers 5, peft takes every gate_proj, up_proj and down_proj of a mixture for
        # those of its experts, unless the weights of the others are named.
        **({"target_parameters": sorted(parameters)} if parameters else {}),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    write_tensors(directory / _WEIGHTS, tensors)
    text = json.dumps(values, indent=2)
    (directory / _CONFIG).write_text(text + "\n", encoding="utf-8")


def load_adapter(
    directory: str | Path, config: ModelConfig, *, spec: LoraSpec | None = None
) -> dict[str, Any]:
    """Reads an adapter for a model of `config`: a float32 tree of `LoraPair`.

    Args:
      spec: refuse an adapter of other modules, rank or scale, e.g. before training goes on.

    Raises:
      UserError: files missing or corrupt; a variant that plain low-rank pairs cannot express;
        tensors missing, unknown, or of the wrong shape (the message names the tensor and both
        shapes); not what `spec` asks for.
    """
    directory = Path(directory)
    values = read_json(directory / _CONFIG)
    rank, scale = _rank_and_scale(directory, values)
    tensors = _read_tensors(directory / _WEIGHTS)
    adapter: dict[str, Any] = {}
    modules = _linear_modules(config)
    for keys, module in modules.items():
        names = [name for stem, _ in module.stems for name in _names(stem)]
        if not any(name in tensors for name in names):
            continue
        if missing := [name for name in names if name not in tensors]:
            raise UserError(f"{directory} lacks the tensor {missing[0]!r}; every layer needs it")
        *lead, fan_in, fan_out = module.shape
        a = np.empty((*lead, fan_in, rank), np.float32)
        b = np.empty((*lead, rank, fan_out), np.float32)
        for stem, index in module.stems:
            name_a, name_b = _names(stem)
            a[index] = _checked(directory, tensors, name_a, (rank, fan_in))
            b[index] = _checked(directory, tensors, name_b, (fan_out, rank))
        node = adapter
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = LoraPair(a=jnp.asarray(a), b=jnp.asarray(b), scale=scale)
    if tensors:
        name = sorted(tensors)[0]
        if config.tie_embeddings and "lm_head" in name:
            raise UserError(f"{directory} adapts lm_head, but this model ties it to its embedding")
        known = sorted({stem.rpartition(".")[2] for x in modules.values() for stem, _ in x.stems})
        raise UserError(
            f"{directory} holds the tensor {name!r}, which is no low-rank factor of a linear "
            f"module of this model; known modules: {', '.join(known)}"
        )
    if not adapter:
        raise UserError(f"{directory} adapts no module of this model")
    if spec is not None:
        _check_spec(directory, adapter, spec.describe(describe_params(config)))
    return adapter


@dataclasses.dataclass(frozen=True)
class _Linear:
    """A stacked kernel: its shape, and its modules' names in Hugging Face's format with the index
    of each in the stack."""

    shape: tuple[int, ...]
    stems: list[tuple[str, tuple[int, ...]]]


def _linear_modules(config: ModelConfig) -> dict[tuple[str, ...], _Linear]:
    descs = describe_params(config)
    result = {}
    for keys, parts in file_tensors(config, hf_module).items():
        if keys[-1] == "kernel":
            desc = descs
            for key in keys:
                desc = desc[key]
            stems = [(part.name.removesuffix(".weight"), part.index) for part in parts]
            result[keys[:-1]] = _Linear(desc.shape, stems)
    return result


def _names(stem: str) -> tuple[str, str]:
    return f"{_PREFIX}{stem}.lora_A.weight", f"{_PREFIX}{stem}.lora_B.weight"


def _rank_and_scale(directory: Path, values: dict[str, Any]) -> tuple[int, float]:
    plain = {"peft_type": "LORA", "bias": "none"}
    for key, wanted in plain.items():
        if values.get(key, wanted) != wanted:
            raise UserError(f"{directory} has {key} {values[key]!r}; only {wanted!r} is supported")
    for key in ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "fan_in_fan_out"):
        if values.get(key):
            raise UserError(f"{directory} uses {key}, which is not supported; use plain LoRA")
    rank, alpha = values.get("r"), values.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise UserError(f"{directory}/{_CONFIG} needs r >= 1 and lora_alpha, got {rank}, {alpha}")
    return rank, alpha / (math.sqrt(rank) if values.get("use_rslora") else rank)


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; is {path.parent} an adapter?") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is corrupt or cut off ({error}); get it again") from error


def _checked(
    directory: Path, tensors: dict[str, np.ndarray], name: str, shape: tuple[int, int]
) -> np.ndarray:
    """Takes one tensor out of `tensors`, in our orientation, after checking its shape."""
    tensor = tensors.pop(name)
    if tensor.shape != shape:
        raise UserError(
            f"tensor {name!r} of {directory} has shape {list(tensor.shape)}; this model and rank "
            f"need {list(shape)}"
        )
    return tensor.astype(np.float32).T


def _check_spec(directory: Path, adapter: dict[str, Any], wanted: dict[str, Any]) -> None:
    have, want = dict(lora_pairs(adapter)), dict(lora_pairs(wanted))
    if have.keys() != want.keys():
        raise UserError(
            f"{directory} adapts {_modules(have)}; this run trains {_modules(want)}: use the same "
            "targets"
        )
    for keys, pair in have.items():
        shapes = jax.tree.map(lambda x: x.shape, (pair.a, pair.b))
        asked = (want[keys].a.shape, want[keys].b.shape)
        if shapes != asked or not math.isclose(pair.scale, want[keys].scale):
            raise UserError(
                f"{directory}: {'/'.join(keys)} has factors of shapes {shapes} and scale "
                f"{pair.scale}; this run needs {asked} and {want[keys].scale}: use the same rank "
                "and alpha"
            )


def _modules(pairs: dict[tuple[Any, ...], LoraPair]) -> str:
    return ", ".join(sorted(keys[-1] for keys in pairs))
