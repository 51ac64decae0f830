"""What a query is made of, as tags to score by."""

import functools

import sqlglot
from sqlglot import exp

# Tags and what each stands for, in the order of reports.
TAGS = {
    "single table": "one table and no subquery",
    "join": "two tables or more in one FROM",
    "outer join": "LEFT, RIGHT or FULL JOIN",
    "aggregate": "COUNT, SUM, AVG, MIN, MAX and the like",
    "group by": "GROUP BY",
    "having": "HAVING",
    "subquery": "a query inside a query, CTEs and set operations apart",
    "CTE": "WITH",
    "set operation": "UNION, INTERSECT or EXCEPT",
    "window": "a window function",
    "distinct": "DISTINCT, in the select list or an aggregate",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "arithmetic": "+ - * / on values",
    "case": "CASE or IIF",
    "null": "IS NULL, IS NOT NULL, COALESCE, IFNULL",
    "like": "LIKE or GLOB",
    "date": "a date or time function",
    "unparsed": "sqlglot cannot read it",
}
_DATES = ("STRFTIME", "DATE", "DATETIME", "JULIANDAY", "UNIXEPOCH", "TIME")


def parse(sql: str) -> exp.Expression | None:
    """The query's tree; None where sqlglot cannot read it, whatever the text."""
    try:
        found = sqlglot.parse(sql, read="sqlite")
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        return None
    queries = [tree for tree in found if tree is not None]
    return queries[0] if len(queries) == 1 and isinstance(queries[0], exp.Query) else None


@functools.lru_cache(maxsize=20_000)
def structure_tags(sql: str) -> tuple[str, ...]:
    """The tags of a query, in the order of `TAGS`. Never raises.

    >>> structure_tags("SELECT count(*) FROM a JOIN b ON a.id = b.a WHERE b.x LIKE 'y%'")
    ('join', 'aggregate', 'like')
    """
    tree = parse(sql)
    if tree is None:
        return ("unparsed",)
    has = functools.partial(_has, tree)
    joins = list(tree.find_all(exp.Join))
    nested = [s for s in tree.find_all(exp.Select) if s is not tree and not _is_branch(s)]
    found = {
        "join": bool(joins),
        "outer join": any(join.side in ("LEFT", "RIGHT", "FULL") for join in joins),
        "aggregate": any(_aggregates(node) for node in tree.find_all(exp.AggFunc)),
        "group by": has(exp.Group),
        "having": has(exp.Having),
        "subquery": bool(nested),
        "CTE": has(exp.With),
        "set operation": has(exp.SetOperation),
        "window": has(exp.Window),
        "distinct": has(exp.Distinct),
        "order": has(exp.Order),
        "limit": has(exp.Limit),
        "arithmetic": has(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod),
        "case": has(exp.Case, exp.If),
        "null": has(exp.Coalesce) or any(_tests_null(node) for node in tree.find_all(exp.Is)),
        "like": has(exp.Like, exp.ILike, exp.Glob),
        "date": any(_is_date(node) for node in tree.find_all(exp.Func)),
    }
    plain = not joins and not nested and not found["set operation"] and not found["CTE"]
    found["single table"] = plain and has(exp.From)
    return tuple(tag for tag in TAGS if found.get(tag))


def _has(tree: exp.Expression, *kinds: type[exp.Expression]) -> bool:
    return tree.find(*kinds) is not None


def _is_branch(select: exp.Select) -> bool:
    """Whether a SELECT is a side of a set operation, or the body of a CTE."""
    return isinstance(select.parent, exp.SetOperation | exp.CTE)


def _aggregates(node: exp.AggFunc) -> bool:
    """MIN and MAX of several values are functions of one row; over a window nothing is merged."""
    of_one_row = isinstance(node, exp.Min | exp.Max) and bool(node.expressions)
    return not of_one_row and not isinstance(node.parent, exp.Window)


def _tests_null(node: exp.Is) -> bool:
    return isinstance(node.expression, exp.Null)


def _is_date(node: exp.Func) -> bool:
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    temporal = (
        exp.CurrentDate | exp.CurrentTimestamp | exp.CurrentTime | exp.TimeToStr | exp.TsOrDsToDate
    )
    return name.upper() in _DATES or isinstance(node, temporal)
