"""What `train` puts together, on one device and on meshes of eight; prints what a test compares.

A process of its own, because the number of devices is fixed when JAX starts:

    python mesh_run_program.py DIRECTORY
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from jax_t2sql.assembly import load_base
from jax_t2sql.batching import make_batch, rollout_limits
from jax_t2sql.config import AdapterConfig, DataConfig, TrainConfig
from jax_t2sql.config_loading import resolve
from jax_t2sql.learner import Checkpointer, Trajectory
from jax_t2sql.models import (
    LoadedModel,
    init_params,
    save_hf,
    tiny_config,
    train_tokenizer,
)
from jax_t2sql.policies import make_engine, make_rl_learner, serve, trainable_spec
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.text2sql import EpisodeConfig

TEXTS = ["How many people are there?", "SELECT count(*) FROM people"] * 4


def make_model(directory: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=320)
    shape = tiny_config(320, kv_heads=4)
    params = jax.tree.map(lambda x: 2 * x, init_params(shape, jax.random.key(0)))
    save_hf(LoadedModel(shape, params, tokenizer, "", ""), directory)


def config_of(directory: Path, mesh: str | None) -> TrainConfig:
    data = DataConfig(train="questions.jsonl", databases="databases")
    adapter = AdapterConfig(rank=4, alpha=8.0)
    return resolve(TrainConfig(model=str(directory), data=data, adapter=adapter, mesh=mesh))


def trajectories() -> list[Trajectory]:
    rng, made = np.random.default_rng(0), []
    for _ in range(3):
        prompt = rng.integers(0, 300, rng.integers(5, 20))
        for _ in range(4):
            ids = np.concatenate([prompt, rng.integers(0, 300, rng.integers(3, 12))])
            sampled = np.arange(len(ids)) >= len(prompt)
            made.append(Trajectory(ids, sampled, np.full(len(ids), -5.5), rng.normal()))
    return made


class Parts:
    """Model, learner and sampler of a configuration."""

    def __init__(self, directory: Path, mesh: str | None):
        self.config = config_of(directory / "model", mesh)
        self.model, _ = load_base(self.config, directory)
        self.learner = make_rl_learner(self.config, self.model)
        self.engine = make_engine(self.config, self.model, ChatCodec(self.model.tokenizer))

    def update(self, state):
        episode = EpisodeConfig(style="direct", max_tokens_per_turn=16, max_context=64)
        limits = rollout_limits(
            [19], episode, self.config.rl, shards=self.model.layout.batch_shards
        )
        batch = make_batch(trajectories(), self.config.learner, limits)
        state, metrics = self.learner.update(self.model.params, state, batch)
        names = ("loss", "grad_norm", "entropy", "ratio_mean")
        return state, {name: float(metrics[name]) for name in names}

    def sample(self, state):
        serve(self.engine, trainable_spec(self.config), self.model.params, state, 1)
        wanted = [
            SampleRequest(prompt_ids=tuple(range(5 + n // 2)), seed=n, max_tokens=6)
            for n in range(6)
        ]
        found = self.engine.generate(wanted)
        return [completion.ids for completion in found], [c.logprobs for c in found]


def main(directory: Path) -> None:
    make_model(directory / "model")
    for number, mesh in enumerate((None, "data=2,fsdp=2,tensor=2")):
        parts = Parts(directory, mesh)
        state, first = parts.update(parts.learner.init(parts.model.params, jax.random.key(0)))
        with Checkpointer(directory / str(number)) as checkpointer:
            checkpointer.save(1, state, {})
        ids, logprobs = parts.sample(state)
        shares = [
            leaf.addressable_shards[0].data.size / leaf.size
            for leaf in jax.tree.leaves(parts.model.params)
        ]
        report = {"ids": ids, "logprobs": logprobs, "first": first, "share": min(shares)}
        report["second"] = parts.update(state)[1]
        print(json.dumps(report), flush=True)
    other = Parts(directory, "fsdp=4,tensor=2")
    with Checkpointer(directory / "1") as checkpointer:
        state, _ = checkpointer.restore(other.learner.abstract_state(other.model.params))
    print(json.dumps({"second": other.update(state)[1]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
