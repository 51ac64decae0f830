"""From a task to its graded group, on one adapter of a server from the first token to the last."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_t2sql.assembly import Run, equivalence_rule, reward_rule
from jax_t2sql.bus import Group, SamplerBus, Task, fetch_adapter
from jax_t2sql.errors import UserError
from jax_t2sql.groups import bus_rollout
from jax_t2sql.rollouts import grade_episodes
from jax_t2sql.sample_episodes import Lease, play, together
from jax_t2sql.sampling.vllm import VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost
from jax_t2sql.text2sql import Problem


@dataclass
class GroupPlayer:
    """Plays and grades groups, many at once.

    Attributes:
      cache: folder for adapters that are fetched from a bucket; the server must see it.
      on_bus: calls a function of the bus in the thread that is the bus's.
    """

    run: Run
    bus: SamplerBus
    client: VllmClient
    host: AdapterHost
    cache: Path
    on_bus: Callable[..., Awaitable[Any]]

    def __post_init__(self):
        questions = self.run.questions
        self._problems = {p.question_id: p for p in (*questions.heldout, *questions.train)}
        self._heldout = {p.question_id for p in questions.heldout}

    async def group(self, task: Task) -> Group:
        """The group that answers a task.

        Raises:
          UserError: the run has no such question or adapter, or its database cannot be opened.
          Refused, Unproven, AdapterGone: the server cannot sample it.
          BadObject, OSError: the adapter that it pins cannot be fetched.
        """
        problem = self._problems.get(task.problem)
        if problem is None:
            raise UserError(f"the run has no question {task.problem!r}")
        problem = self.run.variants.put(problem, task)
        async with contextlib.AsyncExitStack() as stack:
            rollouts = await self._play(task, problem, await self._lease(stack, task))
        return self.bus.make_group(task, [bus_rollout(rollout) for rollout in rollouts])

    async def _lease(self, stack: contextlib.AsyncExitStack, task: Task) -> Lease:
        if task.adapter is None:
            return await Lease.take(stack, self.host)
        found = [(self.bus.log.entries[index].step, ref)
                 for index, ref in self.bus.state.adapters if ref.name == task.adapter]  # fmt: skip
        if not found:
            raise UserError(f"no publish names the adapter {task.adapter} that it pins")
        version, ref = found[-1]
        directory = await self.on_bus(fetch_adapter, self.bus.store, ref, self.cache)
        return await Lease.take(
            stack, self.host, name=ref.name, version=version, directory=directory
        )

    async def _play(self, task: Task, problem: Problem, lease: Lease) -> list[Any]:
        heldout = task.kind == "eval" and task.problem in self._heldout
        prompts = self.run.heldout_prompts if heldout else self.run.prompts
        await asyncio.to_thread(prompts.ids, problem)  # reads the schema, the first time
        states = await together(
            play(
                problem,
                task.seed,
                member,
                lease=lease,
                client=self.client,
                prompts=prompts,
                pool=self.run.pool,
                temperature=0.0 if task.kind == "eval" else 1.0,
            )
            for member in range(task.group_size)
        )
        return await asyncio.to_thread(
            grade_episodes,
            states,
            prompts=prompts,
            pool=self.run.pool,
            reward_empty=self.run.config.data.empty_gold == "keep",
            rule=reward_rule(self.run.config.reward),
            equivalence=equivalence_rule(self.run.config.reward),
        )
