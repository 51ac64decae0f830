"""Trains tiny real models on one device and on eight, and prints what a test wants to know.

A process of its own, because the number of devices is fixed when JAX starts:

    python mesh_program.py {equal | inspect} MODEL
"""

import dataclasses
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType

from jax_t2sql.learner import (
    LoraSpec,
    ShardingRules,
    Trajectory,
    cispo,
    make_learner,
    pack,
    pack_shared,
    shardings,
)
from jax_t2sql.models import (
    ModelConfig,
    describe_params,
    hidden_fn,
    init_params,
    prefix_fn,
    unembed_fn,
)

AXES = ("data", "fsdp", "tensor", "expert")
SHAPES = ((8, 1, 1, 1), (1, 8, 1, 1), (2, 2, 2, 1), (1, 2, 2, 2))
VALUES = {
    "model_type": "qwen3",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
}
SPARSE = VALUES | {
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def make_mesh(shape):
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 4)


def trajectories(prompts=8):
    rng = np.random.default_rng(0)
    made = []
    for _ in range(prompts):
        prompt = rng.integers(0, 64, rng.integers(2, 14))
        for _ in range(2):
            ids = np.concatenate([prompt, rng.integers(0, 64, rng.integers(1, 6))])
            sampled = np.arange(len(ids)) >= len(prompt)
            trajectory = Trajectory(ids, sampled, -rng.uniform(3, 5, len(ids)), rng.normal())
            sources_T = (np.arange(len(ids)) + len(made)) % 3
            made.append(dataclasses.replace(trajectory, sources_T=sources_T))
    return made


def keep_gradient():
    """Plain descent whose state is the last gradient."""
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    step = lambda g, state, params: (jax.tree.map(lambda x: -0.1 * x, g), g)  # noqa: E731
    return optax.GradientTransformation(zeros, step)


def learner_for(config, **options):
    placed = {name: options[name] for name in ("mesh",) if name in options}
    return make_learner(
        hidden_fn(config, **placed),
        unembed_fn(config),
        prefix_fn=prefix_fn(config, **placed),
        adapter=LoraSpec(rank=2, alpha=4),
        loss=cispo(low=0.0, high=4.0),
        optimizer=keep_gradient(),
        sources=2,
        **options,
    )


def learn(learner, base, batch):
    """One update from a state with b != 0, without which half the gradient would vanish."""
    state = learner.init(base, jax.random.key(0))
    bump = jax.jit(lambda tree: jax.tree.map(lambda x: x + 0.05, tree))
    state = dataclasses.replace(state, trainable=bump(state.trainable))
    with jax.transfer_guard("disallow"):
        state, metrics = learner.update(base, state, batch)
        jax.block_until_ready(state)
    return state, metrics


def equal(name):
    """The largest differences of each mesh from one device."""
    config = ModelConfig.from_hf({"dense": VALUES, "sparse": SPARSE}[name])
    base, described = init_params(config, jax.random.key(0)), describe_params(config)
    batches = {
        "whole": pack(trajectories(), row_length=20, rows_per_microbatch=8),
        "shared": pack_shared(
            trajectories(), prefix_length=16, row_length=12, rows_per_microbatch=8, prefix_rows=8
        ),
    }
    alone = learner_for(config)
    wanted = {kind: learn(alone, base, batch) for kind, batch in batches.items()}
    for shape in SHAPES:
        mesh = make_mesh(shape)
        placed = jax.device_put(base, shardings(described, mesh, ShardingRules()))
        learner = learner_for(config, mesh=mesh, base_desc=described)
        # Prefixes where batch and tensor axes are both split say all that the other meshes would.
        for kind in ("whole", "shared") if shape == (2, 2, 2, 1) else ("whole",):
            state, metrics = learn(learner, placed, batches[kind])
            single, single_metrics = wanted[kind]
            report = {"mesh": shape, "kind": kind}
            report["loss"] = abs(float(metrics["loss"]) - float(single_metrics["loss"]))
            sums = ("source_tokens", "source_ratio", "source_log_ratio")
            apart = [np.abs(np.asarray(metrics[n]) - np.asarray(single_metrics[n])) for n in sums]
            report["sources"] = float(np.max(apart) / np.min(single_metrics["source_tokens"]))
            for part in ("trainable", "opt_state"):
                differences = jax.tree.map(
                    lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()),
                    getattr(state, part),
                    getattr(single, part),
                )
                report[part] = max(jax.tree.leaves(differences))
            sizes = [x.addressable_shards[0].data.size / x.size for x in jax.tree.leaves(placed)]
            report["base_share"] = min(sizes)
            norm = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(single.opt_state))
            report["gradient"] = norm
            print(json.dumps(report), flush=True)


def inspect(name):
    """Collectives and memory of a compiled update whose base is split among eight devices."""
    values, shape = {"dense": (VALUES, (1, 8, 1, 1)), "sparse": (SPARSE, (2, 2, 2, 1))}[name]
    values = values | {"num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 256}
    config = ModelConfig.from_hf(values)
    mesh, described = make_mesh(shape), describe_params(config)
    learner = learner_for(config, mesh=mesh, base_desc=described)
    split = shardings(described, mesh, ShardingRules())
    base = jax.tree.map(
        lambda desc, where: jax.ShapeDtypeStruct(desc.shape, desc.dtype, sharding=where),
        described,
        split,
    )
    batch = pack(trajectories(), row_length=20, rows_per_microbatch=8)
    compiled = learner.lower_update(base, learner.abstract_state(base), batch).compile()
    gathered = [
        [int(size) for size in shape.split(",") if size]
        for shapes in re.findall(r"= (.*?) all-gather(?:-start)?\(", compiled.as_text())
        for shape in re.findall(r"\w+\[([\d,]*)\]", shapes)
    ]
    print(json.dumps({
        "gathered": gathered,
        "largest_kernel": max(x.size // 6 for x in map(
            lambda d: np.empty(d.shape, np.int8), jax.tree.leaves(described["layers"]))),
        "base_bytes": sum(4 * int(np.prod(d.shape)) for d in jax.tree.leaves(described)),
        "argument_bytes": compiled.memory_analysis().argument_size_in_bytes,
        "aliased_bytes": compiled.memory_analysis().alias_size_in_bytes,
        "state_bytes": sum(x.size * 4 for x in jax.tree.leaves(learner.abstract_state(base))),
    }))  # fmt: skip


if __name__ == "__main__":
    {"equal": equal, "inspect": inspect}[sys.argv[1]](*sys.argv[2:])
