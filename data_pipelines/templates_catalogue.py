"""Which templates exist, and which of them are trained on.

A template is a head with filter kinds. Held-out questions also come from templates that training
never shows, each a recombination of a head and of filters that training does show apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """`head` with `filters` (families: equals, compare, between, year, null, average, parent).

    weight: its share of questions relative to the other templates of its kind.
    seen: whether warm-up and training hold it.
    """

    name: str
    head: str
    filters: tuple[str, ...] = ()
    weight: float = 1.0
    seen: bool = True


def _template(head: str, *filters: str, weight: float = 1.0, seen: bool = True) -> Template:
    name = " + ".join((head, *filters))
    return Template(name=name, head=head, filters=filters, weight=weight, seen=seen)


TEMPLATES = (
    _template("list", "equals"),
    _template("list", "compare"),
    _template("list", "between"),
    _template("list", "year"),
    _template("list", "null"),
    _template("list", "equals", "compare"),
    _template("list", "average"),
    _template("list", "parent"),
    _template("count", weight=0.5),
    _template("count", "equals"),
    _template("count", "compare"),
    _template("count", "null"),
    _template("count", "parent"),
    _template("aggregate"),
    _template("aggregate", "equals"),
    _template("aggregate", "year"),
    _template("distinct", weight=0.5),
    _template("distinct", "compare"),
    _template("top"),
    _template("top", "equals"),
    _template("group"),
    _template("group", "compare"),
    _template("having"),
    _template("count", "between", seen=False),
    _template("count", "year", seen=False),
    _template("count", "average", seen=False),
    _template("count", "equals", "compare", seen=False),
    _template("aggregate", "compare", seen=False),
    _template("distinct", "year", seen=False),
    _template("top", "year", seen=False),
    _template("group", "equals", seen=False),
)
