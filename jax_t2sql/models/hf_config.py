"""Hugging Face's config.json: every family's spelling of the same sizes and switches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jax_t2sql.errors import UserError
from jax_t2sql.models.rope_scaling import scaling_from_hf, scaling_to_hf
from jax_t2sql.models.shapes import MLAConfig, MoEConfig, check_architecture

if TYPE_CHECKING:
    from jax_t2sql.models.config import ModelConfig

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
}
# Other names of the same architecture.
_ALIASES = {"kimi_k2": "deepseek_v3"}
# Families whose routers score experts by sigmoid, in groups, with leading dense layers.
_GROUPED = ("deepseek_v3", "glm4_moe")


def read_hf(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ModelConfig` in a config.json.

    Raises:
      UserError: architecture or option that is not supported, or a missing size.
    """
    architecture = str(values.get("model_type"))
    architecture = _ALIASES.get(architecture, architecture)
    check_architecture(architecture)
    _refuse_unsupported(values, architecture)
    rope = values.get("rope_parameters") or values.get("rope_scaling")
    theta = values.get("rope_theta") or (rope or {}).get("rope_theta") or 10_000.0
    try:
        hidden, heads = int(values["hidden_size"]), int(values["num_attention_heads"])
        max_positions = int(values.get("max_position_embeddings", 2048))
        fields = {
            "architecture": architecture,
            "vocab_size": int(values["vocab_size"]),
            "hidden_size": hidden,
            "intermediate_size": int(values["intermediate_size"]),
            "num_layers": int(values["num_hidden_layers"]),
            "num_heads": heads,
            "num_kv_heads": int(values.get("num_key_value_heads") or heads),
            "head_dim": int(values.get("head_dim") or hidden // heads),
            "rope_theta": float(theta),
            "rope_scaling": scaling_from_hf(rope, max_position_embeddings=max_positions),
            "rms_norm_eps": float(values.get("rms_norm_eps", 1e-6)),
            "tie_embeddings": bool(values.get("tie_word_embeddings", False)),
            "qkv_bias": _has_qkv_bias(values, architecture),
            "qk_norm": _has_qk_norm(values, architecture),
            "max_position_embeddings": max_positions,
        }
        if architecture == "glm4_moe":
            share = (rope or {}).get("partial_rotary_factor", values.get("partial_rotary_factor"))
            fields["rotary_dim"] = int(fields["head_dim"] * (0.5 if share is None else share))
        if architecture == "deepseek_v3":
            mla = _read_mla(values)
            fields |= {"mla": mla, "head_dim": mla.key_dim, "rotary_dim": mla.rope_dim}
            fields["num_kv_heads"] = heads
        if architecture == "qwen3_moe":
            fields["moe"] = _read_qwen_moe(values)
        elif architecture in _GROUPED:
            fields["moe"] = _read_grouped_moe(values)
    except KeyError as missing:
        raise UserError(f"config.json lacks {missing}, needed for {architecture}") from None
    return fields


def write_hf(config: "ModelConfig") -> dict[str, Any]:
    """The config.json of a model.

    Raises:
      UserError: switches that no Hugging Face class of this architecture has.
    """
    _refuse_unwritable(config)
    values = {
        "architectures": [_CLASSES[config.architecture]],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "hidden_act": "silu",
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling_to_hf(
            config.rope_scaling, max_position_embeddings=config.max_position_embeddings
        ),
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.max_position_embeddings,
        "torch_dtype": "float32",
    }
    moe = config.moe
    if config.mla is not None:
        values |= {
            "q_lora_rank": config.mla.query_rank,
            "kv_lora_rank": config.mla.latent_dim,
            "qk_nope_head_dim": config.mla.nope_dim,
            "qk_rope_head_dim": config.mla.rope_dim,
            "v_head_dim": config.mla.value_dim,
            "rope_interleave": config.mla.interleaved,
        }
    else:
        values["head_dim"] = config.head_dim
    if config.architecture == "glm4_moe":
        values |= {
            "partial_rotary_factor": config.rotated / config.head_dim,
            "attention_bias": config.qkv_bias,
            "use_qk_norm": config.qk_norm,
        }
    if moe is not None:
        values |= {
            "moe_intermediate_size": moe.expert_size,
            "num_experts_per_tok": moe.experts_per_token,
            "norm_topk_prob": moe.normalize,
        }
    if config.architecture == "qwen3_moe":
        values |= {
            "num_experts": moe.num_experts,
            "decoder_sparse_step": 1,
            "mlp_only_layers": list(range(moe.dense_layers)),
        }
    elif config.architecture in _GROUPED:
        values |= {
            "n_routed_experts": moe.num_experts,
            "n_shared_experts": moe.shared_size // moe.expert_size,
            "first_k_dense_replace": moe.dense_layers,
            "scoring_func": moe.scoring,
            "topk_method": "noaux_tc",
            "routed_scaling_factor": moe.scale,
            "n_group": moe.groups,
            "topk_group": moe.groups_used,
            "num_nextn_predict_layers": 0,
        }
    return values


def _read_mla(values: Mapping[str, Any]) -> MLAConfig:
    rank = values.get("q_lora_rank")
    return MLAConfig(
        query_rank=None if rank is None else int(rank),
        latent_dim=int(values["kv_lora_rank"]),
        nope_dim=int(values["qk_nope_head_dim"]),
        rope_dim=int(values["qk_rope_head_dim"]),
        value_dim=int(values["v_head_dim"]),
        interleaved=bool(values.get("rope_interleave", True)),
    )


def _read_qwen_moe(values: Mapping[str, Any]) -> MoEConfig:
    dense = sorted(values.get("mlp_only_layers") or [])
    if dense != list(range(len(dense))) or values.get("decoder_sparse_step", 1) != 1:
        raise UserError(
            f"config.json has mlp_only_layers={dense} and decoder_sparse_step="
            f"{values.get('decoder_sparse_step', 1)}; only the first layers may be dense"
        )
    experts = values.get("num_experts", values.get("num_local_experts"))
    if experts is None:
        raise KeyError("num_experts")
    return MoEConfig(
        num_experts=int(experts),
        experts_per_token=int(values["num_experts_per_tok"]),
        expert_size=int(values["moe_intermediate_size"]),
        dense_layers=len(dense),
        normalize=bool(values.get("norm_topk_prob", False)),
    )


def _read_grouped_moe(values: Mapping[str, Any]) -> MoEConfig:
    size = int(values["moe_intermediate_size"])
    return MoEConfig(
        num_experts=int(values["n_routed_experts"]),
        experts_per_token=int(values["num_experts_per_tok"]),
        expert_size=size,
        shared_size=size * int(values["n_shared_experts"]),
        dense_layers=int(values["first_k_dense_replace"]),
        scoring="sigmoid",
        normalize=bool(values.get("norm_topk_prob", True)),
        scale=float(values.get("routed_scaling_factor", 1.0)),
        groups=int(values.get("n_group") or 1),
        groups_used=int(values.get("topk_group") or 1),
    )


def _has_qkv_bias(values: Mapping[str, Any], architecture: str) -> bool:
    asked = bool(values.get("attention_bias"))
    return architecture == "qwen2" or (architecture == "glm4_moe" and asked)


def _has_qk_norm(values: Mapping[str, Any], architecture: str) -> bool:
    asked = bool(values.get("use_qk_norm"))
    return architecture in ("qwen3", "qwen3_moe") or (architecture == "glm4_moe" and asked)


def _refuse_unsupported(values: Mapping[str, Any], architecture: str) -> None:
    """Options that would change the numbers silently if they were ignored."""
    grouped = architecture in _GROUPED
    values = {**(values.get("rope_parameters") or values.get("rope_scaling") or {}), **values}
    unsupported = {
        "hidden_act": values.get("hidden_act", "silu") != "silu",
        "use_sliding_window": bool(values.get("use_sliding_window", False)),
        "mlp_bias": bool(values.get("mlp_bias", False)),
        # In most families it also adds a bias to o_proj; Qwen2's biases are not optional.
        "attention_bias": bool(values.get("attention_bias"))
        and architecture not in ("qwen2", "glm4_moe"),
        "pretraining_tp": values.get("pretraining_tp", 1) not in (None, 1),
        "quantization_config": values.get("quantization_config") is not None,
        "scoring_func": grouped and values.get("scoring_func", "sigmoid") != "sigmoid",
        "topk_method": grouped and values.get("topk_method", "noaux_tc") != "noaux_tc",
        "moe_layer_freq": grouped and values.get("moe_layer_freq", 1) != 1,
        "partial_rotary_factor": architecture != "glm4_moe"
        and values.get("partial_rotary_factor", 1.0) != 1.0,
    }
    for name, present in unsupported.items():
        if present:
            raise UserError(
                f"config.json has {name}={values[name]!r}, which is not supported; "
                "use a model without it"
            )


def _refuse_unwritable(config: "ModelConfig") -> None:
    name, moe = config.architecture, config.moe
    facts = {
        "qkv_bias": (config.qkv_bias, name == "qwen2" or (name == "glm4_moe" and config.qkv_bias)),
        "qk_norm": (
            config.qk_norm,
            name in ("qwen3", "qwen3_moe") or (name == "glm4_moe" and config.qk_norm),
        ),
        "mla": (config.mla is not None, name == "deepseek_v3"),
        "moe": (moe is not None, name in ("qwen3_moe", *_GROUPED)),
        "rotary_dim": (config.rotary_dim is not None, name in _GROUPED),
    }
    if moe is not None:
        grouped = name in _GROUPED
        facts["moe.scoring"] = (moe.scoring, "sigmoid" if grouped else "softmax")
        if grouped:
            facts["moe.shared_size"] = (moe.shared_size % moe.expert_size, 0)
        else:
            plain = (0, 1, 1, 1.0)
            facts["moe"] = ((moe.shared_size, moe.groups, moe.groups_used, moe.scale), plain)
    for field, (have, possible) in facts.items():
        if have != possible:
            raise UserError(f"{name} with {field}={have} has no HF class")
