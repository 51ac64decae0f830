"""How a predicted query differs from the gold query, in words.

A reading aid: it compares the texts' parts, not their meaning, so a difference it names may be
harmless, and two queries without one may still differ.
"""

from collections import Counter
from dataclasses import dataclass

from jax_t2sql.scores.inventory import Columns, Filter, Inventory, take_inventory

KINDS = (
    "unreadable", "missing column", "extra column", "other column", "column order", "missing table",
    "extra table", "join kind", "join condition", "missing filter", "extra filter", "NULL filter",
    "other value", "literal case", "other comparison", "aggregation", "aggregation scope",
    "DISTINCT", "order", "limit", "set operation", "repetition", "structure",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One difference: a kind of `KINDS`, and a sentence."""

    kind: str
    text: str


def differences(gold: str, pred: str, columns: Columns) -> list[Difference]:
    """The differences between two queries, from the select list downwards. Never raises.

    Args:
      gold, pred: the queries.
      columns: names of columns by table, folded; {} if unknown.

    >>> for found in differences("SELECT a FROM t WHERE b = 'X'", "SELECT DISTINCT a FROM t", {}):
    ...     print(found.text)
    the filter b = 'X' is missing
    DISTINCT is too much
    """
    ours, theirs = take_inventory(gold, columns), take_inventory(pred, columns)
    if ours is None or theirs is None:
        which = "gold" if ours is None else "predicted"
        return [Difference("unreadable", f"the {which} query cannot be taken apart")]
    pairs, missing, extra = _aggregate_pairs(ours, theirs)
    found = [
        *_outputs(ours, theirs, pairs),
        *_tables(ours, theirs),
        *_filters(ours, theirs),
        *_aggregates(pairs, missing, extra),
        *_scope(ours, theirs),
        *_rest(ours, theirs),
    ]
    if not found and gold.split() != pred.split():
        found.append(Difference("structure", "the same parts, put together differently"))
    return found


_Pairs = list[tuple[str, str]]


def _outputs(gold: Inventory, pred: Inventory, pairs: _Pairs) -> list[Difference]:
    missing = list((Counter(gold.outputs) - Counter(pred.outputs)).elements())
    extra = list((Counter(pred.outputs) - Counter(gold.outputs)).elements())
    if not missing and not extra and gold.outputs != pred.outputs:
        order = ", ".join(gold.outputs)
        return [Difference("column order", f"the columns should stand in this order: {order}")]
    found = []
    # As many columns, some others: each took the place of one.
    if len(missing) == len(extra):
        found += [
            Difference("other column", f"selects {theirs} instead of {ours}")
            for ours, theirs in zip(missing, extra, strict=True)
            # What differs in the aggregate alone is told there.
            if theirs not in {ours.replace(mine, other) for mine, other in pairs}
        ]
    else:
        found += [Difference("missing column", f"{name} is not selected") for name in missing]
        found += [Difference("extra column", f"{name} is selected too") for name in extra]
    return found


def _tables(gold: Inventory, pred: Inventory) -> list[Difference]:
    missing, extra = gold.tables - pred.tables, pred.tables - gold.tables
    found = [
        Difference("missing table", f"table {name} is missing")
        if name not in pred.tables
        else _other_count("table", name, gold.tables[name], pred.tables[name])
        for name in missing
    ]
    found += [
        Difference("extra table", f"table {name} is too much")
        if name not in gold.tables
        else _other_count("table", name, gold.tables[name], pred.tables[name])
        for name in extra
    ]
    kinds = {table: kind for kind, table in gold.joins}
    for kind, table in pred.joins - gold.joins:
        if kinds.get(table, kind) != kind:
            found.append(
                Difference("join kind", f"{kind} join of {table} instead of {kinds[table]} join")
            )
    if not missing and not extra:
        found += [
            Difference("join condition", f"the join condition {link} is missing")
            for link in gold.links - pred.links
        ]
        found += [
            Difference("join condition", f"the join condition {link} is too much")
            for link in pred.links - gold.links
        ]
    return found


def _filters(gold: Inventory, pred: Inventory) -> list[Difference]:
    missing = list((gold.filters - pred.filters).elements())
    extra = list((pred.filters - gold.filters).elements())
    found = []
    for ours in list(missing):
        partner = next((theirs for theirs in extra if _pair(ours, theirs)), None)
        if partner:
            missing.remove(ours)
            extra.remove(partner)
            found.append(_changed(ours, partner))
    for filters, what in ((missing, "missing"), (extra, "too much")):
        for each in dict.fromkeys(filters):
            if gold.filters[each] and pred.filters[each]:
                counts = gold.filters[each], pred.filters[each]
                found.append(_other_count("the filter", each.text, *counts))
                continue
            kind = (
                "NULL filter"
                if _tests_null(each)
                else f"{what.replace('too much', 'extra')} filter"
            )
            found.append(Difference(kind, f"the filter {each.text} is {what}"))
    return found


def _other_count(what: str, name: str, ours: int, theirs: int) -> Difference:
    """Both have it, in other places: in one arm of a set operation, say, instead of both."""
    return Difference("repetition", f"{what} {name} stands {theirs} times instead of {ours}")


def _pair(ours: Filter, theirs: Filter) -> bool:
    """Whether one condition may be a changed form of the other."""
    if not ours.operator or not theirs.operator or ours.subject != theirs.subject:
        return False
    return ours.operator == theirs.operator or ours.value.lower() == theirs.value.lower()


def _tests_null(part: Filter) -> bool:
    return part.operator.endswith("IS") and part.value.upper() == "NULL"


def _changed(ours: Filter, theirs: Filter) -> Difference:
    if ours.operator != theirs.operator:
        return Difference("other comparison", f"{theirs.text} instead of {ours.text}")
    if ours.value.lower() == theirs.value.lower():
        told = f"{theirs.text} instead of {ours.text}: only upper and lower case differ"
        return Difference("literal case", told)
    return Difference("other value", f"{theirs.text} instead of {ours.text}")


def _aggregate_pairs(gold: Inventory, pred: Inventory) -> tuple[_Pairs, list[str], list[str]]:
    """Aggregates of which one took the other's place, the likest first; and what is left over."""
    missing = sorted((gold.aggregates - pred.aggregates).elements())
    extra = sorted((pred.aggregates - gold.aggregates).elements())
    if len(missing) != len(extra):
        return [], missing, extra
    pairs = []
    for alike in (_without_distinct, _argument, _function, lambda text: ""):
        for ours in list(missing):
            theirs = next((text for text in extra if alike(text) == alike(ours)), None)
            if theirs is not None:
                missing.remove(ours)
                extra.remove(theirs)
                pairs.append((ours, theirs))
    return pairs, [], []


def _without_distinct(aggregate: str) -> str:
    return aggregate.replace("DISTINCT ", "")


def _argument(aggregate: str) -> str:
    return aggregate.partition("(")[2]


def _function(aggregate: str) -> str:
    return aggregate.partition("(")[0]


def _aggregates(pairs: _Pairs, missing: list[str], extra: list[str]) -> list[Difference]:
    found = []
    for ours, theirs in pairs:
        only_distinct = _without_distinct(ours) == _without_distinct(theirs)
        kind = "DISTINCT" if only_distinct else "aggregation"
        found.append(Difference(kind, f"{theirs} instead of {ours}"))
    found += [Difference("aggregation", f"{name} is missing") for name in missing]
    found += [Difference("aggregation", f"{name} is too much") for name in extra]
    return found


def _scope(gold: Inventory, pred: Inventory) -> list[Difference]:
    found = []
    if gold.groups != pred.groups:
        ours, theirs = (", ".join(sorted(keys)) for keys in (gold.groups, pred.groups))
        if not ours:
            told = f"grouped by {theirs} instead of as a whole"
        elif not theirs:
            told = f"not grouped by {ours}"
        else:
            told = f"grouped by {theirs} instead of {ours}"
        found.append(Difference("aggregation scope", told))
    return found


def _rest(gold: Inventory, pred: Inventory) -> list[Difference]:
    found = []
    if gold.distinct != pred.distinct:
        told = "DISTINCT is missing" if gold.distinct else "DISTINCT is too much"
        found.append(Difference("DISTINCT", told))
    if gold.order != pred.order:
        ours, theirs = (", ".join(keys) or "nothing" for keys in (gold.order, pred.order))
        found.append(Difference("order", f"ordered by {theirs} instead of {ours}"))
    if gold.limit != pred.limit:
        ours, theirs = (text or "none" for text in (gold.limit, pred.limit))
        found.append(Difference("limit", f"limit {theirs} instead of {ours}"))
    for name in gold.operations - pred.operations:
        found.append(Difference("set operation", f"{name} is missing"))
    for name in pred.operations - gold.operations:
        found.append(Difference("set operation", f"{name} is too much"))
    return found
