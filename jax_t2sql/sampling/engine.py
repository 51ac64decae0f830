"""The in-process sampler: batched generation with a KV cache, for one machine.

A batch lives in three programs, each compiled once a shape bucket:

* *prefill* runs each distinct prompt once, left-padded to a bucket, and keeps its keys and values;
* *spread* copies a prompt's cache to the rows that continue it (the rollouts of a group) and makes
  room for new tokens;
* *decode* samples up to `chunk` tokens a row in a `while_loop`, then lets the host look at the text
  for stop strings.

Weights are arguments of all three, so another adapter is only another argument: nothing compiles
again. A row's random numbers depend on its own seed and position alone, so a rollout can be
sampled again in any other batch.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jax_t2sql.models import KVCache, ModelConfig, extend_fn, init_cache, unembed_fn
from jax_t2sql.sampling.buckets import bucket
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.text2sql.completion import Completion

_PROMPT_BUCKET = 32
_NEW_TOKEN_BUCKET = 32


class DecodeState(NamedTuple):
    """One batch while it is decoded: B rows, S cache slots, N new tokens at most."""

    cache: KVCache
    valid_BS: jax.Array  # bool: the slot holds a token of this row
    slot: jax.Array  # i32 scalar: next slot to write, the same for all rows
    positions_B: jax.Array  # i32: position of the next token to write
    logits_BV: jax.Array  # f32: distribution of the next token
    ids_BN: jax.Array  # i32
    logprobs_BN: jax.Array  # f32
    counts_B: jax.Array  # i32: tokens sampled so far
    done_B: jax.Array  # bool
    seeds_B: jax.Array  # u32
    temperatures_B: jax.Array  # f32
    limits_B: jax.Array  # i32: max_tokens


class Engine:
    """A `Policy` that samples in this process.

    Args:
      config: the model's shape.
      base, adapter: the weights, as `hidden_fn` takes them; adapter may be None.
      stop_ids: token ids that end a completion (kept as its last id).
      decode: ids -> text, used to find stop strings.
      version: number of batches that the weights were trained on.
      max_rows: continuations decoded side by side.
      max_prompt_tokens: distinct prompt tokens prefetched in one program (bounds memory).
      chunk: tokens decoded between two looks for stop strings.
    """

    def __init__(
        self,
        config: ModelConfig,
        base: Any,
        adapter: Any = None,
        *,
        stop_ids: Sequence[int],
        decode: Callable[[Sequence[int]], str],
        version: int = 0,
        max_rows: int = 384,
        max_prompt_tokens: int = 16_384,
        chunk: int = 16,
    ):
        self.config, self.version = config, version
        self.max_rows, self.max_prompt_tokens, self.chunk = max_rows, max_prompt_tokens, chunk
        self._base, self._adapter = base, adapter
        self._stop_ids = frozenset(int(i) for i in stop_ids)
        self._decode_text = decode
        stop_ids_K = tuple(sorted(self._stop_ids)) or (-1,)
        self._prefill = jax.jit(functools.partial(_prefill, config))
        self._spread = jax.jit(_spread, static_argnames=("slots", "new_tokens"))
        self._decode = jax.jit(
            functools.partial(_decode, config, stop_ids_K, chunk), donate_argnames=("state",)
        )

    def set_weights(self, base: Any, adapter: Any, *, version: int) -> None:
        """Serves other weights of the same shapes from the next call on; compiles nothing."""
        self._base, self._adapter, self.version = base, adapter, version

    @property
    def compilations(self) -> int:
        """Programs compiled so far: bounded by the shape buckets met."""
        programs = (self._prefill, self._spread, self._decode)
        return sum(program._cache_size() for program in programs)

    def generate(
        self, requests: Sequence[SampleRequest], *, stop_strings: Sequence[str] = ()
    ) -> list[Completion]:
        """See `Policy.generate`. Requests with the same prompt share one prefill."""
        for request in requests:
            needed = len(request.prompt_ids) + request.max_tokens
            if needed > self.config.max_position_embeddings:
                raise ValueError(
                    f"a prompt of {len(request.prompt_ids)} tokens and {request.max_tokens} new"
                    f" ones need {needed} positions; the model has"
                    f" {self.config.max_position_embeddings}: shorten the prompt or max_tokens"
                )
        completions: list[Completion | None] = [None] * len(requests)
        for indices in self._plan(requests):
            batch = self._generate_batch([requests[i] for i in indices], tuple(stop_strings))
            for index, completion in zip(indices, batch, strict=True):
                completions[index] = completion
        return completions  # type: ignore[return-value]

    def _plan(self, requests: Sequence[SampleRequest]) -> list[list[int]]:
        """Splits requests into batches of like length; equal prompts stay together."""
        order = sorted(
            range(len(requests)),
            key=lambda i: (len(requests[i].prompt_ids), requests[i].prompt_ids),
        )
        batches: list[list[int]] = []
        prompts: set[tuple[int, ...]] = set()
        for index in order:
            prompt = requests[index].prompt_ids
            width = bucket(len(prompt), smallest=_PROMPT_BUCKET)
            fits = len(prompts | {prompt}) * width <= self.max_prompt_tokens or not prompts
            if not batches or len(batches[-1]) >= self.max_rows or not fits:
                batches.append([])
                prompts = set()
            batches[-1].append(index)
            prompts.add(prompt)
        return batches

    def _generate_batch(
        self, requests: list[SampleRequest], stop_strings: tuple[str, ...]
    ) -> list[Completion]:
        prompts = list(dict.fromkeys(r.prompt_ids for r in requests))
        row_of = {prompt: row for row, prompt in enumerate(prompts)}
        width = bucket(max(map(len, prompts)), smallest=_PROMPT_BUCKET)
        new_tokens = bucket(max(r.max_tokens for r in requests), smallest=_NEW_TOKEN_BUCKET)
        tokens_PT, positions_PT, valid_PT = _left_pad(prompts, width, bucket(len(prompts)))
        logits_PV, cache = self._prefill(
            self._base, self._adapter, tokens_PT, positions_PT, valid_PT
        )

        rows = bucket(len(requests))
        padding = [0] * (rows - len(requests))
        state = self._spread(
            logits_PV,
            cache,
            valid_PT,
            np.array([row_of[r.prompt_ids] for r in requests] + padding, np.int32),
            np.array([len(r.prompt_ids) for r in requests] + padding, np.int32),
            np.array([r.seed & 0xFFFFFFFF for r in requests] + padding, np.uint32),
            np.array([r.temperature for r in requests] + padding, np.float32),
            np.array([r.max_tokens for r in requests] + padding, np.int32),
            slots=width + new_tokens,
            new_tokens=new_tokens,
        )
        cuts: dict[int, int] = {}  # row -> tokens kept, where a stop string ended it
        while True:
            state = self._decode(self._base, self._adapter, state=state)
            done_B = np.asarray(state.done_B)
            counts_B, ids_BN = np.asarray(state.counts_B), np.asarray(state.ids_BN)
            if stop_strings:
                for row in range(len(requests)):
                    if row not in cuts:
                        cut = self._find_stop(ids_BN[row, : counts_B[row]], stop_strings)
                        if cut is not None:
                            cuts[row] = cut
                done_B = done_B.copy()
                done_B[list(cuts)] = True
                state = state._replace(done_B=jnp.asarray(done_B))
            if done_B.all():
                break
        logprobs_BN = np.asarray(state.logprobs_BN)
        return [
            self._completion(ids_BN[row, :kept], logprobs_BN[row, :kept], row in cuts)
            for row in range(len(requests))
            for kept in [cuts.get(row, int(counts_B[row]))]
        ]

    def _completion(self, ids_N: np.ndarray, logprobs_N: np.ndarray, cut: bool) -> Completion:
        if int(ids_N[-1]) in self._stop_ids:
            stop = "stop_token"
        else:
            stop = "stop_string" if cut else "length"
        return Completion(
            ids=tuple(int(i) for i in ids_N),
            logprobs=tuple(float(x) for x in logprobs_N),
            stop=stop,
            version=self.version,
        )

    def _find_stop(self, ids_N: np.ndarray, stop_strings: tuple[str, ...]) -> int | None:
        """Tokens up to and with the one that completes the first stop string; None without one."""

        def stopped(count: int) -> bool:
            text = self._decode_text(ids_N[:count].tolist())
            return any(stop in text for stop in stop_strings)

        if not stopped(len(ids_N)):
            return None
        low, high = 0, len(ids_N)  # stopped(high) holds, stopped(low) does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if stopped(middle) else (middle, high)
        return high


def _left_pad(prompts: list[tuple[int, ...]], width: int, rows: int):
    """Prompts, right-aligned: tokens_PT, positions_PT and valid_PT (rows of padding at the end)."""
    tokens_PT = np.zeros((rows, width), np.int32)
    positions_PT = np.zeros((rows, width), np.int32)
    valid_PT = np.zeros((rows, width), bool)
    for row, prompt in enumerate(prompts):
        start = width - len(prompt)
        tokens_PT[row, start:] = prompt
        positions_PT[row, start:] = np.arange(len(prompt))
        valid_PT[row, start:] = True
    return tokens_PT, positions_PT, valid_PT


def _prefill(config, base, adapter, tokens_PT, positions_PT, valid_PT):
    """Runs prompts: logits_PV of the token after each, and the cache that holds them."""
    rows, width = tokens_PT.shape
    dtype = base["embed"]["embedding"].dtype
    cache = init_cache(config, rows, width, dtype)
    hidden_PTD, cache = extend_fn(config)(
        base, adapter, tokens_PT, positions_PT, valid_PT, cache, jnp.int32(0)
    )
    return unembed_fn(config)(base, adapter, hidden_PTD[:, -1]), cache


def _spread(
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
):
    """Copies each prompt's cache to the rows that continue it; new slots are empty."""
    width, rows = valid_PT.shape[1], rows_B.shape[0]

    def widen(x, axis):
        pad = [(0, 0)] * x.ndim
        pad[axis] = (0, slots - width)
        return jnp.pad(x, pad)

    return DecodeState(
        cache=jax.tree.map(lambda x: widen(jnp.take(x, rows_B, axis=1), 2), cache),
        valid_BS=widen(valid_PT[rows_B], 1),
        slot=jnp.int32(width),
        positions_B=lengths_B,
        logits_BV=logits_PV[rows_B],
        ids_BN=jnp.zeros((rows, new_tokens), jnp.int32),
        logprobs_BN=jnp.zeros((rows, new_tokens), jnp.float32),
        counts_B=jnp.zeros(rows, jnp.int32),
        done_B=limits_B <= 0,
        seeds_B=seeds_B,
        temperatures_B=temperatures_B,
        limits_B=limits_B,
    )


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


def _decode(config, stop_ids, chunk, base, adapter, state: DecodeState) -> DecodeState:
    """Samples until `chunk` more tokens are there or every row is done."""
    extend, unembed = extend_fn(config), unembed_fn(config)
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
        hidden_BTD, cache = extend(
            base, adapter, ids_B[:, None], s.positions_B[:, None], valid_BS, s.cache, s.slot
        )
        return taken + 1, s._replace(
            cache=cache,
            valid_BS=valid_BS,
            slot=s.slot + 1,
            positions_B=s.positions_B + 1,
            logits_BV=unembed(base, adapter, hidden_BTD[:, 0]),
            ids_BN=s.ids_BN.at[rows_B, column_B].set(ids_B, mode="drop"),
            logprobs_BN=s.logprobs_BN.at[rows_B, column_B].set(logprobs_B, mode="drop"),
            counts_B=counts_B,
            done_B=s.done_B | stopped_B,
        )

    def more(carry):
        taken, s = carry
        return (taken < chunk) & ~s.done_B.all()

    return jax.lax.while_loop(more, step, (jnp.int32(0), state))[1]
