"""What a query uses, and what one set of queries uses that another lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

_FUNCTIONS = {
    exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.Min: "MIN", exp.Max: "MAX",
    exp.Case: "CASE", exp.Cast: "CAST", exp.Like: "LIKE", exp.Between: "BETWEEN", exp.In: "IN",
    exp.Distinct: "DISTINCT", exp.Group: "GROUP BY", exp.Having: "HAVING", exp.Order: "ORDER BY",
    exp.Limit: "LIMIT", exp.Offset: "OFFSET", exp.Subquery: "subquery", exp.Union: "UNION",
    exp.Intersect: "INTERSECT", exp.Except: "EXCEPT", exp.Div: "division", exp.Window: "window",
    exp.With: "WITH", exp.Exists: "EXISTS", exp.Or: "OR", exp.Not: "NOT", exp.Null: "NULL",
    exp.Sub: "subtraction", exp.Substring: "SUBSTR", exp.Round: "ROUND", exp.If: "IIF",
}  # fmt: skip


@dataclass(frozen=True)
class Features:
    """What one query uses.

    Attributes:
      names: functions, clauses and shapes.
      tables: in small letters; joins: pairs of tables joined, sorted.
      columns: in small letters, without their tables.
      parsed: false where the parser gave up, and nothing is known.
    """

    names: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    joins: frozenset[tuple[str, str]] = frozenset()
    columns: frozenset[str] = frozenset()
    parsed: bool = True


def read_features(sql: str) -> Features:
    """Features of a query; never raises."""
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return Features(parsed=False)
    names = {name for kind, name in _FUNCTIONS.items() if tree.find(kind)}
    inner = list(tree.find_all(exp.Select))
    if len(inner) > 1:
        names.add("nested SELECT")
    for call in tree.find_all(exp.Anonymous):
        names.add(str(call.name).upper())
    for call in tree.find_all(exp.Func):
        text = call.sql(dialect="sqlite").partition("(")[0].upper()
        if text in ("STRFTIME", "JULIANDAY", "DATE", "ABS", "LENGTH", "UPPER", "LOWER", "COALESCE"):
            names.add(text)
    if "division" in names and any(
        isinstance(n, exp.Literal) and n.name in ("100", "100.0") for n in tree.walk()
    ):
        names.add("percentage")
    if "ORDER BY" in names and "LIMIT" in names:
        names.add("ranking")
    joins = list(tree.find_all(exp.Join))
    names.add(f"{min(len(joins), 4)} joins")
    aliases = {
        table.alias_or_name.lower(): table.name.lower() for table in tree.find_all(exp.Table)
    }
    return Features(
        names=frozenset(names),
        tables=frozenset(aliases.values()),
        joins=frozenset(_pairs(tree, aliases)),
        # A lone name in double quotes is more often a text, which SQLite allows.
        columns=frozenset(
            column.name.lower()
            for column in tree.find_all(exp.Column)
            if column.table or not column.this.args.get("quoted")
        ),
    )


def _pairs(tree: exp.Expression, aliases: dict[str, str]) -> Iterable[tuple[str, str]]:
    for equal in tree.find_all(exp.EQ):
        sides = [equal.left, equal.right]
        if all(isinstance(side, exp.Column) and side.table for side in sides):
            first, second = sorted(aliases.get(s.table.lower(), s.table.lower()) for s in sides)
            yield first, second


@dataclass(frozen=True)
class Comparison:
    """Shares of features in two sets of queries, and what the first lacks."""

    rows: tuple[tuple[str, float, float], ...]
    missing: tuple[str, ...]


def compare_features(pool: Sequence[Features], test: Sequence[Features]) -> Comparison:
    """Compares a pool with a test set.

    Returns: shares by feature, and features, joins, tables and columns that occur in the test set
      alone, with how many of its queries need them.
    """
    pools, tests = _shares(pool), _shares(test)
    names = sorted(set(pools) | set(tests), key=lambda n: (-tests.get(n, 0.0), n))
    rows = tuple((n, pools.get(n, 0.0), tests.get(n, 0.0)) for n in names)
    missing = []
    for kind in ("names", "joins", "tables", "columns"):
        have = set().union(*(getattr(f, kind) for f in pool)) if pool else set()
        wanted = Counter(item for f in test for item in getattr(f, kind) if item not in have)
        for item, count in sorted(wanted.items(), key=lambda pair: (-pair[1], str(pair[0]))):
            told = " with ".join(item) if isinstance(item, tuple) else item
            word = {"names": "", "joins": "join ", "tables": "table ", "columns": "column "}[kind]
            missing.append(f"{word}{told} ({count})")
    return Comparison(rows, tuple(missing))


def _shares(features: Sequence[Features]) -> dict[str, float]:
    counts = Counter(name for f in features for name in f.names)
    return {name: count / len(features) for name, count in counts.items()} if features else {}
