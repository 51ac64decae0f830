"""Adapters on a vLLM server: each under its own name, checked before and proven after it is loaded.

A name stands for one content for ever, so that no cache of the server can hold anything older under
it. Proven is an adapter that the server lists and that moves log-probs: away from the base, and
away from the adapter before it. Weights that never arrive look like mere staleness otherwise.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jax_t2sql.models import ModelConfig, load_adapter
from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.sampling.vllm import AdapterGone, Refused, VllmClient

_CANARY_TOKENS = 16
# How often the base is asked before its song counts as that of an adapter, where it could not be
# heard alone.
_ENCORES = 8


class Unproven(Exception):
    """The server has the adapter and samples as if it had not."""


Song = tuple[tuple[int, ...], tuple[float, ...]]


@dataclass
class Served:
    """An adapter on the server.

    Attributes:
      alias: its name there.
      version: what its weights are the weights of.
      users: episodes' groups that sample with it now.
      canary: what it samples after the canary, as `AdapterHost.sing` gives it.
    """

    name: str
    alias: str
    version: int
    directory: Path
    users: int = 0
    canary: Song = ((), ())


def check_adapter(directory: Path, config: ModelConfig) -> bool:
    """Compares names and shapes with the model; True if the adapter changes anything.

    Servers have taken factors of a wrong shape without a word, hence this. A fresh adapter, whose
    second factors are all zero, is the base itself.

    Raises:
      UserError: it is no adapter of this model; see `load_adapter`.
    """
    # The leaves of the tree are factors of pairs; with scale 0 or B = 0 everywhere nothing changes.
    adapter = load_adapter(directory, config)
    pairs = [pair for node in _nodes(adapter) for pair in node]
    return any(pair.scale != 0 and np.any(np.asarray(pair.b)) for pair in pairs)


def _nodes(tree) -> list[list]:
    if hasattr(tree, "scale"):
        return [[tree]]
    return [pairs for child in tree.values() for pairs in _nodes(child)]


class AdapterHost:
    """Which adapters the server holds, and who uses them.

    Args:
      client: of the server.
      config: of the base model.
      base: the base's name on the server.
      canary: ids of a prompt, a real one say.
      owner: of the names on the server, unlike that of any other client of it: what one unloads is
        never what another samples with.
      keep: adapters that may stay loaded though nobody uses them, the newest of all.
    """

    def __init__(
        self,
        client: VllmClient,
        *,
        config: ModelConfig,
        base: str,
        canary: Sequence[int],
        owner: str = "",
        keep: int = 1,
    ):
        self.client, self.config, self.base = client, config, base
        self.canary, self.owner, self.keep = list(canary), owner, keep
        self.served: dict[str, Served] = {}
        self.latest: Served | None = None  # last proven one that was asked to be the latest
        self._base_alone: Song | None = None  # heard while no adapter was loaded
        self._base_songs: list[Song] = []  # heard beside adapters
        self._lock = asyncio.Lock()

    async def advance(self, name: str, *, version: int, directory: Path) -> Served:
        """Loads and proves an adapter; it is then the one that new groups use.

        Raises:
          UserError: the files are no adapter of this model: nothing was loaded.
          Refused: the server does not take it. Unproven: it takes it and ignores it.
        """
        async with self._lock:
            served = await self._load(name, version=version, directory=directory)
            self.latest = served
            await self._tidy()
            return served

    @contextlib.asynccontextmanager
    async def use(
        self, name: str | None = None, *, version: int = 0, directory: Path | None = None
    ) -> AsyncIterator[Served]:
        """Holds an adapter on the server: the latest, or the one named, loaded where need be."""
        async with self._lock:
            served = self.latest
            if name is not None:
                served = self.served.get(name)
                if served is None:
                    served = await self._load(name, version=version, directory=directory)
            if served is None:
                raise AdapterGone("no adapter has been served yet")
            served.users += 1
        try:
            yield served
        finally:
            served.users -= 1
            async with self._lock:
                await self._tidy()

    async def reload(self, served: Served) -> None:
        """Brings an adapter back that the server has lost; others may have done so meanwhile.

        Raises: as `advance`.
        """
        async with self._lock:
            if served.alias not in await self.client.models():
                await self._put(served)

    async def _load(self, name: str, *, version: int, directory: Path) -> Served:
        if name in self.served:
            return self.served[name]
        alias = f"{name}.{self.owner}" if self.owner else name
        served = Served(name, alias, version, directory)
        await self._put(served)
        self.served[name] = served
        return served

    async def _put(self, served: Served) -> None:
        changes = await asyncio.to_thread(check_adapter, served.directory, self.config)
        await self._hear_base_alone()
        await self.client.load_adapter(served.alias, str(served.directory.resolve()))
        try:
            await self._prove(served, changes=changes)
        except BaseException:
            with contextlib.suppress(Refused):
                await self.client.unload_adapter(served.alias)
            raise

    async def _prove(self, served: Served, *, changes: bool) -> None:
        if served.alias not in await self.client.models():
            raise Unproven(f"{served.name} was loaded, but the server does not list it")
        try:
            served.canary = await self.sing(served.alias)
            ignored = changes and await self._is_base(served.canary)
        except AdapterGone as error:
            raise Refused(f"the server lost an adapter that it had just loaded: {error}") from error
        count = len(served.canary[1])
        if ignored:
            raise Unproven(
                f"{served.name} changes weights, yet all {count} log-probs of the canary "
                "are those of the base: the server ignores adapters"
            )
        before = self.latest
        if before is not None and before.name != served.name and before.canary == served.canary:
            same = await asyncio.to_thread(_same_files, before.directory, served.directory)
            if not same:
                raise Unproven(
                    f"{served.name} and {before.name} are different files, yet all {count} "
                    "log-probs of the canary are the same: the server still uses the old one"
                )

    async def _hear_base_alone(self) -> None:
        """Keeps the base's song, if no adapter is loaded, by another client say.

        vLLM 0.32 on CPUs runs requests to the base with the weights of an adapter that is at work
        beside them, so that what is heard later may be an adapter's song.
        """
        if self._base_alone is None and await self._only_bases():
            song = await self.sing(self.base)
            if await self._only_bases():
                self._base_alone = song

    async def _only_bases(self) -> bool:
        return all(model.parent is None for model in (await self.client.models()).values())

    async def _is_base(self, song: Song) -> bool:
        """Whether a song is the base's, and so that of an adapter which the server ignores."""
        if self._base_alone is not None:
            return song == self._base_alone
        for _ in range(_ENCORES):
            if any(song != heard for heard in self._base_songs):
                return False
            self._base_songs.append(await self.sing(self.base))
        return all(song == heard for heard in self._base_songs)

    async def sing(self, name: str) -> Song:
        """Ids and log-probs that `name` samples after the canary, always with one seed.

        Sampled, not scored: log-probs of a prompt, asked for while others sample with adapters,
        kill the engine of vLLM 0.32.

        Raises: as `VllmClient.sample`.
        """
        request = SampleRequest(
            prompt_ids=tuple(self.canary), seed=0, max_tokens=_CANARY_TOKENS, temperature=1.0
        )
        completion = await self.client.sample(request, adapter=name, version=0)
        return completion.ids, completion.logprobs

    async def _tidy(self) -> None:
        """Unloads what nobody uses, but the latest and the newest others up to `keep`."""
        free = [s for s in self.served.values() if not s.users and s is not self.latest]
        for served in free[: max(len(free) - self.keep + 1, 0)]:
            with contextlib.suppress(Refused):  # it is only memory; the server says so itself
                await self.client.unload_adapter(served.alias)
            del self.served[served.name]


def _same_files(one: Path, two: Path) -> bool:
    def contents(directory: Path) -> dict[str, bytes]:
        try:
            return {path.name: path.read_bytes() for path in directory.iterdir()}
        except OSError:  # collected meanwhile: cannot be told apart, so no alarm
            return {}

    first, second = contents(one), contents(two)
    return not first or not second or first == second
