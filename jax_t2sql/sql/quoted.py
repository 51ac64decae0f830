"""SQLite's double-quote rule, made visible.

`"name"` is a column where such a column is in scope and otherwise, without an error, the text
'name' (https://www.sqlite.org/quirks.html#dblquote). A misspelt column then compares as a constant,
and nothing tells the author.
"""

from collections.abc import Collection

from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant

# A name after any other word is an alias: `count(*) "n"`, `singer "s"`.
_BEFORE_EXPRESSION = (
    "SELECT", "DISTINCT", "ALL", "WHERE", "AND", "OR", "NOT", "ON", "BY", "HAVING", "CASE", "WHEN",
    "THEN", "ELSE", "IN", "LIKE", "GLOB", "REGEXP", "MATCH", "BETWEEN", "IS", "FROM", "ESCAPE",
    "LIMIT", "OFFSET", "VALUES", "FILTER",
)  # fmt: skip
_BEFORE_NAME = ("AS", "COLLATE", "WINDOW", "OVER", "WITH", "RECURSIVE", "JOIN", "INDEXED")


def texts_in_double_quotes(sql: str, known: Collection[str]) -> list[str]:
    """The double-quoted names of a query that SQLite has read as texts, in order, once each.

    Args:
      sql: a statement that SQLite has compiled.
      known: folded names (`schema.fold`) of the tables it reads and of all their columns.
    """
    tokens = significant(sql)
    defined = {fold(token.value) for token in tokens if token.kind in ("name", "quoted")}
    defined |= _cte_columns(tokens)
    used: dict[str, None] = {}
    for i, token in enumerate(tokens):
        if token.kind != "double":
            continue
        previous = tokens[i - 1] if i else None
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        if _is_alias(previous):
            defined.add(fold(token.value))
        elif not _is_name(previous, following):
            used[token.value] = None
    return [name for name in used if fold(name) not in defined and fold(name) not in known]


def _cte_columns(tokens: list[Token]) -> set[str]:
    """Folded double-quoted names in a list that `AS (` follows: WITH c("k") AS (SELECT 1)."""
    names: set[str] = set()
    opened = 0
    for i, token in enumerate(tokens):
        if token.text == "(":
            opened = i
        elif token.text == ")" and _body_follows(tokens[i + 1 : i + 3]):
            names.update(fold(t.value) for t in tokens[opened:i] if t.kind == "double")
    return names


def _body_follows(tokens: list[Token]) -> bool:
    if len(tokens) < 2 or not tokens[0].is_word("AS"):
        return False
    return tokens[1].text == "(" or tokens[1].is_word("NOT", "MATERIALIZED")


def _is_alias(previous: Token | None) -> bool:
    if previous is None or previous.is_word(*_BEFORE_EXPRESSION):
        return False
    return previous.kind not in ("operator", "end") or previous.text == ")"


def _is_name(previous: Token | None, following: Token | None) -> bool:
    """Whether only a name can stand here: it is qualified, called, or a qualifier itself."""
    if previous is not None and previous.text == ".":
        return True
    return following is not None and following.text in (".", "(")


def warning(name: str) -> str:
    """What to tell the author of a query about one such name."""
    text = name.replace("'", "''")
    return (
        f'no column "{name}" is in scope, so SQLite reads "{name}" as the text \'{text}\';'
        " correct the name, or write texts between single quotes"
    )
