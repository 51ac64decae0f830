"""Small models of every family."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn.initializers import ones

from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import LoadedModel, ModelConfig, describe_params, train_tokenizer
from jax_t2sql.models.shapes import MLAConfig, MoEConfig

CORPUS = [
    "SELECT name, total FROM orders WHERE total > 120 ORDER BY total DESC LIMIT 3",
    "How many customers from Zürich placed an order in 2021?",
    'SELECT COUNT(*) FROM customer AS c JOIN "order" AS o ON c.id = o.customer_id',
]


def tiny(architecture: str, **changes) -> ModelConfig:
    """A configuration of two layers whose grouped heads and sizes are all different numbers."""
    base = ModelConfig(
        architecture=architecture,
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        tie_embeddings=architecture != "llama",
        qkv_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        max_position_embeddings=128,
    )
    return dataclasses.replace(base, **changes)


def tiny_sparse(architecture: str, **changes) -> ModelConfig:
    """A mixture of experts of one dense and two sparse layers (Qwen3-MoE: all three sparse)."""
    latent = architecture == "deepseek_v3"
    grouped = architecture != "qwen3_moe"
    mla = MLAConfig(query_rank=24, latent_dim=16, nope_dim=16, rope_dim=8, value_dim=12)
    moe = MoEConfig(
        num_experts=8,
        experts_per_token=3,
        expert_size=28,
        shared_size=28 if grouped else 0,
        dense_layers=1 if grouped else 0,
        scoring="sigmoid" if grouped else "softmax",
        scale=2.5 if grouped else 1.0,
        groups=4 if latent else 1,
        groups_used=2 if latent else 1,
    )
    base = ModelConfig(
        architecture=architecture,
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_layers=3,
        num_heads=4,
        num_kv_heads=4 if latent else 2,
        head_dim=24 if latent else 32,
        rotary_dim={"glm4_moe": 16, "qwen3_moe": None}.get(architecture, 8),
        qk_norm=architecture == "qwen3_moe",
        mla=mla if latent else None,
        moe=moe,
        max_position_embeddings=128,
    )
    return dataclasses.replace(base, **changes)


def random_params(config: ModelConfig, seed: int = 0):
    """Parameters without ones or zeros, so that every array matters.

    Drawn with numpy: JAX would compile a program for each shape.
    """
    generator = np.random.default_rng(seed)

    def draw(desc):
        noise = generator.standard_normal(desc.shape, np.float32)
        return jnp.asarray(0.2 * noise + (1 if desc.init is ones else 0))

    return jax.tree.map(draw, describe_params(config))


def random_adapter(config: ModelConfig, spec: LoraSpec, seed: int = 7):
    """An adapter whose B is not zero."""
    generator = np.random.default_rng(seed)

    def draw(desc):
        return jnp.asarray(0.1 * generator.standard_normal(desc.shape, np.float32))

    return jax.tree.map(draw, spec.describe(describe_params(config)))


@pytest.fixture(scope="session")
def make_config():
    return tiny


@pytest.fixture(scope="session")
def make_sparse():
    return tiny_sparse


@pytest.fixture(scope="session")
def make_params():
    return random_params


@pytest.fixture(scope="session")
def make_adapter():
    return random_adapter


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(CORPUS * 4, vocab_size=320)


@pytest.fixture(scope="session")
def qwen3(tokenizer) -> LoadedModel:
    config = tiny("qwen3")
    return LoadedModel(config, random_params(config), tokenizer, "memory", "0" * 64)
