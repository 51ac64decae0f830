"""From SQLite's dialect, which models explore in, to Snowflake's."""

from collections.abc import Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from jax_t2sql.sql.tokens import significant, split_statement


def exploratory_forms(sql: str, names: Mapping[str, str]) -> list[str]:
    """What to try, in turn, for a query that looks at the data.

    First the query translated, then the same with the database's own spelling of names in quotes
    (Snowflake reads bare names as upper case), then as it was written: it may be Snowflake's
    dialect already.

    Args:
      names: the database's spelling by lower-case name; where it has none, names are quoted as
        they are written.

    >>> exploratory_forms("SELECT IFNULL(Fare, 0) FROM flights", {"fare": "fare"})[:2]
    ['SELECT COALESCE(Fare, 0) FROM flights', 'SELECT COALESCE("fare", 0) FROM flights']
    """
    forms = []
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
        forms.append(tree.sql(dialect="snowflake"))
        forms.append(_quoted(tree, names).sql(dialect="snowflake"))
    except (SqlglotError, ValueError, RecursionError):
        pass  # not SQLite's
    return list(dict.fromkeys([*forms, sql]))


def _quoted(tree: exp.Expression, names: Mapping[str, str]) -> exp.Expression:
    tree = tree.copy()
    for identifier in list(tree.find_all(exp.Identifier)):
        written = identifier.name
        spelling = names.get(written.lower()) if names else written
        # Aliases and names in capitals need no quotes.
        if spelling is not None and (spelling != spelling.upper() or not names):
            identifier.replace(exp.to_identifier(spelling, quoted=True))
    return tree


def refusal(sql: str) -> str | None:
    """Why a query may not run: only one statement that reads may. None if it may."""
    statement, rest = split_statement(sql)
    if not statement:
        return "there is no query"
    if rest:
        return "more than one statement"
    try:
        trees = sqlglot.parse(statement, read="snowflake")
    except (SqlglotError, ValueError, RecursionError):
        # Snowflake may know what the parser does not; no statement that writes begins so.
        words = significant(statement)
        return None if words[0].is_word("SELECT", "WITH") else "not a SELECT"
    tree = trees[0] if trees else None
    while isinstance(tree, exp.Paren | exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Query):
        return "not a SELECT"
    writes = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Into)
    return "it writes" if tree.find(*writes) else None
