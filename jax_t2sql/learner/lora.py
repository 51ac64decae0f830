"""Low-rank adapters (LoRA, arXiv 2106.09685): the pair of factors and its uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from .arrays import Tree, is_array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LoraPair:
    """The update scale · a @ b of one frozen kernel.

    Attributes:
      a: [..., I, R], float32. Leading dimensions are those of a stacked kernel, such as layers.
      b: [..., R, O], float32; zero at first, so that an untrained adapter changes nothing.
      scale: alpha / rank; part of the tree's structure, hence a constant to the compiler.
    """

    a: jax.Array
    b: jax.Array
    scale: float = dataclasses.field(metadata={"static": True})


def lora_linear(x: jax.Array, kernel_IO: jax.Array, pair: LoraPair | None) -> jax.Array:
    """x @ W + scale · (x @ a) @ b in the dtype of x, for x of shape [..., I]. None adds nothing.

    >>> pair = LoraPair(a=jnp.ones((2, 1)), b=jnp.ones((1, 3)), scale=0.5)
    >>> lora_linear(jnp.ones((1, 2)), jnp.zeros((2, 3)), pair).tolist()
    [[1.0, 1.0, 1.0]]
    """
    # Two-dimensional operands: XLA's CPU backend is a quarter slower on the gradient of a product
    # with several leading dimensions. Elsewhere the reshapes are free.
    x_NI = x.reshape(-1, x.shape[-1])
    y_NO = x_NI @ kernel_IO.astype(x.dtype)
    if pair is not None:
        y_NO += pair.scale * ((x_NI @ pair.a.astype(x.dtype)) @ pair.b.astype(x.dtype))
    return y_NO.reshape(*x.shape[:-1], -1)


def merge_lora(base: Tree, adapter: Tree) -> Tree:
    """The base with every adapted kernel replaced by W + scale · a @ b, in float32.

    Float32 because the update of a few training steps is lost when rounded to a bfloat16 kernel.
    """
    pairs = dict(lora_pairs(adapter))

    def merge(path, kernel):
        pair = pairs.get(module_keys(path))
        if pair is None:
            return kernel
        delta = jnp.matmul(pair.a, pair.b, precision=jax.lax.Precision.HIGHEST)
        return kernel.astype(jnp.float32) + pair.scale * delta

    return jax.tree_util.tree_map_with_path(merge, base, is_leaf=is_array)


def lora_pairs(adapter: Tree) -> Iterator[tuple[tuple[Any, ...], LoraPair]]:
    """Every pair of an adapter with the keys that lead to it."""
    leaves = jax.tree_util.tree_leaves_with_path(adapter, is_leaf=lambda x: isinstance(x, LoraPair))
    for path, pair in leaves:
        yield tuple(_key(entry) for entry in path), pair


def module_keys(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where the pair of a base leaf lives in the adapter.

    The adapter mirrors the base, and a leaf named "kernel" stands for the module that holds it:
    layers/q_proj/kernel is adapted by adapter["layers"]["q_proj"].
    """
    keys = tuple(_key(entry) for entry in path)
    return keys[:-1] if len(keys) > 1 and keys[-1] == "kernel" else keys


def _key(entry: Any) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    raise TypeError(f"unknown kind of tree path entry: {entry!r}")
