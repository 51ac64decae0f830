"""Is a generated question one of the test's? By the query's shape, and by its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from jax_t2sql.sql import Outcome, Sandbox, skeleton


def shape(sql: str) -> str:
    """A query without literals, aliases and the order of joins and conditions.

    Two fillings of one template have one shape, and so have two people's spellings of it as long as
    they join the same tables. What the parser cannot read is levelled by `skeleton`.

    >>> shape("SELECT a.x FROM t AS a JOIN u ON u.i = a.i WHERE a.y = 'p'")
    'select t.x from t, u where t.i = u.i and t.y = ?'
    >>> shape("SELECT T2.x FROM u AS T1 JOIN t AS T2 ON T2.i = T1.i WHERE T2.y = 'q'")
    'select t.x from t, u where t.i = u.i and t.y = ?'
    """
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
        return _level(tree.copy()) if isinstance(tree, exp.Select) else skeleton(sql)
    except (sqlglot.errors.SqlglotError, RecursionError, AttributeError):
        return skeleton(sql)


def _level(tree: exp.Select) -> str:
    tables = list(tree.find_all(exp.Table))
    names = [table.name.lower() for table in tables]
    seen: Counter[str] = Counter()
    aliases = {}
    for table, name in zip(tables, names, strict=True):
        seen[name] += 1
        aliases[table.alias_or_name.lower()] = name if seen[name] == 1 else f"{name}{seen[name]}"
    only = aliases[tables[0].alias_or_name.lower()] if len(tables) == 1 else ""
    for column in tree.find_all(exp.Column):
        owner = aliases.get(column.table.lower(), column.table.lower()) if column.table else only
        column.set("table", exp.to_identifier(owner) if owner else None)
        column.set("this", exp.to_identifier(column.name.lower()))
    for literal in list(tree.find_all(exp.Literal)):
        literal.replace(exp.Var(this="?"))
    conditions = [join.args["on"] for join in tree.args.get("joins") or [] if join.args.get("on")]
    if tree.args.get("where"):
        conditions.append(tree.args["where"].this)
    flat = sorted(_text(part) for c in conditions for part in _conjuncts(c))
    shown = ", ".join(_text(e.unalias()) for e in tree.expressions)
    distinct = "distinct " if tree.args.get("distinct") else ""
    parts = [f"select {distinct}{shown}", f"from {', '.join(sorted(names))}"]
    parts += [f"where {' and '.join(flat)}"] if flat else []
    for clause in ("group", "having", "order", "limit", "offset"):
        if tree.args.get(clause):
            parts.append(_text(tree.args[clause]))
    return " ".join(parts)


def _conjuncts(condition: exp.Expression) -> list[exp.Expression]:
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    return [condition.this] if isinstance(condition, exp.Paren) else [condition]


def _text(node: exp.Expression) -> str:
    if isinstance(node, exp.EQ):
        sides = sorted((_text(node.left), _text(node.right)), key=lambda s: (s == "?", s))
        return " = ".join(sides)
    return " ".join(node.sql(dialect="sqlite").lower().split())


def _result_key(outcome: Outcome) -> tuple | None:
    """The answer as a set; None for one that says too little to tell queries apart by it."""
    rows = frozenset(map(repr, map(tuple, outcome.rows)))
    telling = len(outcome.rows) > 1 or any(
        isinstance(cell, str) or (isinstance(cell, float) and not cell.is_integer())
        for row in outcome.rows
        for cell in row
    )
    # A lone whole number is shared by chance; with the same columns read it is not.
    return (rows, frozenset()) if telling else (rows, outcome.reads)


@dataclass(frozen=True)
class LeakCheck:
    """Shapes and results of a test set's queries on one database."""

    shapes: frozenset[str]
    results: frozenset[tuple]
    questions: int

    @classmethod
    def of(cls, golds: Sequence[str], sandbox: Sandbox) -> LeakCheck:
        """Runs the golds; those that fail are held against the pool by shape alone."""
        results = set()
        for gold in golds:
            outcome = sandbox.execute(gold, warn=False)
            if outcome.ok and outcome.rows:
                results.add(_result_key(outcome))
        return cls(frozenset(map(shape, golds)), frozenset(results), len(golds))

    def fault(self, sql: str, outcome: Outcome) -> str | None:
        """How a query leaks the test set, or None."""
        if _result_key(outcome) in self.results:
            return "leak_result"
        return "leak_shape" if shape(sql) in self.shapes else None
