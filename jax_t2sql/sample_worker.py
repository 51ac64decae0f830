"""A sampler process at work: claims tasks, plays their episodes on a server, hands groups over.

Everything about the bus happens in one thread of its own, so that a slow store never holds up
episodes; everything else in one event loop. The rules: START when the served adapter is proven and
within the staleness bound; ADVANCE at a publish; WAIT, saying why; DIE at the end of the run, or
when the learner found this sampler's groups unusable.
"""

import asyncio
import contextlib
import math
import random
import shutil
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax_t2sql.assembly import Run, equivalence_rule, reward_rule
from jax_t2sql.bus import AdapterRef, BadObject, Batch, End, SamplerBus, Task, fetch_adapter
from jax_t2sql.bus.contract import idle_pause
from jax_t2sql.errors import UserError
from jax_t2sql.groups import bus_rollout
from jax_t2sql.rollouts import grade_episodes
from jax_t2sql.sample_episodes import Lease, play, together
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost, Unproven
from jax_t2sql.text2sql import Problem

_RATE_SECONDS = 30.0
_MAX_BAD_GROUPS = 3
_OVERDUE_SECONDS = 2.0  # after which a look at the log waits for something else: the server


@dataclass
class Worker:
    """One sampler.

    Attributes:
      run: prompts, questions and SQL pool.
      groups: groups to have under way at once.
      cache: folder for adapters that are fetched from a bucket; the server must see it.
      poll_seconds, beat_seconds: between looks at the log, and between heartbeats. A look that
        finds nothing new doubles the pause, up to what `idle_pause` says.
      say_every: seconds between two lines that say why nothing is done.
      retry_seconds: until an adapter that the server refused is tried again.
      say: shows the user one line.
    """

    run: Run
    bus: SamplerBus
    client: VllmClient
    host: AdapterHost
    groups: int
    cache: Path
    poll_seconds: float = 0.1
    beat_seconds: float = 5.0
    say_every: float = 30.0
    retry_seconds: float = 2.0
    say: Callable[[str], None] = print
    delivered: int = 0
    last_error: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _jobs: dict[int, asyncio.Task] = field(default_factory=dict)
    _tokens: deque = field(default_factory=deque)
    _bad: int = 0
    _refused: tuple[str, float] = ("", 0.0)  # an adapter that could not be served; until when
    _said: tuple[str, float] = ("", 0.0)
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self):
        self._thread = ThreadPoolExecutor(1, "bus")
        questions = self.run.questions
        self._problems = {p.question_id: p for p in (*questions.heldout, *questions.train)}
        self._heldout = {p.question_id for p in questions.heldout}

    async def work(self) -> None:
        """Until the run ends, or `stop` is set.

        Raises:
          UserError: the learner refused several groups of this sampler.
        """
        beats = asyncio.create_task(self._beat())
        bounds = self.bus.state.start.bounds
        pause, longest = self.poll_seconds, idle_pause(bounds, groups_in_flight=self.groups)
        try:
            while not self.stop.is_set():
                before = (self.bus.log.head, self.delivered)
                if await self._look_unless_over():
                    break
                if beats.done():
                    beats.result()  # raises why
                quiet = before == (self.bus.log.head, self.delivered)
                pause = min(pause * 2, longest) if quiet else self.poll_seconds
                await self._pause(pause)
        finally:
            beats.cancel()
            await self._leave()

    async def _look_unless_over(self) -> bool:
        """`_look`, given up where it waits for a server although there is nothing left to do."""
        look = asyncio.create_task(self._look())
        stop = asyncio.create_task(self.stop.wait())
        both = {look, stop}
        try:
            while True:
                await asyncio.wait(
                    both, timeout=_OVERDUE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if look.done():
                    return look.result()
                if stop.done() or await self._read_log():
                    return True
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _read_log(self) -> bool:
        """Takes in what is new in the log. True: the run has ended."""
        try:
            entries = await self._on_bus(self.bus.refresh)
        except OSError as error:  # the store is away; what is under way goes on
            self._trouble(f"the bus cannot be read: {error}")
            return False
        self._count_bad(entries)
        if self.bus.ended:
            self.say(f"the run has ended ({self.bus.state.end.reason})")
        return self.bus.ended

    async def _look(self) -> bool:
        """One look at the log, and what follows from it. True: the run has ended."""
        if await self._read_log():
            return True
        for seq in self._jobs.keys() - self.bus.state.open_tasks.keys():
            self._jobs[seq].cancel()  # its fate is decided: nobody waits for it
        waiting = await self._advance() or await self._claim()
        self._wait(waiting)
        return False

    def _count_bad(self, entries) -> None:
        for entry in entries:
            if not isinstance(entry, Batch | End):
                continue
            for decision in entry.fates:
                mine = decision.sampler == self.bus.sampler
                if mine and decision.fate in ("invalid", "corrupt"):
                    self._bad += 1
                    self._trouble(f"the learner refused a group: {decision.reason}")
        if self._bad >= _MAX_BAD_GROUPS:
            raise UserError(
                f"the learner refused {self._bad} groups of this sampler, the last because: "
                f"{self.last_error}. It stops rather than make more of them"
            )

    async def _advance(self) -> str | None:
        """Serves the adapter last published. The reason to wait, if there is one."""
        published = self.bus.state.last_publish
        if published is None:
            return "the learner has not published weights yet"
        ref, latest = published.adapter, self.host.latest
        if ref is None and latest is None:
            return (
                f"version {published.step} was published without an adapter's files (its learner "
                "samples by itself)"
            )
        if ref is not None and (latest is None or ref.name != latest.name):
            await self._serve(ref, published.step)
        latest, bound = self.host.latest, self.bus.state.start.bounds.max_staleness
        if latest is None:
            return f"no adapter can be served: {self.last_error}"
        if (age := self.bus.version - latest.version) > bound:
            return f"version {latest.version} is served, {age} old; the bound is {bound}"
        return None

    async def _serve(self, ref: AdapterRef, version: int) -> None:
        name, until = self._refused
        if ref.name == name and time.monotonic() < until:
            return
        try:
            directory = await self._on_bus(fetch_adapter, self.bus.store, ref, self.cache)
            await self.host.advance(ref.name, version=version, directory=directory)
        except UserError as error:  # its files are wrong, and stay so
            self._refused = (ref.name, math.inf)
            self._trouble(f"adapter {ref.name} is not served: {error}")
        except (Refused, Unproven) as error:  # the server may have been in a bad way
            self._refused = (ref.name, time.monotonic() + self.retry_seconds)
            self._trouble(f"adapter {ref.name} is not served: {error}")
        except (BadObject, OSError) as error:  # may be collected already; there is a newer one
            self._trouble(f"adapter {ref.name} cannot be fetched: {error}")
        else:
            self.say(f"serving version {version} ({ref.name})")
            self._sweep()

    async def _claim(self) -> str | None:
        room = self.groups - len(self._jobs)
        if room <= 0:
            return None
        try:
            tasks = await self._on_bus(lambda: self.bus.claim(room, rng=self._rng))
        except OSError as error:
            return f"the bus cannot be written: {error}"
        for task in tasks:
            job = asyncio.create_task(self._group(task))
            self._jobs[task.seq] = job
            job.add_done_callback(lambda done, seq=task.seq: self._jobs.pop(seq, None))
        return None if tasks or self._jobs else "the log offers no task"

    async def _group(self, task: Task) -> None:
        """Plays, grades and hands over one group; gives its task back if that cannot be done."""
        try:
            problem = self._problems.get(task.problem)
            if problem is None:
                raise UserError(f"the run has no question {task.problem!r}")
            problem = self.run.variants.put(problem, task)
            async with contextlib.AsyncExitStack() as stack:
                lease = await self._lease(stack, task)
                rollouts = await self._play(task, problem, lease)
            group = self.bus.make_group(task, [bus_rollout(rollout) for rollout in rollouts])
            await self._on_bus(self.bus.put_groups, [group])
        except asyncio.CancelledError:
            self.bus.give_back(task)
            raise
        except (UserError, Refused, Unproven, AdapterGone, BadObject, OSError, ValueError) as error:
            self.bus.give_back(task)
            self._trouble(f"task {task.seq} ({task.problem}) is given back: {error}")
            return
        self.delivered += 1
        count = sum(int(rollout.mask_T.sum()) for rollout in group.rollouts)
        self._tokens.append((time.monotonic(), count))

    async def _lease(self, stack: contextlib.AsyncExitStack, task: Task) -> Lease:
        if task.adapter is None:
            return await Lease.take(stack, self.host)
        found = [(self.bus.log.entries[index].step, ref)
                 for index, ref in self.bus.state.adapters if ref.name == task.adapter]  # fmt: skip
        if not found:
            raise UserError(f"no publish names the adapter {task.adapter} that it pins")
        version, ref = found[-1]
        directory = await self._on_bus(fetch_adapter, self.bus.store, ref, self.cache)
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

    async def _beat(self) -> None:
        while True:
            latest = self.host.latest
            version = latest.version if latest else None
            with contextlib.suppress(OSError):  # a lost beat is only a beat
                await self._on_bus(
                    lambda version=version: self.bus.heartbeat(
                        served=version,
                        proven=version,
                        tokens_per_second=self._rate(),
                        last_error=self.last_error,
                    )
                )
            await asyncio.sleep(self.beat_seconds)

    def _rate(self) -> float:
        now = time.monotonic()
        while self._tokens and now - self._tokens[0][0] > _RATE_SECONDS:
            self._tokens.popleft()
        return sum(count for _, count in self._tokens) / _RATE_SECONDS

    async def _leave(self) -> None:
        """Gives back what is not finished, and says so on the bus."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        with contextlib.suppress(OSError):
            await self._on_bus(lambda: self.bus.heartbeat(last_error=self.last_error, left=True))
        self._thread.shutdown()
        await self.client.close()

    def _sweep(self) -> None:
        """Removes fetched adapters that are no longer served."""
        if self.cache.is_dir():
            served = {s.directory.name for s in self.host.served.values()}
            for directory in self.cache.iterdir():
                if directory.name not in served and directory.name.startswith(
                    self.bus.state.start.run
                ):
                    shutil.rmtree(directory, ignore_errors=True)

    def server_trouble(self, line: str) -> None:
        """What the client has to say of the server; "" when it answers again."""
        if line:
            self._trouble(f"the server: {line}")
        else:
            self.say("the server answers again")
            self.last_error = ""

    def _trouble(self, line: str) -> None:
        if line != self.last_error:
            self.say(line)
        self.last_error = line

    def _wait(self, reason: str | None) -> None:
        """Says why nothing is done, when the reason is new and then every `say_every` seconds."""
        now = time.monotonic()
        said, when = self._said
        if reason is None:
            self._said = ("", 0.0)
        elif reason != said or now - when >= self.say_every:
            self._said = (reason, now)
            self.say(f"waiting: {reason}")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds * self._rng.uniform(0.5, 1.5)):
                await self.stop.wait()

    async def _on_bus(self, call: Callable, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
