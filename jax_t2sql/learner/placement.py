"""Where arrays live: shardings of base, state and batch, and `jax.jit` with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .arrays import ShardingRules, Tree, mesh_axes, shardings, shards
from .batch import LearnerBatch
from .state import Learner, LearnerState
from .trainables import TrainableSpec


@dataclasses.dataclass(frozen=True)
class Placement:
    """Shardings on one mesh. Without `base_desc` the base stays put and the state is replicated."""

    mesh: Mesh
    rules: ShardingRules
    adapter: TrainableSpec
    optimizer: optax.GradientTransformation
    base_desc: Tree | None = None

    @property
    def replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def batch(self) -> NamedSharding:
        """Of every array of a `LearnerBatch`: rows are split, micro-batches and tokens are not."""
        return NamedSharding(self.mesh, self.rules.spec((None, "batch")))

    def base(self, base: Tree) -> Tree:
        if self.base_desc is not None:
            return shardings(self.base_desc, self.mesh, self.rules)

        def current(array: jax.Array) -> NamedSharding:
            sharding = getattr(array, "sharding", None)
            on_mesh = isinstance(sharding, NamedSharding) and sharding.mesh == self.mesh
            return sharding if on_mesh else self.replicated

        return jax.tree.map(current, base)

    def trainable(self, base: Tree) -> Tree:
        described = self.adapter.describe(base if self.base_desc is None else self.base_desc)
        return shardings(described, self.mesh, self.rules)

    def state(self, base: Tree, abstract: LearnerState) -> LearnerState:
        """Optimizer arrays shaped like a trainable array are sharded like it, others replicated."""
        trainable = self.trainable(base)
        opt_state = optax.tree_map_params(
            self.optimizer,
            lambda _, sharding: sharding,
            abstract.opt_state,
            trainable,
            transform_non_params=lambda _: self.replicated,
        )
        return LearnerState(trainable, opt_state, self.replicated, self.replicated)

    def place(self, batch: LearnerBatch) -> LearnerBatch:
        """The batch on the mesh; every host passes the same one and moves its own rows."""

        def place(array):
            if isinstance(array, jax.Array) or self.batch.is_fully_addressable:
                return jax.device_put(array, self.batch)
            return jax.make_array_from_callback(array.shape, self.batch, lambda at: array[at])

        return jax.tree.map(place, batch)

    def check_batch(self, batch: LearnerBatch) -> None:
        names, parts = mesh_axes(self.rules.batch), shards(self.mesh, self.rules.batch)
        sizes = {"rows_per_microbatch": batch.tokens_MBT.shape[1]}
        if batch.prefix is not None:
            sizes["prefix_rows"] = batch.prefix.tokens_KCP.shape[1]
        for name, rows in sizes.items():
            if rows % parts:
                raise ValueError(
                    f"micro-batches of {rows} rows cannot be split over the {parts} devices of "
                    f"mesh axes {names}: pack with {name} a multiple of {parts}"
                )


def jit_on_device(
    check: Callable, make_state: Callable, update: Callable, logprobs: Callable
) -> Learner:
    """The three functions on the default device."""
    jitted_update, jitted_logprobs = jax.jit(update, donate_argnums=1), jax.jit(logprobs)

    def run_update(base, state, batch):
        check(batch)
        return jitted_update(base, state, jax.device_put(batch))

    return Learner(
        init=jax.jit(make_state),
        update=run_update,
        lower_update=jitted_update.lower,
        logprobs=lambda base, state, batch: jitted_logprobs(base, _trainable(state), batch),
        abstract_state=lambda base: jax.eval_shape(make_state, base, jax.random.key(0)),
    )


def jit_on_mesh(
    placement: Placement,
    check: Callable,
    make_state: Callable,
    update: Callable,
    logprobs: Callable,
) -> Learner:
    """The three functions on a mesh, with explicit shardings for all that goes in and comes out."""
    jitted: dict[Any, tuple[LearnerState, Callable, Callable, Callable]] = {}

    def for_base(base: Tree):
        # Shardings follow from the shapes of the base, known only here; one model means one entry.
        base_shardings = placement.base(base)
        leaves, structure = jax.tree.flatten(base)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        key = structure, shapes, tuple(jax.tree.leaves(base_shardings))
        if key not in jitted:
            abstract = jax.eval_shape(make_state, base, jax.random.key(0))
            state_shardings = placement.state(base, abstract)
            attach = lambda array, s: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=s)  # noqa: E731
            jitted[key] = (
                jax.tree.map(attach, abstract, state_shardings),
                jax.jit(
                    make_state,
                    in_shardings=(base_shardings, placement.replicated),
                    out_shardings=state_shardings,
                ),
                jax.jit(
                    update,
                    in_shardings=(base_shardings, state_shardings, placement.batch),
                    out_shardings=(state_shardings, placement.replicated),
                    donate_argnums=1,
                ),
                jax.jit(
                    logprobs,
                    in_shardings=(base_shardings, state_shardings.trainable, placement.batch),
                    out_shardings=placement.batch,
                ),
            )
        return jitted[key]

    def run_update(base, state, batch):
        check(batch)
        placement.check_batch(batch)
        return for_base(base)[2](base, state, placement.place(batch))

    def run_logprobs(base, state, batch):
        placement.check_batch(batch)
        return for_base(base)[3](base, _trainable(state), placement.place(batch))

    return Learner(
        init=lambda base, key: for_base(base)[1](base, key),
        update=run_update,
        lower_update=lambda base, state, batch: for_base(base)[2].lower(base, state, batch),
        logprobs=run_logprobs,
        abstract_state=lambda base: for_base(base)[0],
    )


def _trainable(state: LearnerState | Tree) -> Tree:
    return state.trainable if isinstance(state, LearnerState) else state
