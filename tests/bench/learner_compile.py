"""What compiling an update costs: CPU-seconds at 4 and at 48 layers, and programs in 50 updates.

    python tests/bench/learner_compile.py

Layers are scanned, so that depth should not matter; batches of random lengths fall into few shapes,
so that nothing should be compiled after the first updates.
"""

import resource

import jax
import numpy as np

from jax_t2sql.batching import make_batch, rollout_limits
from jax_t2sql.config import LearnerConfig, RLConfig
from jax_t2sql.learner import LoraSpec, Trajectory, cispo, make_learner, make_optimizer
from jax_t2sql.models import (
    ModelConfig,
    describe_params,
    hidden_fn,
    init_params,
    prefix_fn,
    unembed_fn,
)
from jax_t2sql.text2sql import EpisodeConfig

PROMPTS, ANSWERS, GROUPS, MEMBERS = (320, 500), (20, 95), 4, 8
LIMITS = rollout_limits(
    range(*PROMPTS),
    EpisodeConfig(style="direct", max_tokens_per_turn=ANSWERS[1]),
    RLConfig(groups=GROUPS, group_size=MEMBERS),
)


def make(layers: int):
    config = ModelConfig(
        architecture="qwen3",
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_layers=layers,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        qk_norm=True,
        tie_embeddings=True,
    )
    learner = make_learner(
        hidden_fn(config),
        unembed_fn(config),
        prefix_fn=prefix_fn(config),
        adapter=LoraSpec(rank=4),
        loss=cispo(low=0.0, high=4.0),
        optimizer=make_optimizer(peak_lr=1e-4, warmup_steps=0, total_steps=100),
    )
    return config, learner


def trajectories(rng: np.random.Generator) -> list[Trajectory]:
    """Groups with prompts of about 400 and answers of about 60 tokens, as many as had a signal."""
    made = []
    for _ in range(rng.integers(1, GROUPS + 1)):
        prompt = rng.integers(0, 512, rng.integers(*PROMPTS))
        for _ in range(MEMBERS):
            ids = np.concatenate([prompt, rng.integers(0, 512, rng.integers(*ANSWERS))])
            sampled = np.arange(len(ids)) >= len(prompt)
            made.append(Trajectory(ids, sampled, np.full(len(ids), -6.0), rng.normal()))
    return made


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    batch = make_batch(trajectories(np.random.default_rng(0)), LearnerConfig(), LIMITS)
    spent = {}
    for layers in (4, 4, 48):  # the first warms up the compiler and is not counted
        config, learner = make(layers)
        base = jax.tree.map(lambda d: jax.ShapeDtypeStruct(d.shape, d.dtype),
                            describe_params(config))  # fmt: skip
        state = learner.abstract_state(base)
        start = cpu_seconds()
        learner.lower_update(base, state, batch).compile()
        spent[layers] = cpu_seconds() - start
    ratio = spent[48] / spent[4]
    print(f"compile: 4 layers {spent[4]:.1f} s, 48 layers {spent[48]:.1f} s, ratio {ratio:.2f}")

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None
    )
    config, learner = make(4)
    base, rng = init_params(config, jax.random.key(0)), np.random.default_rng(1)
    state, programs = learner.init(base, jax.random.key(1)), []
    for _ in range(50):
        before = len(compiled)
        batch = make_batch(trajectories(rng), LearnerConfig(), LIMITS)
        state, metrics = learner.update(base, state, batch)
        jax.block_until_ready(metrics)
        programs.append(len(compiled) - before)
    late = [step for step, count in enumerate(programs, start=1) if count and step > 2]
    print(f"programs compiled in 50 updates: {sum(programs)}; in updates after the second: {late}")


if __name__ == "__main__":
    main()
