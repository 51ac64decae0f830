"""What is to be sampled next: the source of tasks, and its place in the log."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jax_t2sql.bus import BadObject, Batch, Group, Issue, LearnerBus, NewTask, ReadyGroup
from jax_t2sql.bus.groups import decode_group
from jax_t2sql.bus.intake import read_group
from jax_t2sql.groups import advantages

if TYPE_CHECKING:
    from jax_t2sql.rl.loop import Loop


class TaskSource(Protocol):
    """Decides which questions are asked.

    Its state lives in the log: every issue entry holds it, and a restart puts it back. What
    `observe` was told after the last entry is told again, so nothing is counted twice or lost.
    """

    def draw(self, count: int, *, first_seq: int) -> list[NewTask]:
        """The next tasks, which get the seqs from `first_seq` on; at most `count`."""

    def observe(self, group: Group, *, signal: bool) -> None:
        """A group arrived; signal: its rollouts differ in reward. Once a group."""

    def state(self) -> dict[str, Any]:
        """All of it, as a JSON object without a key "observed"."""

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `state()` was taken."""


class Feed:
    """A source, and which of the groups that the log has not decided it was told of."""

    def __init__(self, source: TaskSource):
        self.source = source
        self._observed: set[int] = set()

    def issue(self, loop: "Loop") -> None:
        """Offers as many tasks as there is room for."""
        bus = loop.bus
        count = min(loop.sampling.room(loop), bus.capacity)
        if count <= 0:
            return
        tasks = self.source.draw(count, first_seq=bus.state.next_seq)
        if tasks:
            cursor = self.cursor(bus)
            with loop.timed("bus"):
                bus.issue(tasks, cursor=cursor)

    def cursor(self, bus: LearnerBus) -> dict[str, Any]:
        """What an issue entry has to hold."""
        self._observed &= bus.state.open_tasks.keys()
        return self.source.state() | {"observed": sorted(self._observed)}

    def observe(self, ready: ReadyGroup, *, signal: bool) -> bool:
        """Tells the source of a group; False if it was told before."""
        if ready.task.seq in self._observed:
            return False
        self._observed.add(ready.task.seq)
        self.source.observe(ready.group, signal=signal)
        return True

    def restore(self, bus: LearnerBus) -> None:
        """Goes on where the log stands."""
        if bus.state.cursor is None:
            return
        cursor = dict(bus.state.cursor)
        self._observed = set(cursor.pop("observed", ()))
        self.source.restore(cursor)
        for group in _decided_since_issue(bus):
            if group.seq not in self._observed:
                self.source.observe(group, signal=not advantages(group)[1])


def _decided_since_issue(bus: LearnerBus) -> Sequence[Group]:
    """Groups whose fates the log holds after its last issue entry, as far as they can be read."""
    seqs: list[int] = []
    for entry in reversed(bus.log.entries):
        if isinstance(entry, Issue):
            break
        if isinstance(entry, Batch):
            seqs += [d.seq for d in entry.fates if d.fate in ("trained", "zero-signal")]
    groups = []
    for seq in sorted(seqs):
        try:
            groups.append(decode_group(read_group(bus.store, seq)))
        except (FileNotFoundError, BadObject):  # collected, or bad after all
            continue
    return groups
