"""The in-process sampler: batched generation with a KV cache, for one process.

A batch lives in the programs of `decoding`, each compiled once a shape bucket. Weights are
arguments of all of them, so another adapter is only another argument: nothing compiles again. A
row's random numbers depend on its own seed and position alone, so a rollout can be sampled again in
any other batch.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jax_t2sql.models import Layout, ModelConfig
from jax_t2sql.sampling.buckets import bucket
from jax_t2sql.sampling.decoding import Decoding, Sampled, decode, keep_rows, prefill, spread
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.text2sql.completion import Completion, ExpertRecord

_PROMPT_BUCKET = 32
_NEW_TOKEN_BUCKET = 32
# Fewer rows than this are not worth a program of their own: reading the weights takes the time.
_FEWEST_ROWS = 16


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
      chunk: tokens decoded between two looks for stop strings and finished rows.
      record_experts: completions hold the experts that each token went through.
      layout: how the weights are kept; on a mesh the rows are divided like the learner's.
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
        record_experts: bool = False,
        layout: Layout | None = None,
    ):
        self.config, self.version = config, version
        self.max_rows, self.max_prompt_tokens = max_rows, max_prompt_tokens
        self._base, self._adapter = base, adapter
        self._stop_ids = frozenset(int(i) for i in stop_ids)
        self._decode_text = decode
        layout = layout or Layout()
        what = Sampled(config=config, record=record_experts, layout=layout)
        self._shards = layout.batch_shards
        stop_ids_K = tuple(sorted(self._stop_ids)) or (-1,)
        self._programs = _programs(what, stop_ids_K, chunk)

    def set_weights(self, base: Any, adapter: Any, *, version: int) -> None:
        """Serves other weights of the same shapes from the next call on; compiles nothing."""
        self._base, self._adapter, self.version = base, adapter, version

    @property
    def compilations(self) -> int:
        """Programs compiled so far: bounded by the shape buckets met."""
        return sum(program._cache_size() for program in self._programs.values())

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
        width = bucket(max(map(len, prompts)), smallest=_PROMPT_BUCKET)
        tokens_PT, positions_PT, valid_PT = _left_pad(prompts, width, self._rows(len(prompts)))
        logits_PV, cache, experts_PTLE = self._programs["prefill"](
            self._base, self._adapter, tokens_PT, positions_PT, valid_PT
        )
        row_of = {prompt: row for row, prompt in enumerate(prompts)}
        state = self._spread(requests, row_of, logits_PV, cache, valid_PT)
        found = self._run(state, len(requests), stop_strings)
        if experts_PTLE is not None:
            experts_PTLE = np.asarray(experts_PTLE)
        return [
            self._completion(*found[index], _prompt_experts(experts_PTLE, row_of, request))
            for index, request in enumerate(requests)
        ]

    def _rows(self, count: int) -> int:
        return -(-bucket(count) // self._shards) * self._shards

    def _spread(self, requests, row_of, logits_PV, cache, valid_PT) -> Decoding:
        padding = [0] * (self._rows(len(requests)) - len(requests))
        new_tokens = bucket(max(r.max_tokens for r in requests), smallest=_NEW_TOKEN_BUCKET)
        return self._programs["spread"](
            logits_PV,
            cache,
            valid_PT,
            np.array([row_of[r.prompt_ids] for r in requests] + padding, np.int32),
            np.array([len(r.prompt_ids) for r in requests] + padding, np.int32),
            np.array([r.seed & 0xFFFFFFFF for r in requests] + padding, np.uint32),
            np.array([r.temperature for r in requests] + padding, np.float32),
            np.array([r.max_tokens for r in requests] + padding, np.int32),
            slots=valid_PT.shape[1] + new_tokens,
            new_tokens=new_tokens,
        )

    def _run(self, state: Decoding, count: int, stop_strings: tuple[str, ...]) -> dict[int, Any]:
        """Decodes until all rows are done; (ids, log-probs, experts or None, cut) of each.

        When half of the rows are done, the other half goes on alone.
        """
        found: dict[int, Any] = {}
        # The request of each row; padding, and rows that are only there to fill up, have none.
        request_B = np.where(
            np.arange(state.done_B.shape[0]) < count, np.arange(len(state.done_B)), -1
        )
        while True:
            state = self._programs["decode"](self._base, self._adapter, state=state)
            done_B, counts_B = np.array(state.done_B), np.asarray(state.counts_B)
            kept_B, cut_B = counts_B.copy(), np.zeros(len(done_B), bool)
            if stop_strings:
                ids_BN = np.asarray(state.ids_BN)
                for row in np.flatnonzero(request_B >= 0):
                    cut = self._find_stop(ids_BN[row, : counts_B[row]], stop_strings)
                    if cut is not None:
                        kept_B[row], cut_B[row], done_B[row] = cut, True, True
            ended_B = done_B & (request_B >= 0)
            live = np.flatnonzero(~done_B & (request_B >= 0))
            fewer = self._fewer_rows(len(done_B), len(live))
            if not live.size or fewer < len(done_B) or cut_B.any():
                self._collect(state, np.flatnonzero(ended_B), request_B, kept_B, cut_B, found)
                request_B[ended_B] = -1
            if not live.size:
                return found
            if fewer < len(done_B):
                # Filled up with a finished row, which goes on being finished.
                filler = int(np.flatnonzero(done_B)[0])
                rows_B = np.concatenate([live, np.full(fewer - len(live), filler)])
                state = _with_done(state, done_B)
                state = self._programs["keep_rows"](state, rows_B.astype(np.int32))
                request_B = request_B[rows_B]
            elif cut_B.any():
                state = _with_done(state, done_B)

    def _fewer_rows(self, rows: int, live: int) -> int:
        """Halves the number of rows as long as the live ones fit."""
        while rows // 2 >= max(live, _FEWEST_ROWS) and rows // 2 % self._shards == 0:
            rows //= 2
        return rows

    def _collect(self, state, rows, request_B, kept_B, cut_B, found) -> None:
        ids_BN, logprobs_BN = np.asarray(state.ids_BN), np.asarray(state.logprobs_BN)
        experts_BNLE = None if state.experts_BNLE is None else np.asarray(state.experts_BNLE)
        for row in rows:
            kept = slice(0, kept_B[row])
            experts = None if experts_BNLE is None else experts_BNLE[row, kept]
            found[int(request_B[row])] = (
                ids_BN[row, kept],
                logprobs_BN[row, kept],
                experts,
                bool(cut_B[row]),
            )

    def _completion(self, ids_N, logprobs_N, experts_NLE, cut: bool, prompt_TLE) -> Completion:
        if int(ids_N[-1]) in self._stop_ids:
            stop = "stop_token"
        else:
            stop = "stop_string" if cut else "length"
        experts = None
        if prompt_TLE is not None:
            whole_TLE = np.concatenate([prompt_TLE, experts_NLE])
            experts = ExpertRecord(whole_TLE.astype("<u2").tobytes(), *whole_TLE.shape[1:])
        return Completion(
            ids=tuple(int(i) for i in ids_N),
            logprobs=tuple(float(x) for x in logprobs_N),
            stop=stop,
            version=self.version,
            experts=experts,
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


def _with_done(state: Decoding, done_B: np.ndarray) -> Decoding:
    # Where the programs put it, or they would be compiled for another place.
    return state._replace(done_B=jax.device_put(done_B, state.done_B.sharding))


def _prompt_experts(experts_PTLE, row_of, request: SampleRequest) -> np.ndarray | None:
    if experts_PTLE is None:
        return None
    return experts_PTLE[row_of[request.prompt_ids], -len(request.prompt_ids) :]


def _programs(what: Sampled, stop_ids: tuple[int, ...], chunk: int) -> dict[str, Any]:
    return {
        "prefill": jax.jit(functools.partial(prefill, what)),
        "spread": jax.jit(functools.partial(spread, what), static_argnames=("slots", "new_tokens")),
        "decode": jax.jit(
            functools.partial(decode, what, stop_ids, chunk), donate_argnames=("state",)
        ),
        "keep_rows": jax.jit(functools.partial(keep_rows, what)),
    }
