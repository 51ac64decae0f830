"""The shape of a dense decoder: one frozen dataclass for Llama, Qwen2 and Qwen3."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.models.rope_scaling import RopeScaling, scaling_from_hf, scaling_to_hf

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_HF_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and switches of a dense decoder-only transformer.

    The three families are one function with switches: `qkv_bias` (Qwen2) adds biases to the query,
    key and value projections, `qk_norm` (Qwen3) an RMS norm over each query and key head.

    Raises:
      UserError: sizes that do not fit together; the message names the fields.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: float = 1e-6
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    max_position_embeddings: int = 2048

    def __post_init__(self):
        check_architecture(self.architecture)
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_position_embeddings",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise UserError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise UserError(f"head_dim {self.head_dim} is odd; rotary embeddings need an even size")

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """Reads a Hugging Face config.json (transformers 4 and 5 spellings).

        Raises:
          UserError: architecture or option that the forward pass here does not have, or a
            missing size.
        """
        architecture = str(values.get("model_type"))
        check_architecture(architecture)
        _refuse_unsupported(values)
        rope = values.get("rope_parameters") or values.get("rope_scaling")
        theta = values.get("rope_theta") or (rope or {}).get("rope_theta") or 10_000.0
        try:
            hidden, heads = int(values["hidden_size"]), int(values["num_attention_heads"])
            max_positions = int(values.get("max_position_embeddings", 2048))
            return cls(
                architecture=architecture,
                vocab_size=int(values["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(values["intermediate_size"]),
                num_layers=int(values["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=int(values.get("num_key_value_heads") or heads),
                head_dim=int(values.get("head_dim") or hidden // heads),
                rope_theta=float(theta),
                rope_scaling=scaling_from_hf(rope, max_position_embeddings=max_positions),
                rms_norm_eps=float(values.get("rms_norm_eps", 1e-6)),
                tie_embeddings=bool(values.get("tie_word_embeddings", False)),
                qkv_bias=architecture == "qwen2",
                qk_norm=architecture == "qwen3",
                max_position_embeddings=max_positions,
            )
        except KeyError as missing:
            raise UserError(f"config.json lacks {missing}, needed for {architecture}") from None

    def to_hf(self) -> dict[str, Any]:
        """The Hugging Face config.json of this model, readable by transformers and vLLM.

        Raises:
          UserError: switches that no Hugging Face class of this architecture has.
        """
        if self.qkv_bias != (self.architecture == "qwen2"):
            raise UserError(f"{self.architecture} with qkv_bias={self.qkv_bias} has no HF class")
        if self.qk_norm != (self.architecture == "qwen3"):
            raise UserError(f"{self.architecture} with qk_norm={self.qk_norm} has no HF class")
        return {
            "architectures": [_HF_CLASSES[self.architecture]],
            "model_type": self.architecture,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rope_theta": self.rope_theta,
            "rope_scaling": scaling_to_hf(
                self.rope_scaling, max_position_embeddings=self.max_position_embeddings
            ),
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_embeddings,
            "max_position_embeddings": self.max_position_embeddings,
            "torch_dtype": "float32",
        }


def check_architecture(name: str) -> None:
    """Raises UserError, naming what is supported, unless `name` is a supported architecture."""
    if name not in ARCHITECTURES:
        raise UserError(
            f"model architecture {name!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )


def _refuse_unsupported(values: Mapping[str, Any]) -> None:
    """Options that would change the numbers silently if they were ignored."""
    unsupported = {
        "hidden_act": values.get("hidden_act", "silu") != "silu",
        "use_sliding_window": bool(values.get("use_sliding_window", False)),
        "mlp_bias": bool(values.get("mlp_bias", False)),
        # In Llama and Qwen3 it also adds a bias to o_proj; Qwen2's biases are not optional.
        "attention_bias": bool(values.get("attention_bias")) and values["model_type"] != "qwen2",
        "pretraining_tp": values.get("pretraining_tp", 1) not in (None, 1),
        "quantization_config": values.get("quantization_config") is not None,
    }
    for name, present in unsupported.items():
        if present:
            raise UserError(
                f"config.json has {name}={values[name]!r}, which is not supported; "
                "use a model without it"
            )
