"""A sampler follows the learner's adapters: the last published one is the one to serve."""

import math
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_t2sql.bus import AdapterRef, BadObject, SamplerBus, fetch_adapter
from jax_t2sql.errors import UserError
from jax_t2sql.sample_voice import Voice
from jax_t2sql.sampling.vllm import Refused
from jax_t2sql.sampling.vllm_adapters import AdapterHost, Unproven


@dataclass
class AdapterFollower:
    """Brings published adapters to the server.

    Attributes:
      cache: folder for adapters that are fetched from a bucket; the server must see it.
      on_bus: calls a function of the bus in the thread that is the bus's.
      retry_seconds: until an adapter that the server refused is tried again.
    """

    bus: SamplerBus
    host: AdapterHost
    cache: Path
    on_bus: Callable[..., Awaitable[Any]]
    voice: Voice
    retry_seconds: float
    _refused: tuple[str, float] = ("", 0.0)  # an adapter that could not be served; until when

    async def advance(self) -> str | None:
        """Serves the newest adapter there is. The reason to wait, if there is one."""
        published = self.bus.state.last_publish
        if published is None:
            return "the learner has not published weights yet"
        adapters, latest = self.bus.state.adapters, self.host.latest
        if not adapters:
            return (
                f"version {published.step} was published without an adapter's files (its learner "
                "samples by itself)"
            )
        index, ref = adapters[-1]  # not every version has files
        if latest is None or ref.name != latest.name:
            await self._serve(ref, self.bus.log.entries[index].step)
        latest, bound = self.host.latest, self.bus.state.start.bounds.max_staleness
        if latest is None:
            return f"no adapter can be served: {self.voice.last_error}"
        if (age := self.bus.version - latest.version) > bound:
            return f"version {latest.version} is served, {age} old; the bound is {bound}"
        return None

    async def _serve(self, ref: AdapterRef, version: int) -> None:
        name, until = self._refused
        if ref.name == name and time.monotonic() < until:
            return
        try:
            directory = await self.on_bus(fetch_adapter, self.bus.store, ref, self.cache)
            await self.host.advance(ref.name, version=version, directory=directory)
        except UserError as error:  # its files are wrong, and stay so
            self._refused = (ref.name, math.inf)
            self.voice.trouble(f"adapter {ref.name} is not served: {error}")
        except (Refused, Unproven) as error:  # the server may have been in a bad way
            self._refused = (ref.name, time.monotonic() + self.retry_seconds)
            self.voice.trouble(f"adapter {ref.name} is not served: {error}")
        except (BadObject, OSError) as error:  # may be collected already; there is a newer one
            self.voice.trouble(f"adapter {ref.name} cannot be fetched: {error}")
        else:
            self.voice.say(f"serving version {version} ({ref.name})")
            self._sweep()

    def _sweep(self) -> None:
        """Removes fetched adapters that are no longer served."""
        if self.cache.is_dir():
            served = {s.directory.name for s in self.host.served.values()}
            run = self.bus.state.start.run
            for directory in self.cache.iterdir():
                if directory.name not in served and directory.name.startswith(run):
                    shutil.rmtree(directory, ignore_errors=True)
