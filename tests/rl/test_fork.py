"""A run that begins with another one's weights."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.learner import Checkpointer
from jax_t2sql.models import load_adapter
from jax_t2sql.policies import make_rl_learner
from jax_t2sql.rl.fork import find_parent, forked_state
from jax_t2sql.rundir import checkpoint_folder


@pytest.fixture(scope="module")
def learner(fleet):
    return make_rl_learner(fleet.config, fleet.model)


@pytest.fixture
def fork(fleet, learner):
    """The state that a run forked from a folder starts with."""

    def go(folder):
        state = learner.init(fleet.model.params, jax.random.key(5))
        run = SimpleNamespace(model=fleet.model, config=fleet.config)
        return forked_state(find_parent(folder), run, learner, fleet.spec, state)

    return go


def same(one, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def test_from_an_adapter(fleet, fork):
    state = fork(fleet.adapters[2])
    wanted = load_adapter(fleet.adapters[2], fleet.model.config, spec=fleet.spec)
    assert same(state.trainable, wanted) and int(state.step) == 0


def test_from_the_newest_checkpoint_of_a_run_with_a_new_optimizer(fleet, learner, fork, tmp_path):
    with Checkpointer(checkpoint_folder(tmp_path), keep=2) as checkpointer:
        for step in (3, 7):
            state = learner.init(fleet.model.params, jax.random.key(step))
            moved = jax.tree.map(lambda x: x + 1, state.opt_state)
            state = dataclasses.replace(state, step=jax.numpy.int32(step), opt_state=moved)
            checkpointer.save(step, state, {"version": step})
    forked = fork(tmp_path)
    assert same(forked.trainable, state.trainable) and int(forked.step) == 0
    assert not same(forked.opt_state, state.opt_state)
    assert find_parent(tmp_path).name == f"run {tmp_path}, version 7"


def test_there_must_be_something_to_fork_from(tmp_path):
    with pytest.raises(UserError, match=r"neither a checkpoint .* nor adapter_config.json"):
        find_parent(tmp_path)


def test_an_adapter_of_another_rank_is_refused(fleet, fork, learner, tmp_path):
    run = SimpleNamespace(model=fleet.model, config=fleet.config)
    state = learner.init(fleet.model.params, jax.random.key(5))
    other = dataclasses.replace(fleet.spec, rank=4)
    with pytest.raises(UserError, match="rank"):
        forked_state(find_parent(fleet.adapters[0]), run, learner, other, state)
