"""Models far larger than this machine, as shapes: every parameter is accounted for."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_t2sql.learner import LoraSpec
from jax_t2sql.models import (
    ModelConfig,
    count_params,
    hidden_fn,
    init_params,
    unembed_fn,
)

FOLDER = Path(__file__).parent / "published"
COUNTS = {
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_235b_a22b": 235_093_634_560,
    "kimi_k2": 1_026_408_232_448,
}


def published(name: str) -> ModelConfig:
    return ModelConfig.from_hf(json.loads((FOLDER / f"{name}.json").read_text()))


@pytest.mark.parametrize("name", COUNTS)
def test_shapes_are_built_without_memory(name):
    config = published(name)
    base = jax.eval_shape(lambda key: init_params(config, key, jnp.bfloat16), jax.random.key(0))
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(base)) == count_params(config)
    assert count_params(config) == COUNTS[name]
    adapter = jax.eval_shape(lambda key: LoraSpec(rank=4).init(base, key), jax.random.key(0))
    experts = adapter["layers"]["expert_down_proj"].b.shape
    assert experts[1:] == (config.moe.num_experts, 4, config.hidden_size)
    tokens = jax.ShapeDtypeStruct((2, 64), jnp.int32)
    hidden = jax.eval_shape(hidden_fn(config), base, adapter, tokens, tokens, tokens)
    assert (hidden.shape, hidden.dtype) == ((2, 64, config.hidden_size), jnp.bfloat16)
    logits = jax.eval_shape(unembed_fn(config), base, adapter, hidden)
    assert logits.shape == (2, 64, config.vocab_size)


@pytest.mark.parity
@pytest.mark.parametrize("name", COUNTS)
def test_transformers_counts_the_same(name):
    torch = pytest.importorskip("torch", reason="needs pip install -e '.[parity]'")
    transformers = pytest.importorskip("transformers", reason="needs pip install -e '.[parity]'")
    config = published(name)
    values = config.to_hf()
    kind = getattr(transformers, values["architectures"][0].replace("ForCausalLM", "Config"))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(kind(**values))
    arrays = [*model.parameters()]
    # A parameter of the published files, a buffer of the class.
    arrays += [x for name, x in model.named_buffers() if name.endswith("e_score_correction_bias")]
    assert sum(x.numel() for x in arrays) == count_params(config)
