"""The parameter tree from the tensors of a file, whatever its format."""

from collections.abc import Callable, Collection
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_t2sql.errors import UserError
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.naming import FileTensor, Name, file_tensors
from jax_t2sql.models.params import Params


def assemble(
    config: ModelConfig,
    *,
    name: Name,
    available: Collection[str],
    ignored: Callable[[str], bool],
    read: Callable[[FileTensor], np.ndarray],
    dtype: Any,
    source: str,
) -> Params:
    """Builds the parameter tree tensor by tensor, so that little more than itself is in memory.

    Args:
      available: names of all tensors of the source.
      ignored: tensors that may be left over without changing the model.
      read: the values of one tensor, in the file's orientation.
      dtype: of the result.
      source: for messages.

    Raises:
      UserError: a tensor is missing, of the wrong shape, or not part of this architecture.
    """
    wanted = file_tensors(config, name)
    names = {tensor.name for tensors in wanted.values() for tensor in tensors}
    if missing := sorted(names - set(available)):
        raise UserError(
            f"{source} lacks {len(missing)} of {len(names)} tensors of this {config.architecture} "
            f"model, the first is {missing[0]!r}; is the download complete?"
        )
    if extra := sorted(x for x in available if x not in names and not ignored(x)):
        raise UserError(
            f"{source} holds tensors that a {config.architecture} model does not have, the first "
            f"of {len(extra)} is {extra[0]!r}; its configuration does not fit its weights"
        )
    params: Params = {}
    for keys, tensors in wanted.items():
        leaf = _read_leaf(tensors, read, dtype, source)
        node = params
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = jnp.asarray(leaf)
    return params


def _read_leaf(
    tensors: list[FileTensor], read: Callable[[FileTensor], np.ndarray], dtype: Any, source: str
) -> np.ndarray:
    leaf = None
    for tensor in tensors:
        values = read(tensor)
        if values.shape != tensor.shape:
            raise UserError(
                f"tensor {tensor.name!r} of {source} has shape {list(values.shape)}; "
                f"the model's configuration asks for {list(tensor.shape)}"
            )
        ours = tensor.to_file(values)
        if leaf is None:
            lead = [last + 1 for last in tensors[-1].index]
            leaf = np.empty((*lead, *ours.shape), dtype)
        leaf[tensor.index] = ours
    return leaf
