"""What rewriting needs to know of a query and its schema; small helpers over sqlglot trees."""

import sqlite3
from dataclasses import dataclass

from sqlglot import exp

_AGGREGATES = (exp.AggFunc, exp.GroupConcat)


@dataclass(frozen=True)
class Facts:
    """A schema as far as rewriting looks at it; all names in lower case.

    Attributes:
      columns: of each table.
      not_null: (table, column) that never hold NULL.
      collated: whether any column has a collation of its own; then sides of a comparison matter.
    """

    columns: dict[str, tuple[str, ...]]
    not_null: frozenset[tuple[str, str]]
    collated: bool


def read_facts(ddl: str) -> Facts:
    """The facts of the schema that a script creates."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(ddl)
    columns, not_null = {}, set()
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        quoted = '"' + table.replace('"', '""') + '"'
        info = connection.execute(f"PRAGMA table_info({quoted})").fetchall()
        columns[table.lower()] = tuple(row[1].lower() for row in info)
        keys = [row for row in info if row[5]]
        for row in info:
            is_rowid = len(keys) == 1 and row[5] and row[2].upper() == "INTEGER"
            if row[3] or is_rowid:
                not_null.add((table.lower(), row[1].lower()))
    connection.close()
    return Facts(columns, frozenset(not_null), "collate" in ddl.lower())


def sources(select: exp.Select) -> list[exp.Expression]:
    """What stands in FROM and its joins."""
    from_ = select.args.get("from_")
    joins = select.args.get("joins") or []
    return ([from_.this] if from_ else []) + [join.this for join in joins]


def name_of(source: exp.Expression) -> str:
    """What columns of a source are qualified with, in lower case."""
    return source.alias_or_name.lower()


def is_inner(join: exp.Join) -> bool:
    """Whether a join is an inner one with ON, or a cross join."""
    return (
        not join.args.get("side")
        and (join.args.get("kind") or "").upper() in ("", "INNER", "CROSS")
        and not join.args.get("using")
        and not join.args.get("method")
    )


def all_inner(select: exp.Select) -> bool:
    """Whether the sources are tables and derived tables under inner joins alone."""
    return all(map(is_inner, select.args.get("joins") or [])) and all(
        isinstance(source, exp.Table | exp.Subquery) and not source.args.get("joins")
        for source in sources(select)
    )


def has_star(select: exp.Select) -> bool:
    """Whether the select list has an unqualified star."""
    return any(isinstance(item, exp.Star) for item in select.expressions)


def own_nodes(select: exp.Expression):
    """The nodes of a query that are not inside a subquery of it."""
    for node in select.walk(prune=lambda n: n is not select and isinstance(n, exp.Query)):
        if node is select or not isinstance(node, exp.Query):
            yield node


def aggregates(select: exp.Select) -> bool:
    """Whether the query groups, aggregates or uses windows."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(isinstance(n, (*_AGGREGATES, exp.Window)) for n in own_nodes(select))


def is_plain(select: exp.Expression) -> bool:
    """Whether it is a SELECT of FROM and WHERE (and DISTINCT) alone."""
    if not isinstance(select, exp.Select) or aggregates(select):
        return False
    return not any(select.args.get(part) for part in ("limit", "offset", "order", "with_"))


def conjuncts(condition: exp.Expression | None) -> list[exp.Expression]:
    """The parts of a condition that AND joins, parentheses around them kept."""
    if condition is None:
        return []
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        return conjuncts(inner.this) + conjuncts(inner.expression)
    return [condition]


def conjunction(parts: list[exp.Expression]) -> exp.Expression:
    """AND over parts, each in parentheses where it needs them."""
    return exp.and_(*[part.copy() for part in parts], copy=False)


def paren(node: exp.Expression) -> exp.Expression:
    """A copy of the node in parentheses, unless it is too simple for them."""
    simple = (exp.Column, exp.Literal, exp.Paren, exp.Subquery, exp.Func, exp.Exists)
    return node.copy() if isinstance(node, simple) else exp.Paren(this=node.copy())


def resolve(select: exp.Select, column: exp.Column, facts: Facts) -> tuple[str, str] | None:
    """(qualifier, table) of a column among the base tables of a query; None if it is unclear."""
    found = []
    for source in sources(select):
        if not isinstance(source, exp.Table):
            if column.table and name_of(source) == column.table.lower():
                return None
            if not column.table:
                return None
            continue
        table = source.name.lower()
        if table not in facts.columns:  # a common table expression, say
            if not column.table or name_of(source) == column.table.lower():
                return None
            continue
        if column.table and column.table.lower() != name_of(source):
            continue
        if column.name.lower() in facts.columns[table]:
            found.append((source.alias_or_name, table))
    return found[0] if len(found) == 1 else None


def is_uncorrelated(query: exp.Select, facts: Facts) -> bool:
    """Whether every column of a query over base tables is its own, as far as can be told."""
    if query.find(exp.Subquery, exp.Union, exp.Intersect, exp.Except, exp.Exists):
        return False
    return all(
        resolve(query, column, facts)
        for column in query.find_all(exp.Column)
        if not isinstance(column.this, exp.Star)
    )


def fresh(tree: exp.Expression, stem: str) -> str:
    """A name that occurs nowhere in the query."""
    used = {node.name.lower() for node in tree.find_all(exp.Identifier)}
    return next(f"{stem}_{i}" for i in range(1, 1_000) if f"{stem}_{i}" not in used)
