"""What is to be sampled next: the source of tasks, and its place in the log."""

from typing import TYPE_CHECKING, Any, Protocol

from jax_t2sql.bus import LearnerBus, NewTask

if TYPE_CHECKING:
    from jax_t2sql.rl.loop import Loop


class TaskSource(Protocol):
    """Decides which questions are asked.

    Its state lives in the log: every issue entry holds it, and a restart puts it back. What it
    makes of groups it reads from the log too, so that nothing is counted twice or lost.
    """

    def draw(self, count: int, *, first_seq: int) -> list[NewTask]:
        """The next tasks, which get the seqs from `first_seq` on; at most `count`."""

    def state(self) -> dict[str, Any]:
        """All that the log does not tell, as a JSON object."""

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `state()` was taken."""


class Feed:
    """Offers a source's tasks on the bus."""

    def __init__(self, source: TaskSource):
        self.source = source

    def issue(self, loop: "Loop") -> None:
        """Offers as many tasks as there is room for."""
        bus = loop.bus
        count = min(loop.sampling.room(loop), bus.capacity)
        if count <= 0:
            return
        if tasks := self.source.draw(count, first_seq=bus.state.next_seq):
            with loop.timed("bus"):
                bus.issue(tasks, cursor=self.source.state())

    def restore(self, bus: LearnerBus) -> None:
        """Goes on where the log stands."""
        if bus.state.cursor is not None:
            self.source.restore(bus.state.cursor)
