"""What shapes are made of: families, latent attention, experts, groups of like layers."""

import dataclasses
from typing import Literal

from jax_t2sql.errors import UserError

DENSE_ARCHITECTURES = ("llama", "qwen2", "qwen3")
ARCHITECTURES = (*DENSE_ARCHITECTURES, "qwen3_moe", "deepseek_v3", "glm4_moe")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLAConfig:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Keys and values are projected up from one latent vector a token. A head's query and key are
    `nope_dim` values without rotation, then `rope_dim` rotated ones; the rotated part of the key is
    the same for all heads.

    Attributes:
      query_rank: width of the queries' own latent; None projects queries at once.
      latent_dim: width of the latent of keys and values.
      value_dim: width of a head's value, at most that of its key.
      interleaved: the weights order rotated pairs as (2i, 2i+1), not as halves.
    """

    query_rank: int | None
    latent_dim: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    interleaved: bool = True

    def __post_init__(self):
        check_positive(self, "latent_dim", "nope_dim", "rope_dim", "value_dim")
        if self.query_rank is not None:
            check_positive(self, "query_rank")
        if self.value_dim > self.key_dim:
            raise UserError(
                f"value_dim {self.value_dim} is more than nope_dim {self.nope_dim} + rope_dim "
                f"{self.rope_dim}; attention here needs values no wider than keys"
            )

    @property
    def key_dim(self) -> int:
        return self.nope_dim + self.rope_dim


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """A feed-forward part of many experts, of which each token uses a few.

    Attributes:
      num_experts, experts_per_token, expert_size: E experts of inner width F, K used by a token.
      shared_size: inner width of the expert that every token uses; 0 without one.
      dense_layers: how many of the first layers have a plain feed-forward part instead.
      scoring: "softmax" over all experts (Qwen3), or "sigmoid" of each with a bias that counts for
        the choice alone (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
      normalize: the weights of the chosen experts are divided by their sum.
      scale: the weights are multiplied by it.
      groups, groups_used: experts stand in equal groups, and a token may only choose from its best
        ones, by the sum of the two best scores in each. 1 and 1 for no limit.
    """

    num_experts: int
    experts_per_token: int
    expert_size: int
    shared_size: int = 0
    dense_layers: int = 0
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1

    def __post_init__(self):
        check_positive(
            self, "num_experts", "experts_per_token", "expert_size", "groups", "groups_used"
        )
        if self.num_experts % self.groups:
            raise UserError(
                f"num_experts {self.num_experts} is not a multiple of the {self.groups} groups"
            )
        if self.groups_used > self.groups:
            raise UserError(f"groups_used {self.groups_used} is more than the {self.groups} groups")
        if self.groups > 1 and self.num_experts // self.groups < 2:
            raise UserError(
                f"{self.groups} groups of one expert each cannot be scored by their two best; "
                "use larger groups"
            )
        reachable = self.num_experts // self.groups * self.groups_used
        if self.experts_per_token > reachable:
            raise UserError(
                f"experts_per_token {self.experts_per_token} is more than the {reachable} experts "
                "that a token may choose from"
            )


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """Successive layers of one kind: one subtree of the parameters, one scan.

    Attributes:
      name: key of the subtree.
      first, count: layers [first, first + count) of the model.
      sparse: a mixture of experts rather than a plain feed-forward part.
    """

    name: str
    first: int
    count: int
    sparse: bool


def check_positive(config: object, *names: str) -> None:
    """Raises UserError, naming field and value, unless each is at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}; it must be at least 1")


def check_architecture(name: str, supported: tuple[str, ...] = ARCHITECTURES) -> None:
    """Raises UserError, naming what is supported, unless `name` is a supported architecture."""
    if name not in supported:
        raise UserError(
            f"model architecture {name!r} is not supported; supported: {', '.join(supported)}"
        )
