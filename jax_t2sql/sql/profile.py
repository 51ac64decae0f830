"""The structure of a query by its words: what it reads, joins, computes and nests.

By tokens and not by a parser, since half of what models write is wrong and still has a structure,
and since thousands of queries a step are to be looked at. An estimate for statistics, no proof.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant, split_statement

AGGREGATES = frozenset({"avg", "count", "group_concat", "max", "min", "string_agg", "sum", "total"})
_SET_OPERATIONS = ("UNION", "INTERSECT", "EXCEPT")
# Words that may stand before a parenthesis without calling a function.
_NOT_CALLED = frozenset(
    "all and as between by case distinct else end except exists filter from group having in"
    " intersect is join like limit materialized not offset on or order over partition select then"
    " union using values when where with".split()
)
_NAMES = ("name", "double", "quoted")
_ENDS_OF_FROM = (
    "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "SELECT", *_SET_OPERATIONS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """What a query is made of; names are folded to one case.

    Attributes:
      tables: read, common table expressions apart.
      joins: JOINs, and commas between tables.
      aggregates, functions: called; a function is called that is no aggregate.
      set_operations: UNION, INTERSECT and EXCEPT, in order.
      subqueries: nested SELECTs; bodies of common table expressions, `ctes`, are not counted.
      windows: OVER clauses.
      distinct: whether the word occurs, be it in SELECT or in an aggregate.
    """

    tables: frozenset[str] = frozenset()
    joins: int = 0
    aggregates: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    set_operations: tuple[str, ...] = ()
    subqueries: int = 0
    ctes: int = 0
    windows: int = 0
    distinct: bool = False


FACETS = (
    "tables", "joins", "aggregates", "functions", "set_operations", "subqueries", "ctes", "windows",
    "distinct",
)  # fmt: skip


@dataclass
class _Level:
    """What is open between two parentheses."""

    in_from: bool = False
    table_due: bool = False
    called: bool = False  # an argument list: its commas part no tables


@lru_cache(maxsize=20_000)
def profile(sql: str) -> Profile:
    """The profile of the first statement. Never raises.

    >>> found = profile("SELECT count(*) FROM a JOIN b USING (id) WHERE x IN (SELECT y FROM c)")
    >>> sorted(found.tables), found.joins, sorted(found.aggregates), found.subqueries
    (['a', 'b', 'c'], 1, ['count'], 1)
    """
    tokens = significant(split_statement(sql)[0])
    ctes = set(_cte_names(tokens))
    bodies = sum(_opens_cte(tokens, i) for i in range(len(tokens)))
    tables: set[str] = set()
    called: set[str] = set()
    joins = subqueries = windows = 0
    operations: list[str] = []
    levels = [_Level()]
    for i, token in enumerate(tokens):
        level = levels[-1]
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        if token.text == "(":
            is_call = i > 0 and _is_called(tokens[i - 1])
            # `FROM (a JOIN b)` goes on with tables inside; `FROM (SELECT` starts anew.
            inner = _Level(called=is_call, in_from=level.table_due, table_due=level.table_due)
            level.table_due = False
            levels.append(inner)
            subqueries += following is not None and following.is_word("SELECT", "WITH")
        elif token.text == ")":
            levels = levels[:-1] or [_Level()]
        elif token.is_word("FROM"):
            # `extract(year FROM x)`, `trim(a FROM b)` and IS DISTINCT FROM read no table.
            compares = i > 0 and tokens[i - 1].is_word("DISTINCT")
            level.in_from = level.table_due = not compares and not level.called
        elif token.is_word("JOIN"):
            joins += 1
            level.in_from = level.table_due = True
        elif token.text == "," and level.in_from:
            joins += 1
            level.table_due = True
        elif token.is_word(*_ENDS_OF_FROM):
            level.in_from = level.table_due = False
            level.called = level.called and not token.is_word("SELECT")
            if token.is_word(*_SET_OPERATIONS):
                operations.append(token.text.lower())
        elif token.is_word("OVER"):
            windows += 1
        elif token.is_word("ON", "USING"):
            level.table_due = False
        elif level.table_due and token.kind in _NAMES:
            level.table_due = following is not None and following.text == "."  # as in main.t
            if not level.table_due:
                tables.add(fold(token.value))
        if following is not None and following.text == "(" and _is_called(token):
            called.add(token.text.lower())
    return Profile(
        tables=frozenset(tables - ctes),
        joins=joins,
        aggregates=frozenset(called & AGGREGATES),
        functions=frozenset(called - AGGREGATES - ctes - tables),
        set_operations=tuple(operations),
        subqueries=max(0, subqueries - bodies),
        ctes=bodies,
        windows=windows,
        distinct=any(_removes_doubles(tokens, i) for i in range(len(tokens))),
    )


def differences(gold: str, pred: str) -> frozenset[str]:
    """Facets of `FACETS` in which two queries' profiles differ.

    >>> sorted(differences("SELECT DISTINCT a FROM t", "SELECT a FROM t, u"))
    ['distinct', 'joins', 'tables']
    """
    one, other = profile(gold), profile(pred)
    return frozenset(name for name in FACETS if getattr(one, name) != getattr(other, name))


def _is_called(token: Token) -> bool:
    return token.kind == "name" and token.text.lower() not in _NOT_CALLED


def _removes_doubles(tokens: list[Token], i: int) -> bool:
    """Whether this is the DISTINCT of a SELECT or of an aggregate, not of IS DISTINCT FROM."""
    following = tokens[i + 1] if i + 1 < len(tokens) else None
    compares = following is not None and following.is_word("FROM")
    return tokens[i].is_word("DISTINCT") and not compares


def _opens_cte(tokens: list[Token], i: int) -> bool:
    """Whether a common table expression's body opens here: AS, perhaps MATERIALIZED, then (."""
    if tokens[i].text != "(" or i < 2:
        return False
    body = tokens[i + 1 : i + 2]
    if not body or not body[0].is_word("SELECT", "VALUES", "WITH"):
        return False
    before = i - 1
    while before > 0 and tokens[before].is_word("MATERIALIZED", "NOT"):
        before -= 1
    return tokens[before].is_word("AS")


def _cte_names(tokens: list[Token]) -> Iterator[str]:
    """Names given to common table expressions; lists of their columns are passed over."""
    for i in range(len(tokens)):
        if not _opens_cte(tokens, i):
            continue
        at = i - 1
        while at > 0 and not tokens[at].is_word("AS"):
            at -= 1
        at -= 1
        if at > 0 and tokens[at].text == ")":
            while at > 0 and tokens[at].text != "(":
                at -= 1
            at -= 1
        if at >= 0 and tokens[at].kind in _NAMES:
            yield fold(tokens[at].value)
