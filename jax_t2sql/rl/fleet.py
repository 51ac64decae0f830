"""Samplers in other processes: the learner trains on whichever groups are complete."""

import time
from collections.abc import Callable, Sequence

from jax_t2sql.bus import Batch, Group, Heartbeat, LearnerBus, ReadyGroup
from jax_t2sql.bus.contract import beat_pause
from jax_t2sql.rl.gate import LengthGate
from jax_t2sql.rl.loop import Loop
from jax_t2sql.rl.validation import FleetValidation

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_SAY_EVERY = 30.0


def fleet_room(bus: LearnerBus, *, groups: int, ready: int) -> int:
    """How many tasks to issue now.

    Every sampler reads every entry, so a few large offers cost less than many small ones; but what
    the next batch lacks is offered at once.

    Args:
      groups: of a batch.
      ready: groups with a signal that wait for it.
    """
    urgent = ready + bus.in_flight < groups
    return bus.capacity if urgent or bus.capacity >= groups // 2 else 0


def fleet_choice(
    bus: LearnerBus, ready: Sequence[ReadyGroup], *, groups: int, gate: LengthGate
) -> Sequence[ReadyGroup]:
    """The oldest `groups` groups, or none to wait: for more, or for longer ones."""
    chosen = ready[:groups]
    return [] if len(chosen) < groups or gate.holds(bus, chosen) else chosen


class FleetSampling:
    """Issues within the window, waits for a batch, and says why when that takes long.

    Args:
      location: the bus, for messages.
      gate, validation: see there.
      clock: monotonic seconds; pause: waits for so many.
    """

    def __init__(
        self,
        *,
        location: str,
        gate: LengthGate,
        validation: FleetValidation,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ):
        self._location, self._gate, self._validation = location, gate, validation
        self._clock, self._sleep = clock, pause
        self._pause = 0.0
        self._ready = 0
        self._missing = True  # a batch, when last looked at
        self._expired = self._said = self._stepped = clock()
        self._served = False
        self._moved: dict[str, tuple[tuple[str, int], float]] = {}

    def room(self, loop: Loop) -> int:
        return fleet_room(loop.bus, groups=loop.run.config.rl.groups, ready=self._ready)

    def work(self, loop: Loop) -> list[Group]:
        """Waits a moment if the last look found no batch, and looks after the samplers."""
        now = self._clock()
        fleet = loop.run.config.fleet
        every = beat_pause(
            loop.bus.state.start.bounds,
            groups_in_flight=fleet.groups_in_flight,
            still_seconds=fleet.still_seconds,
        )
        if now - self._expired >= every:
            self._expired = now
            with loop.timed("bus"):
                loop.bus.expire_claims(still_seconds=fleet.still_seconds, clock=self._clock)
            self._watch(loop, now)
        with loop.timed("bus"):
            self._validation.work(loop)
        if self._missing:
            if now - self._said >= _SAY_EVERY:
                self._said = now
                loop.say(self._why(loop))
            with loop.timed("wait"):
                self._sleep(self._pause)
            self._pause = min(2 * self._pause or _FIRST_PAUSE, _LONGEST_PAUSE)
        return []

    def choose(self, loop: Loop, ready: Sequence[ReadyGroup]) -> Sequence[ReadyGroup]:
        """As `fleet_choice`."""
        groups = loop.run.config.rl.groups
        chosen = fleet_choice(loop.bus, ready, groups=groups, gate=self._gate)
        if len(ready) != self._ready or chosen:
            self._pause = 0.0
        self._missing = not chosen
        self._ready = len(ready) - len(chosen)
        return chosen

    def files_due(self, loop: Loop) -> bool:
        """Every few updates, at the end, and as soon as this process has weights to give."""
        config = loop.run.config
        first, self._served = not self._served, True
        last = loop.version == config.rl.steps
        return first or last or loop.version % config.fleet.publish_every == 0

    def serve(self, loop: Loop) -> None:
        self._said = self._clock()

    def metrics(self, loop: Loop, batch: Batch) -> dict[str, float]:
        """Of the step since the last one: where its time went, and what became of the tasks."""
        self._gate.logged(batch)
        now = self._clock()
        total, self._stepped = max(now - self._stepped, 1e-9), now
        beats = self._at_work(loop)
        proven = [beat.proven for beat in beats if beat.proven is not None]
        return {
            "seconds_step": total,
            "idle_share": loop.seconds.get("wait", 0.0) / total,
            "bus_share": loop.seconds.get("bus", 0.0) / total,
            "tokens_per_second": sum(beat.tokens_per_second for beat in beats),
            "samplers": len(beats),
            "samplers_behind": loop.version - min(proven) if proven else 0,
            "in_flight": loop.bus.in_flight,
        }

    def _watch(self, loop: Loop, now: float) -> None:
        """Notes when each sampler's counter last moved, on this clock."""
        for name, beat in loop.bus.heartbeats.items():
            counter = (beat.incarnation, beat.counter)
            if self._moved.get(name, (None, 0.0))[0] != counter:
                self._moved[name] = (counter, now)

    def _at_work(self, loop: Loop) -> list[Heartbeat]:
        """Of the samplers that have not left nor stood still for too long, the last heartbeats."""
        since = self._clock() - loop.run.config.fleet.still_seconds
        beats = loop.bus.heartbeats.items()
        return [beat for name, beat in beats if not beat.left and self._moved[name][1] > since]

    def _why(self, loop: Loop) -> str:
        """What a waiting learner tells its user."""
        beats = self._at_work(loop)
        if not beats:
            return (
                "waiting: no sampler is at work; start some: python -m jax_t2sql.sample --bus"
                f" {self._location} --policy vllm:http://HOST:PORT"
            )
        errors = [f"; {beat.sampler}: {beat.last_error}" for beat in beats if beat.last_error]
        left = self._validation.left
        return (
            f"waiting at step {loop.version}: {self._ready} of {loop.run.config.rl.groups} groups"
            f" are ready, {loop.bus.in_flight} under way with {len(beats)} samplers"
            f"{f', {left} answers of evaluations to come' if left else ''}"
            f"{errors[0][:300] if errors else ''}"
        )
