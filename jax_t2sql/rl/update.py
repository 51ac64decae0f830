"""The update itself: groups to arrays to a new state, the same on every host."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from jax_t2sql.batching import make_batch
from jax_t2sql.bus import Batch, Group
from jax_t2sql.errors import UserError
from jax_t2sql.groups import trajectories
from jax_t2sql.learner import LearnerBatch, agree, batch_digest
from jax_t2sql.policies import rl_schedule
from jax_t2sql.rl.agreement import Agreement, agreements
from jax_t2sql.rl.trainer import Trainer

if TYPE_CHECKING:
    from jax_t2sql.rl.loop import Loop


class HostFault(UserError):
    """A host cannot go on; all of them know, and stop."""


def update(
    trainer: Trainer, groups: Callable[[], Sequence[Group]], pack_seed: int
) -> tuple[dict[str, float], dict[str, Agreement]]:
    """One update; the state is replaced. Metrics are plain numbers; and how samplers agree.

    Args:
      groups: gives the groups of the batch, in its order; where it fails, no host starts.
      pack_seed: decides which rollouts share a row.

    Raises:
      HostFault: a host cannot read the groups, or holds others; it is named.
    """
    with trainer.timed("update"):
        batch, samplers = _agreed(trainer, groups, pack_seed)
        lr = rl_schedule(trainer.run.config)(int(trainer.state.step))
        trainer.state, metrics = trainer.learner.update(trainer.base, trainer.state, batch)
        metrics = jax.device_get(metrics)
        agreement = agreements(metrics, samplers)
        metrics = {name: float(value) for name, value in metrics.items()}
    return metrics | {"lr": lr}, agreement


def batch_metrics(loop: "Loop", batch: Batch, groups: Sequence[Group]) -> dict[str, float]:
    """What the log tells of an update and its groups: their age, and the fates of all."""
    oldest = [group.oldest_version for group in groups]
    ages = [0 if version is None else batch.step - version for version in oldest]
    stale = {"staleness_max": max(ages)} if loop.bus.state.start.bounds.max_staleness else {}
    fates = Counter(decision.fate for decision in batch.fates)
    return {
        **stale,
        "staleness_mean": float(np.mean(ages)),
        "length_used_vs_all": batch.length_ratio,
        **{f"fate_{fate.replace('-', '_')}": count for fate, count in fates.items()},
    }


def _agreed(
    trainer: Trainer, groups: Callable[[], Sequence[Group]], pack_seed: int
) -> tuple[LearnerBatch, list[str]]:
    """The batch and the samplers of its sources, once all hosts hold the same."""
    if trainer.hosts.count == 1:
        return _arrays(trainer, groups(), pack_seed)
    batch, samplers, problem = None, [], None
    try:
        batch, samplers = _arrays(trainer, groups(), pack_seed)
    except (OSError, ValueError, UserError) as error:
        problem = f"cannot read its batch: {error}"
    try:
        agree(batch_digest(batch) if batch else b"", problem=problem)
    except RuntimeError as error:
        raise HostFault(
            f"{error}. All hosts stop; mend that one, then start all again: the batch is in the log"
            " and will be trained"
        ) from error
    return batch, samplers


def _arrays(
    trainer: Trainer, groups: Sequence[Group], pack_seed: int
) -> tuple[LearnerBatch, list[str]]:
    # More than the learner has room for only after a restart with an inline sampler.
    samplers = sorted({group.sampler for group in groups})[: trainer.run.config.rl.groups]
    sequences = trajectories(groups, version=trainer.version, samplers=samplers)
    order = np.random.default_rng(pack_seed).permutation(len(sequences))
    run = trainer.run
    batch = make_batch([sequences[i] for i in order], run.config.learner, run.batch_limits)
    return batch, samplers
