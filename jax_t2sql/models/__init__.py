"""Decoder-only transformers as pure functions over parameter trees.

Llama, Qwen2 and Qwen3; of mixtures of experts Qwen3-MoE, DeepSeek-V3, Kimi-K2 and GLM-4-MoE.
Weights, tokenizer and chat template from Hugging Face directories or, of dense models, GGUF files;
adapters in PEFT format.
"""

from jax_t2sql.models.assemble import Layout
from jax_t2sql.models.cache import KVCache, extend_fn, init_cache
from jax_t2sql.models.config import ModelConfig
from jax_t2sql.models.load import LoadedModel, check_model, load_model, save_hf
from jax_t2sql.models.params import count_params, describe_params, init_params
from jax_t2sql.models.peft import export_adapter, load_adapter
from jax_t2sql.models.quantized import Quantization, quantize_params
from jax_t2sql.models.tiny import tiny_config, train_tokenizer
from jax_t2sql.models.tokenizer import Tokenizer
from jax_t2sql.models.transformer import hidden_fn, prefix_fn, routing_fn, unembed_fn

__all__ = [
    "KVCache",
    "Layout",
    "LoadedModel",
    "ModelConfig",
    "Quantization",
    "Tokenizer",
    "check_model",
    "count_params",
    "describe_params",
    "export_adapter",
    "extend_fn",
    "hidden_fn",
    "init_cache",
    "init_params",
    "load_adapter",
    "load_model",
    "prefix_fn",
    "quantize_params",
    "routing_fn",
    "save_hf",
    "tiny_config",
    "train_tokenizer",
    "unembed_fn",
]
