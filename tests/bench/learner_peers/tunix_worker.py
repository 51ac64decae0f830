"""Tunix: its Qwen3, its GRPO loss (which computes the entropy too), qwix LoRA, one nnx.jit step."""

import sys

import jax
import jax.numpy as jnp
import optax
import qwix
from flax import nnx
from shapes import SHAPES, make_data
from tunix.models.qwen3 import model as qwen3
from tunix.rl import algo_core
from tunix.rl.common import TrainExample
from tunix.rl.grpo.grpo_learner import GRPOConfig
from worker import serve

shape, rows = SHAPES[sys.argv[1]], int(sys.argv[2])
config = qwen3.ModelConfig(
    num_layers=shape.layers,
    vocab_size=shape.vocab,
    embed_dim=shape.hidden,
    hidden_dim=shape.inner,
    num_heads=shape.heads,
    head_dim=shape.head_dim,
    num_kv_heads=shape.kv_heads,
    rope_theta=10_000,
    norm_eps=1e-6,
    use_tied_embedding=True,
)
pattern = ".*q_proj|.*k_proj|.*v_proj|.*o_proj|.*gate_proj|.*up_proj|.*down_proj"
base = qwen3.Qwen3(config, rngs=nnx.Rngs(0))
model = qwix.apply_lora_to_model(
    base,
    qwix.LoraProvider(module_path=pattern, rank=shape.rank, alpha=float(shape.rank)),
    **base.get_model_input(),
)
optimizer = nnx.Optimizer(
    model, optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4)), wrt=nnx.LoRAParam
)
algorithm = GRPOConfig(num_generations=shape.rows, num_iterations=1, beta=0.0)
algorithm.temperature = 1.0  # their learner takes it from the rollout's configuration
ids, advantages = make_data(shape)


def example(part: slice) -> TrainExample:
    count, prompt = ids[part].shape[0], ids[part, : shape.prompt]
    return TrainExample(
        prompt_ids=jnp.asarray(prompt),
        prompt_mask=jnp.ones(prompt.shape, bool),
        completion_ids=jnp.asarray(ids[part, shape.prompt :]),
        completion_mask=jnp.ones((count, shape.completion), bool),
        advantages=jnp.asarray(advantages[part]),
        ref_per_token_logps=None,
        old_per_token_logps=jnp.full((count, shape.completion), -9.0),
    )


@nnx.jit
def gradient(model, part):
    def loss_fn(model):
        result = algo_core.grpo_loss_fn(model, part, algorithm, pad_id=-1, eos_id=-2)
        return result[0], result[1]

    (loss, _), grads = nnx.value_and_grad(
        loss_fn, argnums=nnx.DiffState(0, nnx.LoRAParam), has_aux=True
    )(model)
    return jnp.asarray(jax.tree.leaves(loss)[0]), grads


@nnx.jit
def apply(model, optimizer, grads):
    optimizer.update(model, grads)


parts = [example(slice(i, i + rows)) for i in range(0, shape.rows, rows)]


def update() -> float:
    total, grads = 0.0, None
    for part in parts:
        loss, new = gradient(model, part)
        grads = new if grads is None else jax.tree.map(jnp.add, grads, new)
        total += float(loss)
    apply(model, optimizer, grads)
    jax.block_until_ready(nnx.state(model, nnx.LoRAParam))
    return total / len(parts)


serve(update)
