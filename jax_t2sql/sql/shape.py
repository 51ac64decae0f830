"""The shape of a query: is it ordered, and what is left of it without its literals."""

import hashlib

from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant, split_statement

# After these a minus is a sign, and what stands between double quotes can be a text.
_COMPARISONS = ("=", "==", "<>", "!=", "<", ">", "<=", ">=")
_COMPARING_WORDS = ("LIKE", "GLOB", "REGEXP", "MATCH", "BETWEEN", "IS", "NOT", "ESCAPE")
_OPENING_WORDS = (
    "SELECT", "DISTINCT", "ALL", "WHERE", "AND", "OR", "ON", "BY", "HAVING", "WHEN", "THEN", "ELSE",
    "CASE", "LIMIT", "OFFSET", "VALUES", "IN",
)  # fmt: skip
_SYNONYMS = {"<>": "!=", "==": "="}
_OPTIONAL = ("AS", "INNER", "OUTER", "ASC")


def is_ordered(sql: str) -> bool:
    """Whether the rows of a query come in a stated order: ORDER BY outside all parentheses.

    In SQLite's grammar subqueries, CTE bodies, windows and ordered aggregates all stand between
    parentheses, so nesting alone decides. Never raises.

    >>> is_ordered("SELECT a FROM t ORDER BY a LIMIT 3")
    True
    >>> is_ordered("SELECT max(a) FROM (SELECT a FROM t ORDER BY a)")
    False
    """
    depth = 0
    previous = None
    for token in significant(split_statement(sql)[0]):
        if token.kind == "operator":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif depth == 0 and token.is_word("BY") and previous and previous.is_word("ORDER"):
            return True
        previous = token
    return False


def skeleton(sql: str) -> str:
    """A query with every literal replaced by `?`: equal for two fillings of one template.

    Comments, layout, case of names, quotes around names, signs of numbers, the lengths of IN lists
    and words without effect (AS, INNER, OUTER, ASC) are levelled too. Double quotes hold a text
    where one is compared with it (Spider writes so), else a name. Never raises.

    >>> skeleton("SELECT Name FROM t WHERE a = -3 AND b IN ('x', 'y') -- why")
    'select name from t where a = ? and b in ( ? )'
    """
    tokens = significant(split_statement(sql)[0])
    words: list[str] = []
    lists: list[bool] = []  # for each open parenthesis: is it a list of values after IN?
    for i, token in enumerate(tokens):
        previous = tokens[i - 1] if i else None
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        if token.text == "(":
            lists.append(previous is not None and previous.is_word("IN"))
        elif token.text == ")" and lists:
            lists.pop()
        elif token.is_word("SELECT") and lists:
            lists[-1] = False
        in_list = bool(lists) and lists[-1]
        if token.is_word(*_OPTIONAL) or _is_sign(token, previous, following):
            continue
        if _is_literal(token, previous, following, in_list=in_list):
            if in_list and words[-2:] == ["?", ","]:
                words.pop()
            else:
                words.append("?")
        elif token.kind in ("double", "quoted", "name"):
            words.append(fold(token.value))
        else:
            words.append(_SYNONYMS.get(token.text, token.text))
    return " ".join(words)


def fingerprint(sql: str) -> str:
    """16 hexadecimal digits that stand for the skeleton: to keep templates apart between splits."""
    digest = hashlib.sha256(skeleton(sql).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _is_literal(
    token: Token, previous: Token | None, following: Token | None, *, in_list: bool
) -> bool:
    if token.kind in ("text", "number", "parameter"):
        return True
    if token.kind != "double" or previous is None:
        return False
    if following is not None and following.text == ".":
        return False
    return in_list or previous.is_word(*_COMPARING_WORDS) or previous.text in _COMPARISONS


def _is_sign(token: Token, previous: Token | None, following: Token | None) -> bool:
    """Whether this is the minus or plus of a literal number."""
    if token.text not in ("-", "+") or following is None or following.kind != "number":
        return False
    if previous is None:
        return True
    if previous.kind == "operator":
        return previous.text != ")"
    return previous.is_word(*_COMPARING_WORDS, *_OPENING_WORDS)
