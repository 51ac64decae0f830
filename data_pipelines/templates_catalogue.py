"""Which templates exist, and which of them are trained on.

A template is a head with filter kinds. Held-out questions also come from templates that training
never shows, each a recombination of a head and of filters that training does show apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """`head` with `filters` (families: equals, compare, between, year, null, average, parent).

    weight: its share of a file's questions, relative to the other templates there.
    boost: what the weight is multiplied by in the warm-up. A policy that never gets a kind of
        question right by chance learns nothing from rewards: show more of what is rare or hard.
    seen: whether warm-up and training hold it.
    """

    head: str
    filters: tuple[str, ...] = ()
    weight: float = 1.0
    boost: float = 1.0
    seen: bool = True

    @property
    def name(self) -> str:
        """For example "list + equals + compare"."""
        return " + ".join((self.head, *self.filters))

    def share(self, split: str) -> float:
        """The relative number of questions in a file."""
        return self.weight * (self.boost if split == "warmup" else 1.0)


TEMPLATES = (
    Template("list", ("equals",), boost=1.5),
    Template("list", ("compare",)),
    Template("list", ("between",), boost=1.5),
    Template("list", ("year",)),
    Template("list", ("null",), boost=2.0),
    Template("list", ("equals", "compare")),
    Template("list", ("average",), boost=1.5),
    Template("list", ("parent",)),
    Template("count", weight=0.5, boost=2.0),
    Template("count", ("equals",), boost=1.5),
    Template("count", ("compare",), boost=0.7),
    Template("count", ("null",), boost=2.0),
    Template("count", ("parent",)),
    Template("aggregate"),
    Template("aggregate", ("equals",)),
    Template("aggregate", ("year",)),
    Template("aggregate", ("null",)),
    Template("distinct", weight=0.5, boost=2.0),
    Template("distinct", ("compare",)),
    Template("top", boost=1.5),
    Template("top", ("equals",), boost=1.5),
    Template("group", boost=2.5),
    Template("group", ("compare",), boost=1.2),
    Template("group", ("year",)),
    Template("having", boost=0.7),
    Template("count", ("between",), seen=False),
    Template("count", ("year",), seen=False),
    Template("count", ("average",), seen=False),
    Template("count", ("equals", "compare"), seen=False),
    Template("aggregate", ("compare",), seen=False),
    Template("distinct", ("year",), seen=False),
    Template("top", ("year",), seen=False),
    Template("group", ("equals",), seen=False),
)
