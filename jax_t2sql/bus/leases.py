"""Tasks that dead samplers hold are offered again."""

import time
from collections.abc import Callable, Sequence

from jax_t2sql.bus.claims import Claim, ClaimWatch
from jax_t2sql.bus.entries import Issue, Task
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.offers import holders, next_attempts, orphans, undelivered
from jax_t2sql.bus.samplers import Heartbeat, read_heartbeats
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.window import Window


class Leases(Window):
    """The learner's watch over those who work on its tasks.

    heartbeats: as `expire_claims` last read them.
    """

    def __init__(self, log: Log, state: RunState):
        super().__init__(log, state)
        self._watch = ClaimWatch()
        self._claims: dict[int, Claim] = {}
        self.heartbeats: dict[str, Heartbeat] = {}

    def expire_claims(
        self, *, still_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> tuple[Task, ...]:
        """Offer again what dead samplers hold; returns the new offers. To be called every step.

        Dead is a sampler process whose heartbeat has not moved for `still_seconds`, and a sampler
        inside an earlier learner (it may have claimed after this one took over). One inside this
        learner never is. What a living process claimed but no longer names among what it holds, it
        gave up: that is offered again as well, and so is what a quarantined one holds. After the
        last attempt the fate is "failed".
        """
        heartbeats = self.heartbeats = read_heartbeats(self.store)
        claims = self._claims = holders(self.store, self._waiting(), self._claims, heartbeats)
        processes = {seq: claim for seq, claim in claims.items() if claim.learner_epoch is None}
        dead = self._watch.stalled(processes, heartbeats, now=clock(), still_seconds=still_seconds)
        banned = [s for s, claim in claims.items() if claim.sampler in self.state.quarantined]
        lost = list(dict.fromkeys([*orphans(claims, epoch=self.epoch), *dead, *banned]))
        if lost:  # a group may have come since the last look
            waiting = {task.seq for task in undelivered(self.store, self.state)}
            lost = [seq for seq in lost if seq in waiting]
        return self.offer_again(lost)

    def offer_again(self, seqs: Sequence[int]) -> tuple[Task, ...]:
        """The next attempt of each; after the last one the fate is "failed"."""
        again, exhausted = next_attempts(self.state, seqs)
        for seq in exhausted:
            self._intake.decide(seq, "failed", reason="no group after the last attempt")
        if again:
            self.append_entry(Issue, tasks=again, cursor=self.state.cursor)
        return again
