"""A sampler process at work: claims tasks, has them played on a server, hands their groups over.

Everything about the bus happens in one thread of its own, so that a slow store never holds up
episodes; everything else in one event loop. The rules: START when the served adapter is proven and
within the staleness bound; ADVANCE at a publish; WAIT, saying why; DIE at the end of the run, or
when the learner found this sampler's groups unusable or has quarantined it.

The log is looked at now and then; a place that becomes free is filled at once from the offers that
are known, which asks the store for less than a look at each group's end.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax_t2sql.assembly import Run
from jax_t2sql.bus import BadObject, Batch, End, SamplerBus, Task
from jax_t2sql.bus.contract import beat_pause, claim_step, idle_pause
from jax_t2sql.errors import UserError
from jax_t2sql.sample_adapters import AdapterFollower
from jax_t2sql.sample_groups import GroupPlayer
from jax_t2sql.sample_voice import Voice
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient
from jax_t2sql.sampling.vllm_adapters import AdapterHost, Unproven

_RATE_SECONDS = 30.0
_MAX_BAD_GROUPS = 3
_IDLE_SECONDS = 10.0
_OVERDUE_SECONDS = 2.0  # after which a look at the log waits for something else: the server


@dataclass
class Worker:
    """One sampler.

    Attributes:
      run: prompts, questions and SQL pool.
      groups: groups to have under way at once.
      cache: folder for adapters that are fetched from a bucket; the server must see it.
      poll_seconds: between looks at the log. A look that finds nothing new doubles the pause, up to
        what `idle_pause` says.
      still_seconds: without a heartbeat, after which the learner takes a sampler for dead.
      retry_seconds: until an adapter that the server refused is tried again.
      voice: what is said to the user.
    """

    run: Run
    bus: SamplerBus
    client: VllmClient
    host: AdapterHost
    groups: int
    cache: Path
    poll_seconds: float = 0.1
    still_seconds: float = 60.0
    retry_seconds: float = 2.0
    voice: Voice = field(default_factory=Voice)
    delivered: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _jobs: dict[int, asyncio.Task] = field(default_factory=dict)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _tokens: deque = field(default_factory=deque)
    _bad: int = 0
    _may_start: bool = False
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self):
        self._thread = ThreadPoolExecutor(1, "bus")
        self._player = GroupPlayer(
            self.run, self.bus, self.client, self.host, self.cache, self._on_bus
        )
        self._adapters = AdapterFollower(
            self.bus, self.host, self.cache, self._on_bus, self.voice, self.retry_seconds
        )

    async def work(self) -> None:
        """Until the run ends, or `stop` is set.

        Raises:
          UserError: the learner refused several groups of this sampler, or has quarantined it; or
            another process has its name.
        """
        beats = asyncio.create_task(self._beat())
        bounds = self.bus.state.start.bounds
        pause = self.poll_seconds
        try:
            while not self.stop.is_set():
                before = self.bus.log.head
                if await self._look_unless_over():
                    break
                if beats.done():
                    beats.result()  # raises why
                quiet = before == self.bus.log.head
                longest = idle_pause(bounds, groups_in_flight=self.groups, busy=bool(self._jobs))
                pause = min(pause * 2, longest) if quiet else self.poll_seconds
                await self._fill_for(pause * self._rng.uniform(0.5, 1.5))
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
            self.voice.trouble(f"the bus cannot be read: {error}")
            return False
        self._count_bad(entries)
        if (reason := self.bus.quarantined) is not None and not self.bus.ended:
            self.voice.last_error = f"quarantined: {reason}"
            raise UserError(
                f"the learner has quarantined this sampler ({self.bus.sampler}) and takes no more"
                f" groups of it: {reason}. Mend it, then start it under another --name"
            )
        if self.bus.ended:
            self.voice.say(f"the run has ended ({self.bus.state.end.reason})")
        return self.bus.ended

    async def _look(self) -> bool:
        """One look at the log, and what follows from it. True: the run has ended."""
        if await self._read_log():
            return True
        for seq in self._jobs.keys() - self.bus.state.open_tasks.keys():
            self._jobs[seq].cancel()  # its fate is decided: nobody waits for it
        waiting = await self._adapters.advance()
        self._may_start = waiting is None
        if waiting is not None:
            self.voice.waits(waiting)
        else:  # between two steps of the learner there is often nothing to do for a moment
            self.voice.waits(await self._claim(), after=_IDLE_SECONDS)
        return False

    def _count_bad(self, entries) -> None:
        for entry in entries:
            if not isinstance(entry, Batch | End):
                continue
            for decision in entry.fates:
                mine = decision.sampler == self.bus.sampler
                if mine and decision.fate in ("invalid", "corrupt"):
                    self._bad += 1
                    self.voice.trouble(f"the learner refused a group: {decision.reason}")
        if self._bad >= _MAX_BAD_GROUPS:
            raise UserError(
                f"the learner refused {self._bad} groups of this sampler, the last because: "
                f"{self.voice.last_error}. It stops rather than make more of them"
            )

    async def _claim(self) -> str | None:
        """Claims groups for all free places. The reason to wait, if there is one."""
        room = self.groups - len(self._jobs)
        if room <= 0:
            return None
        try:
            tasks = await self._on_bus(lambda: self.bus.claim(room, rng=self._rng))
        except OSError as error:
            return f"the bus cannot be written: {error}"
        for task in tasks:
            self._jobs[task.seq] = asyncio.create_task(self._group(task))
            self._jobs[task.seq].add_done_callback(
                lambda _, seq=task.seq: self._jobs.pop(seq, None)
            )
        return None if tasks or self._jobs else "the log offers no task"

    async def _fill_for(self, seconds: float) -> None:
        """Waits so long, or for `stop`; places that become free meanwhile are filled."""
        until = time.monotonic() + seconds
        while not self.stop.is_set() and (left := until - time.monotonic()) > 0:
            self._room.clear()
            waits = [asyncio.create_task(event.wait()) for event in (self.stop, self._room)]
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            room = self.groups - len(self._jobs)
            wanted = self._room.is_set() and room >= claim_step(self.groups)
            if wanted and self._may_start and not self.stop.is_set():
                await self._claim()

    async def _group(self, task: Task) -> None:
        """Plays, grades and hands over one group; gives its task back if that cannot be done."""
        try:
            group = await self._player.group(task)
            await self._on_bus(self.bus.put_groups, [group])
        except asyncio.CancelledError:
            self.bus.give_back(task)
            raise
        except (UserError, Refused, Unproven, AdapterGone, BadObject, OSError, ValueError) as error:
            self.bus.give_back(task)
            self.voice.trouble(f"task {task.seq} ({task.problem}) is given back: {error}")
            return
        self.delivered += 1
        # Only now: a sampler that can do nothing must not take one task after the other.
        self._jobs.pop(task.seq, None)
        self._room.set()
        count = sum(int(rollout.mask_T.sum()) for rollout in group.rollouts)
        self._tokens.append((time.monotonic(), count))

    async def _beat(self) -> None:
        pause = beat_pause(
            self.bus.state.start.bounds,
            groups_in_flight=self.groups,
            still_seconds=self.still_seconds,
        )
        while True:
            latest = self.host.latest
            version = latest.version if latest else None
            with contextlib.suppress(OSError):  # a lost beat is only a beat
                await self._on_bus(
                    lambda version=version: self.bus.heartbeat(
                        served=version,
                        proven=version,
                        tokens_per_second=self._rate(),
                        last_error=self.voice.last_error,
                    )
                )
            await asyncio.sleep(pause)

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
        last = self.voice.last_error
        with contextlib.suppress(OSError, UserError):  # the store, or the name, is another's
            await self._on_bus(lambda: self.bus.heartbeat(last_error=last, left=True))
        self._thread.shutdown()
        await self.client.close()

    async def _on_bus(self, call: Callable, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
