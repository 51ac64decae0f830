"""Queries that are nearly a gold query: one small fault each, of a kind that models make."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import facts as f
import sqlglot
from facts import Facts, read_facts
from golds import Gold
from sqlglot import exp

_BOUNDS = {exp.LT: exp.LTE, exp.LTE: exp.LT, exp.GT: exp.GTE, exp.GTE: exp.GT}
_AGGREGATES = {exp.Avg: exp.Sum, exp.Sum: exp.Avg, exp.Max: exp.Min, exp.Min: exp.Max}


@dataclass(frozen=True)
class Mutant:
    """A gold query with one fault: its kind, and the text."""

    id: str
    gold: Gold
    kind: str
    sql: str


def mutants_of(gold: Gold, *, seed: int = 0, each: int = 4) -> list[Mutant]:
    """Mutants of a gold query, at most `each` of a kind, no two alike and none like the gold."""
    try:
        tree = sqlglot.parse_one(gold.sql, read="sqlite")
    except sqlglot.errors.SqlglotError:
        return []
    rng = random.Random(f"{gold.id}/{seed}")
    facts = read_facts(gold.ddl)
    found, seen = [], {tree.sql("sqlite")}
    for kind, make in _KINDS.items():
        texts = sorted({mutant.sql("sqlite") for mutant in make(tree, facts)} - seen)
        for i, text in enumerate(rng.sample(texts, min(len(texts), each))):
            seen.add(text)
            found.append(Mutant(f"{gold.id}/{kind}-{i}", gold, kind, text))
    return found


def _at_each(tree: exp.Expression, kinds: tuple, change) -> Iterator[exp.Expression]:
    """Copies of the tree in which `change` was applied to one node; it returns False to skip."""
    count = len(list(tree.find_all(*kinds)))
    for i in range(count):
        copy = tree.copy()
        node = list(copy.find_all(*kinds))[i]
        if change(node) is not False:
            yield copy


def _drop_predicate(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    clauses = (exp.Where, exp.Having)
    for i, clause in enumerate(list(tree.find_all(*clauses))):
        parts = f.conjuncts(clause.this)
        for j in range(len(parts)):
            copy = tree.copy()
            place = list(copy.find_all(*clauses))[i]
            rest = [part for k, part in enumerate(f.conjuncts(place.this)) if k != j]
            if rest:
                place.set("this", f.conjunction(rest))
            else:
                place.pop()
            yield copy


def _move_bound(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    def change(node):
        other = _BOUNDS[type(node)]
        node.replace(other(this=node.this.copy(), expression=node.expression.copy()))

    yield from _at_each(tree, tuple(_BOUNDS), change)


def _change_join(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    def change(join):
        if join.args.get("side") == "LEFT":
            join.set("side", None)
        elif f.is_inner(join) and join.args.get("on"):
            join.set("kind", None)
            join.set("side", "LEFT")
        else:
            return False

    yield from _at_each(tree, (exp.Join,), change)


def _drop_distinct(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    def change(node):
        if isinstance(node.parent, exp.Select):
            node.parent.set("distinct", None)
        elif len(node.expressions) == 1:
            node.replace(node.expressions[0].copy())
        else:
            return False

    yield from _at_each(tree, (exp.Distinct,), change)


def _change_aggregate(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    def change(node):
        if not isinstance(node, exp.Count):
            node.replace(_AGGREGATES[type(node)](this=node.this.copy()))
        elif isinstance(node.this, exp.Column):
            node.set("this", exp.Distinct(expressions=[node.this.copy()]))
        elif isinstance(node.this, exp.Distinct):
            node.set("this", exp.Star())
        else:
            return False

    yield from _at_each(tree, (*_AGGREGATES, exp.Count), change)


def _swap_column(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    for i, column in enumerate(list(tree.find_all(exp.Column))):
        select = column.find_ancestor(exp.Select)
        if not isinstance(column.this, exp.Identifier) or select is None:
            continue
        at = f.resolve(select, column, facts)
        if at is None:
            continue
        names = facts.columns[at[1]]
        other = names[(names.index(column.name.lower()) + 1) % len(names)]
        copy = tree.copy()
        place = list(copy.find_all(exp.Column))[i]
        place.set("this", exp.to_identifier(other, quoted=True))
        place.set("table", exp.to_identifier(at[0]))
        yield copy


def _off_by_one(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    def change(node):
        if node.is_string or not node.name.isdigit():
            return False
        if isinstance(node.parent, exp.Group | exp.Ordered):  # a column's number
            return False
        node.replace(exp.Literal.number(int(node.name) + 1))

    yield from _at_each(tree, (exp.Literal,), change)


def _drop_group_key(tree: exp.Expression, facts: Facts) -> Iterator[exp.Expression]:
    for i, group in enumerate(list(tree.find_all(exp.Group))):
        for j in range(len(group.expressions)):
            copy = tree.copy()
            place = list(copy.find_all(exp.Group))[i]
            rest = [key for k, key in enumerate(place.expressions) if k != j]
            if rest:
                place.set("expressions", rest)
            elif place.parent.args.get("having"):
                continue
            else:
                place.pop()
            yield copy


_KINDS = {
    "drop-predicate": _drop_predicate,
    "move-bound": _move_bound,
    "change-join": _change_join,
    "drop-distinct": _drop_distinct,
    "change-aggregate": _change_aggregate,
    "swap-column": _swap_column,
    "off-by-one": _off_by_one,
    "drop-group-key": _drop_group_key,
}
