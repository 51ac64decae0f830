"""The one writer of the log: appends at its head, and stops when another learner has."""

from typing import Any

from jax_t2sql.bus.entries import AnyEntry
from jax_t2sql.bus.faults import LostLeadership
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.state import RunState


class Leader:
    """A learner's hold on the log. After LostLeadership it must not be used again."""

    def __init__(self, log: Log, state: RunState):
        self.log = log
        self.state = state
        self.store = log.store
        self._lost = False

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def version(self) -> int:
        """Batches applied, as far as the log knows."""
        return self.state.version

    @property
    def position(self) -> tuple[int, str]:
        """(index, sha256) of the last entry: what a checkpoint made now has to store."""
        return self.log.head, self.log.head_sha

    def append_entry(self, kind: type[AnyEntry], **fields: Any) -> AnyEntry:
        """Append an entry of this kind; the chain's fields and the epoch are filled in.

        Raises:
            LostLeadership: another learner has taken over.
            LogError: the entry contradicts those before it; it is not written.
        """
        if self._lost:
            raise LostLeadership("this learner has lost the run to another one; it must exit")
        fields.setdefault("epoch", self.epoch)

        def make(**chain: Any) -> AnyEntry:
            entry = kind(**chain, **fields)
            self.state.check(entry)
            return entry

        try:
            entry = self.log.append(make)
        except LostLeadership:
            self._lost = True
            raise
        self.state.apply(entry)
        return entry
