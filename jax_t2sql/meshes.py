"""The option --mesh: which devices share the work of training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jax_t2sql.errors import UserError

if TYPE_CHECKING:
    from jax.sharding import Mesh

_AXES = ("data", "fsdp", "tensor", "expert")


def parse_mesh(text: str) -> dict[str, int]:
    """Sizes of all mesh axes from "fsdp=8,tensor=2".

    Raises:
      UserError: an unknown or repeated axis, or a size that is no positive number.

    >>> parse_mesh("fsdp=8,tensor=2")
    {'data': 1, 'fsdp': 8, 'tensor': 2, 'expert': 1}
    """
    sizes = dict.fromkeys(_AXES, 1)
    seen = set()
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if name not in _AXES or name in seen or not re.fullmatch(r"[1-9]\d{0,6}", size):
            raise UserError(
                f"--mesh {text!r}: {part.strip()!r} is no axis and size; write for example "
                f"fsdp=8,tensor=2 with axes of {', '.join(_AXES)}, each once"
            )
        seen.add(name)
        sizes[name] = int(size)
    return sizes


def open_mesh(text: str | None) -> Mesh | None:
    """The mesh over all devices that there are.

    Args:
      text: None is no mesh, the default device alone; on several hosts it is fsdp over all devices.

    Raises:
      UserError: as `parse_mesh`, or the sizes do not multiply to the number of devices.
    """
    import jax

    from jax_t2sql.learner import make_mesh

    if text is None:
        return make_mesh() if jax.process_count() > 1 else None
    try:
        return make_mesh(**parse_mesh(text))
    except ValueError as error:
        raise UserError(f"--mesh {text}: {error}") from error
