"""The shape of a decoder: one frozen dataclass for every family."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.models.hf_config import read_hf, write_hf
from jax_t2sql.models.rope_scaling import RopeScaling
from jax_t2sql.models.shapes import (
    LayerGroup,
    MLAConfig,
    MoEConfig,
    check_architecture,
    check_positive,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and switches of a decoder-only transformer.

    The families are one function with switches: `qkv_bias` (Qwen2, some GLM-4) adds biases to the
    query, key and value projections, `qk_norm` (Qwen3) an RMS norm over each query and key head,
    `rotary_dim` (GLM-4) rotates only the first part of a head, `mla` (DeepSeek-V3, Kimi-K2)
    replaces attention and `moe` the feed-forward part.

    With `mla`, `head_dim` is the width of a head's query and key, `num_kv_heads` is `num_heads`.

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
    rotary_dim: int | None = None
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: float = 1e-6
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    mla: MLAConfig | None = None
    moe: MoEConfig | None = None
    max_position_embeddings: int = 2048

    def __post_init__(self):
        check_architecture(self.architecture)
        check_positive(
            self,
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_position_embeddings",
        )
        if self.num_heads % self.num_kv_heads:
            raise UserError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}"
            )
        if self.rotated % 2:
            name = "head_dim" if self.rotary_dim is None else "rotary_dim"
            raise UserError(f"{name} {self.rotated} is odd; rotary embeddings need an even size")
        if self.rotated > self.head_dim:
            raise UserError(f"rotary_dim {self.rotary_dim} is more than head_dim {self.head_dim}")
        if self.mla is not None:
            wanted = (self.mla.key_dim, self.mla.rope_dim, self.num_heads)
            if (self.head_dim, self.rotary_dim, self.num_kv_heads) != wanted:
                raise UserError(
                    "with latent attention head_dim is nope_dim + rope_dim, rotary_dim is rope_dim "
                    f"and num_kv_heads is num_heads, here {wanted}; got "
                    f"{(self.head_dim, self.rotary_dim, self.num_kv_heads)}"
                )
        if self.moe is not None and not 0 <= self.moe.dense_layers < self.num_layers:
            raise UserError(
                f"dense_layers is {self.moe.dense_layers}; it must be at least 0 and less than "
                f"num_layers {self.num_layers}"
            )

    @property
    def rotated(self) -> int:
        """How many dimensions of a head are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """Groups of like layers, in the model's order."""
        if self.moe is None:
            return (LayerGroup("layers", 0, self.num_layers, sparse=False),)
        dense = self.moe.dense_layers
        sparse = LayerGroup("layers", dense, self.num_layers - dense, sparse=True)
        return (LayerGroup("dense_layers", 0, dense, sparse=False), sparse) if dense else (sparse,)

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """Reads a Hugging Face config.json (transformers 4 and 5 spellings).

        Raises:
          UserError: architecture or option that the forward pass here does not have, or a
            missing size.
        """
        return cls(**read_hf(values))

    def to_hf(self) -> dict[str, Any]:
        """The Hugging Face config.json of this model, readable by transformers and vLLM.

        Raises:
          UserError: switches that no Hugging Face class of this architecture has.
        """
        return write_hf(self)
