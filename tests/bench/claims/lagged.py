"""The training program with a sampler that is always a number of updates behind.

    python tests/bench/claims/lagged.py LAG [options of python -m jax_t2sql.train]

It samples with the weights of LAG updates before, which are what a fleet of that staleness would
have; groups carry the version that sampled them. Nothing overlaps, so nothing is said of speed. A
resumed run begins with a lag of 0.
"""

import sys

import jax
import jax.numpy as jnp

from jax_t2sql.bus import Group
from jax_t2sql.programs import run_program
from jax_t2sql.rl import assembly
from jax_t2sql.rl.inline import InlineSampling
from jax_t2sql.rl.loop import Loop
from jax_t2sql.train import main


class LaggedSampling(InlineSampling):
    """Samples with the weights of `lag` updates ago; serves the newest for evaluations."""

    lag = 0

    def __init__(self, *parts):
        super().__init__(*parts)
        self._kept: list[tuple[int, object]] = []

    def work(self, loop: Loop) -> list[Group]:
        if not self._kept or self._kept[-1][0] != loop.version:
            # The next update donates the arrays.
            self._kept.append((loop.version, jax.tree.map(jnp.copy, loop.state.trainable)))
        self._kept = self._kept[-(self.lag + 1) :]
        version, trainable = self._kept[0]
        self.engine.set_weights(*loop.spec.bind(loop.base, trainable), version=version)
        groups = super().work(loop)
        self.serve(loop)
        return groups


if __name__ == "__main__":
    LaggedSampling.lag = int(sys.argv.pop(1))
    assembly.InlineSampling = LaggedSampling
    run_program(main)
