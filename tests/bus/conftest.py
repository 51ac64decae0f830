"""Small real parts that all bus tests share."""

from types import SimpleNamespace

import numpy as np
import pytest

from jax_t2sql.bus import Bounds, Contract, NewTask, Rollout, start_or_takeover

CONTRACT = Contract(
    config="c", code="d", base_model="m", tokenizer="t", prompt="p", grader="g", data="x"
)
VOCAB = 100


def rollout(*, seed: int = 0, version: int = 0, length: int = 8, **changes) -> Rollout:
    """A rollout that follows from seed and version alone; `changes` replace arguments of make."""
    rng = np.random.default_rng([seed, version])
    arguments = dict(
        mask_T=np.arange(length) >= 3,
        logprobs_T=-rng.random(length),
        versions_T=np.full(length, version),
        reward=float(seed % 3 > 0),
        terms={"result": 1.0},
        ending="answered",
    )
    ids = changes.pop("ids_T", rng.integers(0, VOCAB, length))
    return Rollout.make(ids, **(arguments | changes))


def rollouts(task, version: int) -> list[Rollout]:
    return [rollout(seed=task.seed + n, version=version) for n in range(task.group_size)]


def lead(store, *, bounds: Bounds | None = None, contract: Contract = CONTRACT, publish=True):
    """A learner that leads the run, with its weights published."""
    bus = start_or_takeover(
        store,
        run="run",
        contract=contract,
        bounds=bounds or Bounds(vocab_size=VOCAB, groups_per_batch=2),
        learner="test",
    )
    if publish:
        bus.publish()
    return bus


def new_tasks(count: int, *, first_seed: int = 0, **changes) -> list[NewTask]:
    return [
        NewTask(**{"problem": f"q{n}", "group_size": 2, "seed": first_seed + n} | changes)
        for n in range(count)
    ]


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    return SimpleNamespace(
        contract=CONTRACT,
        vocab=VOCAB,
        rollout=rollout,
        rollouts=rollouts,
        lead=lead,
        new_tasks=new_tasks,
    )
