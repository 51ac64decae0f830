"""What is trained: a low-rank adapter beside a frozen base, or every parameter."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp

from .arrays import ArrayDesc, Tree, init_arrays, is_array, logical_axes
from .lora import LoraPair, module_keys


class TrainableSpec(Protocol):
    """What `make_learner` needs to know of the arrays it trains. They are always float32."""

    def describe(self, base: Tree) -> Tree:
        """An `ArrayDesc` for every trainable array. `base` holds arrays or `ArrayDesc`s."""

    def init(self, base: Tree, key: jax.Array) -> Tree:
        """Initial values of the trainable arrays, never the base's own buffers."""

    def bind(self, base: Tree, trainable: Tree) -> tuple[Tree, Tree | None]:
        """The base and adapter that the model's functions are called with."""


@dataclasses.dataclass(frozen=True)
class LoraSpec:
    """Trains a `LoraPair` beside every targeted kernel; the base stays frozen in its own dtype.

    The adapter is a dict that mirrors the base: the pair of base["layers"]["q_proj"]["kernel"] is
    adapter["layers"]["q_proj"]. Leaves that are not adapted are absent.

    Attributes:
      targets: "all-linear", every leaf named "kernel" that is not under "lm_head" or "embed"; or
        regular expressions, of which one must be found (`re.search`) in the leaf's path, such as
        "layers/q_proj/kernel". Biases, scales and embeddings are never adapted.
      rank: R. alpha: the update is scaled by alpha / rank.
    """

    targets: Literal["all-linear"] | Sequence[str] = "all-linear"
    rank: int = 32
    alpha: float = 32.0

    def __post_init__(self):
        if self.rank < 1:
            raise ValueError(f"the rank of an adapter must be at least 1, got {self.rank}")
        if isinstance(self.targets, str) and self.targets != "all-linear":
            raise ValueError(
                f'targets must be "all-linear" or a sequence of regular expressions, got the text '
                f"{self.targets!r}: write ({self.targets!r},)"
            )

    def describe(self, base: Tree) -> Tree:
        """See `TrainableSpec`.

        Raises:
          ValueError: a pattern matches no candidate; the message lists them all.
        """
        adapter: dict[Any, Any] = {}
        for path, kernel in self._targeted(base):
            *parents, name = module_keys(path)
            node = adapter
            for key in parents:
                node = node.setdefault(key, {})
            node[name] = self._describe_pair(kernel)
        return adapter

    def init(self, base: Tree, key: jax.Array) -> Tree:
        """`a` as PEFT draws it, uniform within ±1/√I; `b` zero."""
        return init_arrays(self.describe(base), key)

    def bind(self, base: Tree, trainable: Tree) -> tuple[Tree, Tree]:
        return base, trainable

    def _targeted(self, base: Tree) -> list[tuple[Any, Any]]:
        candidates = {
            jax.tree_util.keystr(path, simple=True, separator="/"): (path, leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(base, is_leaf=is_array)
            if len(leaf.shape) >= 2 and jnp.issubdtype(leaf.dtype, jnp.floating)
        }
        candidates = {
            name: entry
            for name, entry in candidates.items()
            if name.split("/")[-1] not in ("bias", "scale", "embedding")
        }
        if self.targets == "all-linear":
            chosen = [
                name
                for name in candidates
                if name.split("/")[-1] == "kernel" and not {"lm_head", "embed"} & {*name.split("/")}
            ]
            unmatched = [] if chosen else ["all-linear"]
        else:
            chosen = [n for n in candidates if any(re.search(p, n) for p in self.targets)]
            unmatched = [p for p in self.targets if not any(re.search(p, n) for n in candidates)]
            unmatched = unmatched if self.targets else ["()"]
        if unmatched:
            raise ValueError(
                f"LoRA targets {', '.join(map(repr, unmatched))} match nothing in the model; "
                f"candidates are: {', '.join(candidates) or 'none'}"
            )
        return [candidates[name] for name in chosen]

    def _describe_pair(self, kernel: Any) -> LoraPair:
        *lead, fan_in, fan_out = kernel.shape
        *lead_axes, in_axis, out_axis = logical_axes(kernel)

        def kaiming_uniform(key, shape, dtype):
            return jax.random.uniform(key, shape, dtype, -1.0, 1.0) * fan_in**-0.5

        def zeros(key, shape, dtype):
            return jnp.zeros(shape, dtype)

        a_axes, b_axes = (*lead_axes, in_axis, "lora_rank"), (*lead_axes, "lora_rank", out_axis)
        return LoraPair(
            a=ArrayDesc((*lead, fan_in, self.rank), jnp.float32, a_axes, kaiming_uniform),
            b=ArrayDesc((*lead, self.rank, fan_out), jnp.float32, b_axes, zeros),
            scale=self.alpha / self.rank,
        )


@dataclasses.dataclass(frozen=True)
class FullSpec:
    """Trains a float32 copy of every parameter, which the model gets as base, with no adapter."""

    def describe(self, base: Tree) -> Tree:
        """See `TrainableSpec`.

        Raises:
          ValueError: a leaf is not of a floating dtype, so that it has no gradient.
        """

        def describe(path, leaf):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise ValueError(
                    f"{name} has dtype {leaf.dtype} and cannot be trained: keep it out of the "
                    "base, or train an adapter with LoraSpec"
                )
            if isinstance(leaf, ArrayDesc):
                return dataclasses.replace(leaf, dtype=jnp.float32)
            # A copy: the state is donated to every update, the caller's base is not.
            copy = lambda key, shape, dtype: jnp.array(leaf, dtype, copy=True)  # noqa: E731
            return ArrayDesc(leaf.shape, jnp.float32, logical_axes(leaf), copy)

        return jax.tree_util.tree_map_with_path(describe, base)

    def init(self, base: Tree, key: jax.Array) -> Tree:
        return init_arrays(self.describe(base), key)

    def bind(self, base: Tree, trainable: Tree) -> tuple[Tree, None]:
        return trainable, None
