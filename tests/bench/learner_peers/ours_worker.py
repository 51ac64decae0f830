"""jax_t2sql's learner: the same update; `argv[3]` is "shared" or "unshared"."""

import sys

import jax
import numpy as np
from shapes import SHAPES, hf_values, make_data
from worker import serve

from jax_t2sql.learner import (
    LoraSpec,
    Trajectory,
    cispo,
    make_learner,
    make_optimizer,
    pack,
    pack_shared,
)
from jax_t2sql.models import ModelConfig, hidden_fn, init_params, prefix_fn, unembed_fn

shape, rows, layout = SHAPES[sys.argv[1]], int(sys.argv[2]), sys.argv[3]
config = ModelConfig.from_hf(hf_values(shape))
base = init_params(config, jax.random.key(0))
learner = make_learner(
    hidden_fn(config),
    unembed_fn(config),
    prefix_fn=prefix_fn(config),
    adapter=LoraSpec(rank=shape.rank, alpha=shape.rank),
    loss=cispo(low=0.0, high=4.0),
    optimizer=make_optimizer(peak_lr=1e-4, warmup_steps=0, total_steps=1000),
)
ids, advantages = make_data(shape)
sampled = np.arange(shape.length) >= shape.prompt
trajectories = [
    Trajectory(row, sampled, np.full(shape.length, -9.0), advantage)
    for row, advantage in zip(ids, advantages, strict=True)
]
if layout == "shared":
    batch = pack_shared(
        trajectories,
        prefix_length=shape.prompt,
        row_length=shape.completion + 1,
        rows_per_microbatch=rows,
    )
else:
    batch = pack(trajectories, row_length=shape.length, rows_per_microbatch=rows)
state = learner.init(base, jax.random.key(1))


def update() -> float:
    global state
    state, metrics = learner.update(base, state, batch)
    return float(metrics["loss"])


if __name__ == "__main__":
    serve(update)
