"""Against a bias to short episodes: a learner that never waits loses the long ones to staleness."""

from collections import deque
from collections.abc import Iterable, Sequence

from jax_t2sql.bus import LearnerBus, ReadyGroup
from jax_t2sql.bus.entries import AnyEntry, Batch

_STEPS = 20


class LengthGate:
    """Holds a batch back while the ratio of used to all mean lengths is below `least`.

    The ratio is the mean over the last batches, as the log has them, and this one. Held back is an
    update that would make groups under way too old; once those have come it goes on, so that a run
    never stands still.

    Args:
      least: 0 lets everything through.
    """

    def __init__(self, least: float, entries: Iterable[AnyEntry] = ()):
        self.least = least
        ratios = (entry.length_ratio for entry in entries if isinstance(entry, Batch))
        self._ratios: deque[float] = deque(ratios, maxlen=_STEPS)

    def holds(self, bus: LearnerBus, groups: Sequence[ReadyGroup]) -> bool:
        """Whether to wait for more groups rather than train on these."""
        if not self.least or not bus.at_risk:
            return False
        ratios = [*self._ratios, bus.length_ratio(groups)][-_STEPS:]
        return sum(ratios) / len(ratios) < self.least

    def logged(self, batch: Batch) -> None:
        """A batch was trained on."""
        self._ratios.append(batch.length_ratio)
