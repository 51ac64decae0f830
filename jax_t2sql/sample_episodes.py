"""One episode on a server, turn by turn, and the hold that it has on an adapter."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost, Served
from jax_t2sql.text2sql import (
    EpisodeState,
    Generate,
    Problem,
    after_completion,
    after_sql,
    start,
)
from jax_t2sql.text2sql.completion import Completion

_RELOADS = 5


class Lease:
    """A group's hold on one adapter, from its first token to its last.

    `hop` changes to the latest; only for a version that is gone for good, between turns.
    """

    def __init__(self, stack: contextlib.AsyncExitStack, host: AdapterHost, served: Served):
        self.stack, self.host, self.served = stack, host, served

    @classmethod
    async def take(
        cls,
        stack: contextlib.AsyncExitStack,
        host: AdapterHost,
        *,
        name: str | None = None,
        version: int = 0,
        directory: Path | None = None,
    ) -> "Lease":
        """The latest adapter, or the one named; let go when `stack` closes."""
        use = host.use(name, version=version, directory=directory)
        return cls(stack, host, await stack.enter_async_context(use))

    async def bring_back(self, gone: Served) -> None:
        """After the server lost `gone`: loads it again, or hops if its files are lost too.

        Raises: UserError, Refused or Unproven if there is nothing to hop to.
        """
        if gone is not self.served:
            return  # another episode of the group has hopped
        try:
            await self.host.reload(gone)
        except (UserError, Refused):
            latest = self.host.latest
            if latest is None or latest is gone:
                raise
            if gone is self.served:
                self.served = await self.stack.enter_async_context(self.host.use())


async def play(
    problem: Problem,
    seed: int,
    member: int,
    *,
    lease: Lease,
    client: VllmClient,
    prompts: PromptBuilder,
    pool: GradingPool,
    temperature: float,
) -> EpisodeState:
    """Plays one rollout of a task to its end.

    Each turn's request is the last one's ids with what was sampled and observed appended, so the
    server finds all but the new part in its prefix cache.

    Raises:
      Refused, AdapterGone, Unproven: the server cannot sample it.
      UserError: the database cannot be opened.
    """

    async def sample(request: SampleRequest, stop_strings: tuple[str, ...]) -> Completion:
        return await _sample(request, lease, client, stop_strings)

    return await play_turns(
        problem,
        rollout_seed(seed, member),
        sample=sample,
        prompts=prompts,
        pool=pool,
        temperature=temperature,
    )


async def play_turns(
    problem: Problem,
    seed: int,
    *,
    sample: Callable[[SampleRequest, tuple[str, ...]], Awaitable[Completion]],
    prompts: PromptBuilder,
    pool: GradingPool,
    temperature: float,
) -> EpisodeState:
    """Plays one episode to its end; turn n samples with a seed made from `seed` and n.

    Args:
      sample: gives the continuation of a request, up to one of the stop strings.

    Raises:
      UserError: the database cannot be opened. And what `sample` raises.
    """
    codec = prompts.codec
    stop_strings = codec.stop_strings(prompts.episode.style, prompts.episode.options.tools)
    state = start(problem, prompts.ids(problem), prompts.episode)
    while state.pending is not None:
        if isinstance(state.pending, Generate):
            request = SampleRequest(
                prompt_ids=state.pending.prompt_ids,
                seed=rollout_seed(seed, len(state.turns)),
                max_tokens=state.pending.max_tokens,
                temperature=temperature,
            )
            state = after_completion(state, await sample(request, stop_strings), codec)
        else:
            outcome = await pool.execute_async(prompts.path(problem), state.pending.sql)
            state = after_sql(state, outcome, codec)
    return state


async def _sample(
    request: SampleRequest, lease: Lease, client: VllmClient, stop_strings: tuple[str, ...]
) -> Completion:
    for _ in range(_RELOADS):
        served = lease.served
        try:
            return await client.sample(
                request, adapter=served.alias, version=served.version, stop_strings=stop_strings
            )
        except AdapterGone:
            await lease.bring_back(served)
    raise Refused(f"the server lost {lease.served.name} {_RELOADS} times in a row")


async def together(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Results of all; the first exception ends the others."""
    jobs = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*jobs)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
