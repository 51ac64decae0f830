"""The update itself: groups to arrays to a new state."""

import time
from collections.abc import Sequence

import jax
import numpy as np

from jax_t2sql.batching import make_batch
from jax_t2sql.bus import Group
from jax_t2sql.groups import trajectories
from jax_t2sql.policies import rl_schedule
from jax_t2sql.rl.loop import Loop


def update(loop: Loop, groups: Sequence[Group], pack_seed: int) -> dict[str, float]:
    """One update on these groups; the state is replaced. Metrics are plain numbers."""
    started = time.perf_counter()
    config = loop.run.config
    sequences = trajectories(groups)
    order = np.random.default_rng(pack_seed).permutation(len(sequences))
    batch = make_batch([sequences[i] for i in order], config.learner)
    lr = rl_schedule(config)(int(loop.state.step))
    loop.state, metrics = loop.learner.update(loop.base, loop.state, batch)
    metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
    loop.spend("update", time.perf_counter() - started)
    return metrics | {"lr": lr}
