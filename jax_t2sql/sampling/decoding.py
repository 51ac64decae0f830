"""The programs of the in-process sampler, as pure functions over one batch.

*prefill* runs each distinct prompt once, *spread* copies its cache to the rows that continue it,
*decode* samples some tokens a row, *keep_rows* goes on with those rows that are not done.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from jax_t2sql.models import KVCache, Layout, ModelConfig, extend_fn, init_cache, unembed_fn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampled:
    """What is sampled from, where, and what is kept of it.

    Attributes:
      record: keep the experts of every token (mixtures of experts only).
      layout: of the weights; rows are divided over its mesh like the learner's.
    """

    config: ModelConfig
    record: bool = False
    layout: Layout = Layout()

    def extend(self, base, adapter, tokens_BT, positions_BT, valid_BS, cache, slot):
        """`extend_fn`, with the experts [L, B, T, E] as a third result; None if not recorded."""
        where = dict(mesh=self.layout.mesh, rules=self.layout.rules)
        run = extend_fn(self.config, record=self.record, **where)
        hidden_BTD, cache, *experts = run(
            base, adapter, tokens_BT, positions_BT, valid_BS, cache, slot
        )
        return hidden_BTD, self.on_mesh(cache, row_axis=1), experts[0] if experts else None

    def on_mesh(self, arrays: Any, *, row_axis: int = 0) -> Any:
        """The same arrays, their rows divided over the mesh."""
        if self.layout.mesh is None:
            return arrays
        spec = PartitionSpec(*[None] * row_axis, *self.layout.rules.spec(("batch",)))
        where = NamedSharding(self.layout.mesh, spec)
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, where), arrays)


class Decoding(NamedTuple):
    """One batch while it is decoded: B rows, S cache slots, N new tokens at most."""

    cache: KVCache
    valid_BS: jax.Array  # bool: the slot holds a token of this row
    slot: jax.Array  # i32 scalar: next slot to write, the same for all rows
    positions_B: jax.Array  # i32: position of the next token to write
    logits_BV: jax.Array  # f32: distribution of the next token
    ids_BN: jax.Array  # i32
    logprobs_BN: jax.Array  # f32
    experts_BNLE: jax.Array | None  # i32: of each id once it was read; -1 before
    counts_B: jax.Array  # i32: tokens sampled so far
    done_B: jax.Array  # bool
    seeds_B: jax.Array  # u32
    temperatures_B: jax.Array  # f32
    limits_B: jax.Array  # i32: max_tokens


def prefill(what: Sampled, base, adapter, tokens_PT, positions_PT, valid_PT):
    """Runs prompts: logits_PV of the token after each, the cache, and experts_PTLE or None."""
    rows, width = tokens_PT.shape
    tokens_PT, positions_PT, valid_PT = what.on_mesh((tokens_PT, positions_PT, valid_PT))
    dtype = base["embed"]["embedding"].dtype
    cache = what.on_mesh(init_cache(what.config, rows, width, dtype), row_axis=1)
    hidden_PTD, cache, experts_LPTE = what.extend(
        base, adapter, tokens_PT, positions_PT, valid_PT, cache, jnp.int32(0)
    )
    experts_PTLE = None if experts_LPTE is None else experts_LPTE.transpose(1, 2, 0, 3)
    return unembed_fn(what.config)(base, adapter, hidden_PTD[:, -1]), cache, experts_PTLE


def spread(
    what: Sampled,
    logits_PV,
    cache,
    valid_PT,
    rows_B,
    lengths_B,
    seeds_B,
    temperatures_B,
    limits_B,
    *,
    slots,
    new_tokens,
) -> Decoding:
    """Copies each prompt's cache to the rows that continue it; new slots are empty."""
    width, rows = valid_PT.shape[1], rows_B.shape[0]

    def widen(x, axis):
        pad = [(0, 0)] * x.ndim
        pad[axis] = (0, slots - width)
        return jnp.pad(x, pad)

    experts_BNLE = None
    if what.record:
        moe, dense = what.config.moe, what.config.moe.dense_layers
        shape = rows, new_tokens, what.config.num_layers - dense, moe.experts_per_token
        experts_BNLE = jnp.full(shape, -1, jnp.int32)
    return Decoding(
        cache=what.on_mesh(
            jax.tree.map(lambda x: widen(jnp.take(x, rows_B, axis=1), 2), cache), row_axis=1
        ),
        valid_BS=widen(valid_PT[rows_B], 1),
        slot=jnp.int32(width),
        positions_B=lengths_B,
        logits_BV=what.on_mesh(logits_PV[rows_B]),
        ids_BN=jnp.zeros((rows, new_tokens), jnp.int32),
        logprobs_BN=jnp.zeros((rows, new_tokens), jnp.float32),
        experts_BNLE=experts_BNLE,
        counts_B=jnp.zeros(rows, jnp.int32),
        done_B=limits_B <= 0,
        seeds_B=seeds_B,
        temperatures_B=temperatures_B,
        limits_B=limits_B,
    )


