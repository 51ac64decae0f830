"""The experts that a vLLM server says it used, checked and cut to the layers that have any."""

import base64
import binascii
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_t2sql.text2sql.completion import ExpertRecord


@dataclass(frozen=True, kw_only=True)
class ExpertShape:
    """Of a model: `before` layers without experts, then `layers` with `count` each, of which a
    token uses `chosen`."""

    before: int
    layers: int
    chosen: int
    count: int

    @property
    def bounds(self) -> tuple[int, int, int]:
        """As `jax_t2sql.bus.Bounds` has it."""
        return self.layers, self.chosen, self.count


def read_experts(value: Any, shape: ExpertShape, *, tokens: int) -> ExpertRecord:
    """A completion's "routed_experts": base64 of a .npy file [tokens - 1, layers, chosen].

    All layers are in it, those without experts too; the last token was sampled, but never read.

    Args:
      tokens: of prompt and completion.

    Raises:
      ValueError: it is missing or is not of this model.
    """
    if value is None:
        raise ValueError(
            "the server recorded no experts: start vLLM with --enable-return-routed-experts"
        )
    try:
        data = base64.b64decode(value, validate=True)
        found_TLE = np.load(io.BytesIO(data), allow_pickle=False)
    except (binascii.Error, EOFError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"a record of experts that cannot be read ({error})") from error
    wanted = (tokens - 1, shape.before + shape.layers, shape.chosen)
    if found_TLE.shape != wanted or found_TLE.dtype.kind not in "iu":
        raise ValueError(
            f"a record of experts of {found_TLE.dtype}{list(found_TLE.shape)}, not of integers"
            f" {list(wanted)}: the server serves another model"
        )
    used_TLE = found_TLE[:, shape.before :]
    if used_TLE.size and not 0 <= used_TLE.min() <= used_TLE.max() < shape.count:
        raise ValueError(
            f"experts {used_TLE.min()}..{used_TLE.max()}, the model has 0..{shape.count - 1}"
        )
    return ExpertRecord(used_TLE.astype("<u2").tobytes(), shape.layers, shape.chosen)
