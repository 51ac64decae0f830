"""How often each training question was solved, visit by visit: pool accuracy and churn.

A run's `solves.jsonl` has one line a visit: step, question_id, how many rollouts were right, of how
many. It is a record for people; what a run decides by comes from its log.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Visit:
    """One group of rollouts: `right` among `of` (at least 1)."""

    step: int
    right: int
    of: int

    @property
    def rate(self) -> float:
        return self.right / self.of


class Solves:
    """Visits of every question in the order of the run.

    Args:
      rows: of `solves.jsonl`; what is no visit is passed over.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()):
        self.visits: dict[str, list[Visit]] = {}
        for row in rows:
            question, right, of = row.get("question_id"), row.get("right"), row.get("of")
            counts = type(right) is int and type(of) is int and 0 <= right <= of and of > 0
            if isinstance(question, str) and counts:
                self._add(question, Visit(row["step"], right, of))

    def observe(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Takes the visits of one step; returns what they say.

        Returns: `pool_accuracy`, the mean over all questions met so far of their rate at the last
          visit; `revisited_share` of this step's questions; of those revisited `gained_share` (none
          right before, some now) and `lost_share` (the reverse); of the others
          `first_visit_solved_share` (all right) and `first_visit_unsolved_share`.
        """
        before = {row["question_id"]: self.visits.get(row["question_id"], [])[-1:] for row in rows}
        now = [(before[row["question_id"]], Visit(**_counts(row))) for row in rows]
        for row, (_, visit) in zip(rows, now, strict=True):
            self._add(row["question_id"], visit)
        again = [(old[0], visit) for old, visit in now if old]
        first = [visit for old, visit in now if not old]
        found = {"pool_accuracy": self.pool_accuracy(), "revisited_share": len(again) / len(now)}
        if again:
            found["gained_share"] = sum(not o.right and n.right > 0 for o, n in again) / len(again)
            found["lost_share"] = sum(o.right > 0 and not n.right for o, n in again) / len(again)
        if first:
            found["first_visit_solved_share"] = sum(v.right == v.of for v in first) / len(first)
            found["first_visit_unsolved_share"] = sum(not v.right for v in first) / len(first)
        return found

    def pool_accuracy(self) -> float:
        """Mean rate at the last visit over the questions met so far; 0 before the first."""
        last = [visits[-1].rate for visits in self.visits.values()]
        return sum(last) / len(last) if last else 0.0

    def restless(self, most: int) -> list[tuple[str, list[Visit]]]:
        """Questions whose rate went up and down most over their visits, the most restless first."""
        moves = {
            question: sum(
                abs(new.rate - old.rate) for old, new in zip(visits, visits[1:], strict=False)
            )
            for question, visits in self.visits.items()
        }
        order = sorted((q for q in moves if moves[q] > 0), key=lambda q: (-moves[q], q))
        return [(question, self.visits[question]) for question in order[:most]]

    def unsolved(self) -> list[tuple[str, list[Visit]]]:
        """Questions that no rollout has answered, those with most rollouts first."""
        never = [(q, v) for q, v in self.visits.items() if not any(visit.right for visit in v)]
        return sorted(never, key=lambda item: (-sum(visit.of for visit in item[1]), item[0]))

    def _add(self, question: str, visit: Visit) -> None:
        self.visits.setdefault(question, []).append(visit)


def bars(visits: Sequence[Visit], most: int = 40) -> str:
    """The last visits as a line of bars: the lowest for none right, the highest for all.

    >>> bars([Visit(1, 0, 8), Visit(5, 3, 8), Visit(9, 8, 8)])
    '▁▃█'
    """
    return "".join(_BARS[int(visit.rate * (len(_BARS) - 1))] for visit in visits[-most:])


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in ("step", "right", "of")}