def keep_rows(what: Sampled, state: Decoding, rows_B: jax.Array) -> Decoding:
    """The state of these rows alone. A row's tokens do not depend on its neighbours."""
    cache = jax.tree.map(lambda x: jnp.take(x, rows_B, axis=1), state.cache)
    rest = jax.tree.map(lambda x: x[rows_B], state._replace(cache=None, slot=None))
    return rest._replace(cache=what.on_mesh(cache, row_axis=1), slot=state.slot)


def sample_tokens(logits_BV, seeds_B, counts_B, temperatures_B):
    """Draws one token a row: ids_B and log-probs_B.

    The key of a draw is fold_in(key(seed), tokens sampled before), nothing else. Temperature 0
    takes the argmax and reports the model's own log-prob.
    """
    greedy_B = temperatures_B <= 0
    scale_B = jnp.where(greedy_B, 1.0, temperatures_B)
    logprobs_BV = jax.nn.log_softmax(logits_BV / scale_B[:, None])

    def noise(seed, count):
        key = jax.random.fold_in(jax.random.key(seed), count)
        return jax.random.gumbel(key, logits_BV.shape[1:])

    noise_BV = jax.vmap(noise)(seeds_B, counts_B)
    ids_B = jnp.argmax(logprobs_BV + jnp.where(greedy_B[:, None], 0.0, noise_BV), axis=-1)
    return ids_B.astype(jnp.int32), jnp.take_along_axis(logprobs_BV, ids_B[:, None], 1)[:, 0]


def decode(what: Sampled, stop_ids, chunk, base, adapter, state: Decoding) -> Decoding:
    """Samples until `chunk` more tokens are there or every row is done."""
    unembed = unembed_fn(what.config)
    rows_B = jnp.arange(state.done_B.shape[0])

    def step(carry):
        taken, s = carry
        ids_B, logprobs_B = sample_tokens(s.logits_BV, s.seeds_B, s.counts_B, s.temperatures_B)
        live_B = ~s.done_B
        # A finished row writes to column N, which is out of range, and so is dropped.
        column_B = jnp.where(live_B, s.counts_B, s.ids_BN.shape[1])
        counts_B = s.counts_B + live_B
        stopped_B = jnp.isin(ids_B, jnp.array(stop_ids, jnp.int32)) | (counts_B >= s.limits_B)
        valid_BS = jax.lax.dynamic_update_slice(s.valid_BS, live_B[:, None], (0, s.slot))
        hidden_BTD, cache, experts_LBTE = what.extend(
            base, adapter, ids_B[:, None], s.positions_B[:, None], valid_BS, s.cache, s.slot
        )

        def put(whole, values):
            return whole.at[rows_B, column_B].set(values, mode="drop")

        experts_BNLE = s.experts_BNLE
        if experts_LBTE is not None:
            experts_BNLE = put(experts_BNLE, experts_LBTE[:, :, 0].swapaxes(0, 1))
        return taken + 1, s._replace(
            cache=cache,
            valid_BS=valid_BS,
            slot=s.slot + 1,
            positions_B=s.positions_B + 1,
            logits_BV=unembed(base, adapter, hidden_BTD[:, 0]),
            ids_BN=put(s.ids_BN, ids_B),
            logprobs_BN=put(s.logprobs_BN, logprobs_B),
            experts_BNLE=experts_BNLE,
            counts_B=counts_B,
            done_B=s.done_B | stopped_B,
        )

    def more(carry):
        taken, s = carry
        return (taken < chunk) & ~s.done_B.all()

    return jax.lax.while_loop(more, step, (jnp.int32(0), state))[1]
