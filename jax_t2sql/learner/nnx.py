"""The learner for Flax NNX modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from .arrays import Tree
from .learner import make_learner
from .lora import merge_lora
from .state import Learner

if TYPE_CHECKING:
    from flax import nnx


def from_nnx(
    module: nnx.Module,
    *,
    hidden: Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array],
    unembed: Callable[[Any, jax.Array], jax.Array],
    **options: Any,
) -> Learner:
    """`make_learner` for a module that knows nothing of adapters.

    The base of the learner's functions is `nnx_params(module)`. Adapters are merged into the
    kernels on each call, W + scale · a @ b in float32, which is exact for any module but costs a
    float32 copy of the targeted kernels; a module written for `lora_linear` avoids it.

    Args:
      module: its `nnx.Param` variables are the base. All other variables (random streams,
        batch statistics) are taken as they are now, so put the module in evaluation mode first.
      hidden: (module, tokens_BT, positions_BT, segments_BT) -> hidden_BTD, such as an unbound
        method of the module's class.
      unembed: (module, hidden_ND) -> logits_NV.
      options: everything else that `make_learner` takes: adapter, loss, optimizer, mesh, …

    To use the result: `nnx.update(module, merge_lora(base, state.trainable))`, or with `FullSpec`
    `nnx.update(module, state.trainable)`.
    """
    from flax import nnx

    graph, params, rest = nnx.split(module, nnx.Param, ...)

    def rebuild(base: Tree, adapter: Tree | None) -> nnx.Module:
        values = base if adapter is None else merge_lora(base, adapter)
        state = nnx.map_state(lambda path, variable: variable.replace(_at(values, path)), params)
        return nnx.merge(graph, state, rest)

    def hidden_fn(base, adapter, tokens_BT, positions_BT, segments_BT):
        return hidden(rebuild(base, adapter), tokens_BT, positions_BT, segments_BT)

    def unembed_fn(base, adapter, hidden_ND):
        return unembed(rebuild(base, adapter), hidden_ND)

    return make_learner(hidden_fn, unembed_fn, **options)


def nnx_params(module: nnx.Module) -> Tree:
    """The module's `nnx.Param` values as nested dicts: the base of its learner."""
    from flax import nnx

    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def _at(tree: Tree, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree
