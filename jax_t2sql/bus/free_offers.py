"""Offers nobody is known to have claimed, so that finding one costs no more in a large window."""

import random
from collections.abc import Iterable, Iterator

from jax_t2sql.bus.entries import AnyEntry, Batch, End, Issue, Task
from jax_t2sql.bus.keys import claim_key, claims_beside
from jax_t2sql.bus.store import Store


class FreeOffers:
    """What the log offers less what was seen to be claimed, shard by shard.

    A claim is never undone, so an offer that was seen to be taken is never looked at again.
    """

    def __init__(self):
        self._shards: dict[str, dict[str, Task]] = {}  # prefix of claims to key to task
        self._latest: dict[int, str] = {}  # seq to the key of its offer
        self._new: set[str] = set()  # shards of the last issue, until listed

    def follow(self, entries: Iterable[AnyEntry]) -> None:
        """Takes in entries of the log; an offer ends with its task's fate or its next attempt."""
        for entry in entries:
            if isinstance(entry, Issue):
                self._new.clear()
                for task in entry.tasks:
                    self._forget(task.seq)
                    key = claim_key(task.seq, task.attempt)
                    self._latest[task.seq] = key
                    shard = claims_beside(task.seq)
                    self._shards.setdefault(shard, {})[key] = task
                    self._new.add(shard)
            elif isinstance(entry, Batch | End):
                for decision in entry.fates:
                    self._forget(decision.seq)

    def taken(self, task: Task) -> None:
        """Somebody has claimed this offer."""
        if self._latest.get(task.seq) == claim_key(task.seq, task.attempt):
            self._forget(task.seq)

    def parts(self, store: Store, rng: random.Random | None) -> Iterator[list[Task]]:
        """Free offers, shard by shard, each listed when its turn comes.

        rng: shuffles shards and offers, shards of the last issue first; None: oldest first.
        """
        shards = sorted(self._shards)
        if rng is not None:
            rng.shuffle(shards)
            shards.sort(key=lambda shard: shard not in self._new)
        for shard in shards:
            offers = self._shards.get(shard)
            if not offers:
                continue
            self._new.discard(shard)
            for key in store.keys(shard, start=min(offers)):
                if key in offers:
                    self._forget(offers[key].seq)
            free = [offers[key] for key in sorted(offers)]
            if rng is not None:
                rng.shuffle(free)
            yield free

    def _forget(self, seq: int) -> None:
        key = self._latest.pop(seq, None)
        if key is not None:
            shard = claims_beside(seq)
            del self._shards[shard][key]
            if not self._shards[shard]:
                del self._shards[shard]
