"""Learner and in-process sampler of one model: built together so that they agree on what trains."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from jax_t2sql.config import TrainConfig
from jax_t2sql.errors import UserError
from jax_t2sql.experts_record import recorded_experts
from jax_t2sql.learner import (
    FullSpec,
    Learner,
    LearnerState,
    LoraSpec,
    TrainableSpec,
    cispo,
    grpo,
    make_learner,
    make_optimizer,
    policy_gradient,
    sft,
    warmup_cosine,
)
from jax_t2sql.models import LoadedModel, hidden_fn, prefix_fn, unembed_fn
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.sampling.engine import Engine


def trainable_spec(config: TrainConfig) -> TrainableSpec:
    """What the configuration trains: an adapter or all weights."""
    if config.adapter.kind == "full":
        return FullSpec()
    targets = config.adapter.targets
    return LoraSpec(
        targets="all-linear" if targets == ("all-linear",) else targets,
        rank=config.adapter.rank,
        alpha=config.adapter.alpha,
    )


@dataclass(frozen=True)
class Schedule:
    """Learning rate of a phase."""

    peak_lr: float
    warmup_steps: int
    total_steps: int
    final_fraction: float

    def __call__(self, step: int) -> float:
        """Rate of the update that follows `step` updates."""
        return float(warmup_cosine(**dataclasses.asdict(self))(step))


def rl_schedule(config: TrainConfig) -> Schedule:
    """Learning rate of the RL phase."""
    return _schedule(config, config.optimizer.lr, config.rl.steps)


def warmup_schedule(config: TrainConfig) -> Schedule:
    """Learning rate of the supervised warm-up."""
    return _schedule(config, config.warmup.lr, config.warmup.steps)


def _schedule(config: TrainConfig, lr: float, steps: int) -> Schedule:
    total = max(steps, 1)
    return Schedule(
        peak_lr=lr,
        warmup_steps=min(config.optimizer.warmup_steps, total - 1),
        total_steps=total,
        final_fraction=config.optimizer.final_fraction,
    )


def make_rl_learner(config: TrainConfig, model: LoadedModel) -> Learner:
    """The learner of the RL phase, with the configured loss."""
    low, high = config.loss.ratio_low, config.loss.ratio_high
    losses = {
        "cispo": lambda: cispo(low=low, high=high),
        "grpo": lambda: grpo(low=low, high=high),
        "policy_gradient": lambda: policy_gradient(truncation=high),
    }
    # As many samplers as there are groups may have part in a batch.
    loss, sources = losses[config.loss.name](), config.rl.groups
    return _learner(config, model, loss, rl_schedule(config), sources=sources)


def make_sft_learner(config: TrainConfig, model: LoadedModel) -> Learner:
    """The learner of the supervised warm-up."""
    return _learner(config, model, sft(), warmup_schedule(config))


def _learner(
    config: TrainConfig, model: LoadedModel, loss, schedule: Schedule, *, sources: int = 0
) -> Learner:
    optimizer = make_optimizer(
        **dataclasses.asdict(schedule),
        b1=config.optimizer.b1,
        b2=config.optimizer.b2,
        weight_decay=config.optimizer.weight_decay,
        clip_norm=config.optimizer.clip_norm,
    )
    mesh, rules = model.layout.mesh, model.layout.rules
    where = {} if mesh is None else dict(mesh=mesh, rules=rules)
    return make_learner(
        hidden_fn(model.config, **where),
        unembed_fn(model.config),
        prefix_fn=prefix_fn(model.config, **where),
        adapter=trainable_spec(config),
        loss=loss,
        optimizer=optimizer,
        base_desc=model.described if where else None,
        sources=sources,
        **where,
    )


def check_targets(config: TrainConfig, model: LoadedModel) -> None:
    """Raises UserError if a LoRA target matches nothing or is no regular expression."""
    try:
        trainable_spec(config).describe(model.params)
    except (ValueError, re.error) as error:
        raise UserError(f"--adapter.targets: {error}") from None


def make_engine(config: TrainConfig, model: LoadedModel, codec: ChatCodec) -> Engine:
    """The in-process sampler, serving the base until `serve` gives it trained weights."""
    return Engine(
        model.config,
        model.params,
        stop_ids=codec.stop_ids,
        decode=codec.decode,
        max_rows=config.sampler.rows,
        max_prompt_tokens=config.sampler.max_prompt_tokens,
        record_experts=recorded_experts(config, model.config) is not None,
        layout=model.layout,
    )


def serve(engine: Engine, spec: TrainableSpec, base: Any, state: LearnerState, version: int):
    """Lets the sampler use the learner's weights as they are now.

    The arrays are shared, not copied; the next update donates them, so serve again after it.
    """
    engine.set_weights(*spec.bind(base, state.trainable), version=version)
