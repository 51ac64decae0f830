"""Rotary-embedding scaling: one frozen dataclass for each way to stretch the context.

Every class turns the unscaled inverse frequencies into scaled ones. All of them are functions of
the position alone, so that a sequence gets the same rotation whether it is read at once (learner)
or token by token (sampler).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_t2sql.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """Position interpolation: every frequency divided by `factor` (Chen et al. 2023)."""

    factor: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicScaling:
    """NTK-aware scaling that grows with the length (bloc97, emozilla 2023).

    Position p uses the base frequency of a context of max(p + 1, original) tokens, which is what
    token-by-token decoding computes in Hugging Face transformers; a prompt read at once beyond
    the original length differs there, because it uses one base for the whole prompt.
    """

    factor: float
    original_max_position_embeddings: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """Long wavelengths divided by `factor`, short ones kept, a smooth ramp between (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class YarnScaling:
    """YaRN, NTK-by-parts with an attention temperature (Peng et al. 2023, arXiv:2309.00071).

    `attention_factor` multiplies cos and sin, so attention logits by its square. DeepSeek scales
    all attention logits, those of dimensions without rotation too, by `logit_scale`;
    `mscale` is kept for the config.json alone.
    """

    factor: float
    original_max_position_embeddings: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None

    @property
    def logit_scale(self) -> float:
        """What latent attention multiplies its logits by."""
        if not self.mscale_all_dim:
            return 1.0
        return yarn_temperature(self.factor, self.mscale_all_dim) ** 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrequencyFactors:
    """One divisor for each frequency, as stored in a GGUF file's `rope_freqs.weight`."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling | FrequencyFactors
SUPPORTED_ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")


def yarn_temperature(factor: float, scale: float) -> float:
    """0.1 · scale · ln(factor) + 1, and 1 without a stretch."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def yarn_attention_factor(
    factor: float, *, mscale: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """The attention temperature that YaRN recommends for a stretch by `factor` (eq. 22)."""
    if mscale and mscale_all_dim:
        return yarn_temperature(factor, mscale) / yarn_temperature(factor, mscale_all_dim)
    return yarn_temperature(factor, 1.0)


def scaling_from_hf(
    parameters: Mapping[str, Any] | None, *, max_position_embeddings: int
) -> RopeScaling | None:
    """Reads `rope_scaling` (or `rope_parameters`) of a Hugging Face config.json.

    Raises:
      UserError: the type is not supported, or a number that it needs is missing.
    """
    if not parameters:
        return None
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    original = parameters.get("original_max_position_embeddings") or max_position_embeddings
    try:
        match kind:
            case "default":
                return None
            case "linear":
                return LinearScaling(factor=float(parameters["factor"]))
            case "dynamic":
                # The reference grows from max_position_embeddings, whatever "original" says.
                return DynamicScaling(
                    factor=float(parameters["factor"]),
                    original_max_position_embeddings=max_position_embeddings,
                )
            case "llama3":
                return Llama3Scaling(
                    factor=float(parameters["factor"]),
                    low_freq_factor=float(parameters["low_freq_factor"]),
                    high_freq_factor=float(parameters["high_freq_factor"]),
                    original_max_position_embeddings=int(original),
                )
            case "yarn":
                factor = parameters.get("factor")
                factor = float(factor) if factor else max_position_embeddings / original
                attention = parameters.get("attention_factor")
                if attention is None:
                    attention = yarn_attention_factor(
                        factor,
                        mscale=parameters.get("mscale"),
                        mscale_all_dim=parameters.get("mscale_all_dim"),
                    )
                return YarnScaling(
                    factor=factor,
                    original_max_position_embeddings=int(original),
                    attention_factor=float(attention),
                    beta_fast=float(parameters.get("beta_fast") or 32.0),
                    beta_slow=float(parameters.get("beta_slow") or 1.0),
                    truncate=bool(parameters.get("truncate", True)),
                    mscale=parameters.get("mscale"),
                    mscale_all_dim=parameters.get("mscale_all_dim"),
                )
    except KeyError as missing:
        raise UserError(f"rope scaling {kind!r} lacks {missing}; add it to config.json") from None
    raise UserError(
        f"rope scaling {kind!r} is not supported; supported: {', '.join(SUPPORTED_ROPE_TYPES)}"
    )


def scaling_to_hf(
    scaling: RopeScaling | None, *, max_position_embeddings: int
) -> dict[str, Any] | None:
    """The `rope_scaling` entry of a Hugging Face config.json, or None for plain RoPE."""
    if scaling is None:
        return None
    if isinstance(scaling, FrequencyFactors):
        # Hugging Face's nearest form: LongRoPE with the same factors for short and long inputs.
        factors = list(scaling.factors)
        return {
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "factor": 1.0,
            "attention_factor": 1.0,
            "original_max_position_embeddings": max_position_embeddings,
        }
    kinds = {
        LinearScaling: "linear",
        DynamicScaling: "dynamic",
        Llama3Scaling: "llama3",
        YarnScaling: "yarn",
    }
    values = {k: v for k, v in dataclasses.asdict(scaling).items() if v is not None}
    return {"rope_type": kinds[type(scaling)], **values}


def recognise_frequency_factors(
    factors_F: np.ndarray, *, theta: float, head_dim: int
) -> Llama3Scaling | FrequencyFactors:
    """Names the scaling behind the divisors of a GGUF file.

    llama.cpp stores Llama 3's scaling as its result, one divisor a frequency. Every Llama 3.x
    release has low 1, high 4 and original length 8,192, so the factor is the largest divisor; if
    recomputing with it gives the stored numbers the typed form is returned, which other tools
    can read after `save_hf`.
    """
    guess = Llama3Scaling(
        factor=float(factors_F.max()),
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    plain_F = inverse_frequencies(theta, head_dim)
    if np.allclose(plain_F / llama3_frequencies(plain_F, guess), factors_F, rtol=1e-4):
        return guess
    return FrequencyFactors(factors=tuple(float(x) for x in factors_F))


def inverse_frequencies(theta: float, head_dim: int) -> np.ndarray:
    """Unscaled inverse frequencies theta^(-2i/K), i < K/2; float32 as in the reference."""
    exponents_F = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    return (1.0 / np.float32(theta) ** exponents_F).astype(np.float32)


def llama3_frequencies(plain_F: np.ndarray, scaling: Llama3Scaling) -> np.ndarray:
    """Llama 3.1's scaled inverse frequencies."""
    original = scaling.original_max_position_embeddings
    wavelength_F = 2 * np.pi / plain_F
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth_F = np.clip((original / wavelength_F - low) / (high - low), 0.0, 1.0)
    scaled_F = (1 - smooth_F) * plain_F / scaling.factor + smooth_F * plain_F
    return scaled_F.astype(np.float32)


def yarn_frequencies(plain_F: np.ndarray, scaling: YarnScaling, *, theta: float) -> np.ndarray:
    """YaRN's scaled inverse frequencies (section 3.2 of the paper)."""
    head_dim = 2 * len(plain_F)

    def dimension(rotations: float) -> float:
        context = scaling.original_max_position_embeddings
        return head_dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = (high - low) or 0.001
    ramp_F = np.clip((np.arange(head_dim // 2, dtype=np.float32) - low) / width, 0, 1)
    return (plain_F / scaling.factor * ramp_F + plain_F * (1 - ramp_F)).astype(np.float32)
