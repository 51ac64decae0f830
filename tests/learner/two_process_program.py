"""One of two processes that train together: `python two_process_program.py PORT INDEX PHASE DIR`.

Phase "start" trains two steps on one mesh and saves; "resume" restores on another shape of mesh and
goes on. Each process has two devices.
"""

import dataclasses
import json
import sys

import jax
import numpy as np

port, index, phase, directory = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(index))

import optax  # noqa: E402
import tiny_transformer as tiny  # noqa: E402
from jax.sharding import AxisType  # noqa: E402

from jax_t2sql.learner import (  # noqa: E402
    ArrayDesc,
    Checkpointer,
    LoraSpec,
    ShardingRules,
    agree,
    batch_digest,
    cispo,
    from_host_zero,
    make_learner,
    pack,
    shardings,
)

SHAPES = {"start": (1, 4, 1, 1), "resume": (2, 1, 2, 1)}
AXES = {"embedding": (None, "embed"), "qkv": ("layers", "embed", "heads"),
        "out": ("layers", "heads", "embed"), "mix": ("layers", "embed", "mlp"),
        "norm": ("layers", "embed"), "lm_head": ("embed", None)}  # fmt: skip

mesh = jax.make_mesh(SHAPES[phase], ("data", "fsdp", "tensor", "expert"),
                     axis_types=(AxisType.Auto,) * 4)  # fmt: skip
host_base = jax.tree.map(np.asarray, tiny.init_base())


def describe(path, x):
    axes = next(axes for name, axes in AXES.items() if name in jax.tree_util.keystr(path))
    return ArrayDesc(x.shape, x.dtype, axes, None)


base_desc = jax.tree_util.tree_map_with_path(describe, host_base)
base = jax.tree.map(
    lambda x, where: jax.make_array_from_callback(x.shape, where, lambda at: x[at]),
    host_base,
    shardings(base_desc, mesh, ShardingRules()),
)
learner = make_learner(
    tiny.hidden_fn,
    tiny.unembed_fn,
    adapter=LoraSpec(rank=2),
    loss=cispo(low=0.2, high=3.0),
    optimizer=optax.adam(1e-2),
    mesh=mesh,
    base_desc=base_desc,
)
# Host 0 alone knows what to train on.
entry = json.dumps([9, 3, 12, 5, 7, 12, 2, 6]).encode() if int(index) == 0 else None
lengths = json.loads(from_host_zero(entry))
batch = pack(tiny.trajectories(lengths), row_length=12, rows_per_microbatch=4)


def train(state, steps):
    losses = []
    for _ in range(steps):
        agree(batch_digest(batch))
        state, metrics = learner.update(base, state, batch)
        losses.append(float(metrics["loss"]))
    return state, losses


with Checkpointer(f"{directory}/checkpoints") as checkpointer:
    if phase == "start":
        state, losses = train(learner.init(base, jax.random.key(0)), 2)
        checkpointer.save(2, state, {"cursor": 7})
    else:
        state, meta = checkpointer.restore(learner.abstract_state(base))
        assert meta == {"cursor": 7} and int(state.step) == 2
        state, losses = train(state, 1)
        other = dataclasses.replace(batch, tokens_MBT=batch.tokens_MBT + int(index))
        for digest, problem in ((batch_digest(other), None),
                                (b"", "its disk is gone" if int(index) else None)):  # fmt: skip
            try:
                agree(digest, problem=problem)
            except RuntimeError as error:
                print("REFUSED", error, flush=True)
print("LOSSES", json.dumps(losses), flush=True)
jax.distributed.shutdown()
