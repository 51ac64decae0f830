"""Is a query's answer independent of the data? Such an answer was written down, not looked up."""

import re
from collections.abc import Collection

from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant, split_statement

_AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "TOTAL", "GROUP_CONCAT", "STRING_AGG",
    "JSON_GROUP_ARRAY", "JSON_GROUP_OBJECT", "ROW_NUMBER", "RANK", "DENSE_RANK"})  # fmt: skip
_LITERAL_WORDS = ("NULL", "TRUE", "FALSE", "AND", "OR", "NOT", "IS", "IN", "LIKE", "BETWEEN",
    "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "DISTINCT", "ALL")  # fmt: skip
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "UNION", "INTERSECT",
    "EXCEPT")  # fmt: skip
# Most queries begin with the name of a column or with an aggregate, which settles it.
_MAYBE = re.compile(
    r"[\s(]*(?:with\b|values\b|select\s+(?:distinct\s+|all\s+)?"
    rf"(?:[-+(.'\"0-9]|(?!(?:{'|'.join(sorted(_AGGREGATES))})\s*\()\w+\s*\(|x'|null\b|case\b))",
    re.IGNORECASE,
)
_LONGEST = 20_000


def is_constant(sql: str, reads: Collection[str]) -> bool:
    """Whether a query gives what stands in its text, whatever is in the database.

    True where no stored table is read, and where the select list holds nothing but literals (how
    many rows come of it may still depend on the data). A sign, not a proof: a query that hides a
    literal in a common table passes.

    Args:
      sql: a query that has run.
      reads: `Outcome.reads`.

    >>> is_constant("SELECT 'Paris'", [])
    True
    >>> is_constant("SELECT 5, 'x' AS name FROM t LIMIT 1", [""])
    True
    >>> is_constant("SELECT count(*) FROM t", [""])
    False
    """
    if not reads:
        return True
    statement = split_statement(sql)[0]
    if len(statement) > _LONGEST or not _MAYBE.match(statement):
        return False
    lists = _select_lists(significant(statement))
    return bool(lists) and all(_is_literal(tokens, reads) for tokens in lists)


def _select_lists(tokens: list[Token]) -> list[list[Token]]:
    """What stands between SELECT and the next clause, for each SELECT outside all parentheses."""
    lists: list[list[Token]] = []
    depth, inside = 0, False
    for token in tokens:
        if token.kind == "operator":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.is_word("SELECT"):
            lists.append([])
            inside = True
        elif depth == 0 and token.is_word(*_CLAUSES):
            inside = False
        elif inside:
            lists[-1].append(token)
    return lists


def _is_literal(tokens: list[Token], reads: Collection[str]) -> bool:
    for i, token in enumerate(tokens):
        previous = tokens[i - 1] if i else None
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        if token.text == "*" and (previous is None or previous.text in ("(", ",", ".")):
            return False
        if token.kind == "parameter" or (token.kind == "operator" and token.text == "."):
            return False
        if token.kind not in ("name", "quoted", "double") or token.is_word("AS", *_LITERAL_WORDS):
            continue
        if _is_alias(previous):
            continue
        called = following is not None and following.text == "("
        if called and fold(token.value).upper() not in _AGGREGATES:
            continue
        if token.kind == "double" and not called and fold(token.value) not in reads:
            continue  # no column, so SQLite has read it as a text
        return False
    return True


def _is_alias(previous: Token | None) -> bool:
    """Whether a name here names the expression (or a CAST's type): `5 AS n`, `'x' n`."""
    if previous is None:
        return False
    if previous.is_word("AS") or previous.text == ")":
        return True
    return previous.kind in ("text", "number") or previous.is_word("NULL", "END", "TRUE", "FALSE")
