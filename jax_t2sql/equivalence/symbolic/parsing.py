"""From text to sqlglot's tree, with functions left as they are written.

sqlglot turns functions into its own (strftime into a time format, ifnull into coalesce), which is
good for translating between databases and bad for saying what SQLite does.
"""

import sqlglot
from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import SqlglotError

from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.sql.tokens import split_statement

_MAX_CHARS = 20_000


class _Verbatim(SQLite):
    class Parser(SQLite.Parser):
        FUNCTIONS = {}
        FUNCTION_PARSERS = {
            name: parse for name, parse in SQLite.Parser.FUNCTION_PARSERS.items() if name == "CAST"
        }
        NO_PAREN_FUNCTION_PARSERS = {
            name: parse
            for name, parse in SQLite.Parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name == "CASE"
        }


def parse(sql: str) -> exp.Expression:
    """The tree of the one statement in a text.

    Raises:
      Unsupported: sqlglot cannot read it.
    """
    statement, rest = split_statement(sql)
    if not statement or split_statement(rest)[0]:
        raise Unsupported("a text that is not one statement")
    if len(statement) > _MAX_CHARS:
        raise Unsupported(f"a statement of more than {_MAX_CHARS:,} characters")
    try:
        tree = sqlglot.parse_one(statement, dialect=_Verbatim)
    except (SqlglotError, RecursionError):
        raise Unsupported("a statement that sqlglot cannot read") from None
    return tree


def allow_only(node: exp.Expression, allowed: frozenset[str] | set[str], what: str) -> None:
    """Refuses a node with parts that nobody would look at."""
    for name, part in node.args.items():
        if part and name not in allowed:
            raise Unsupported(f"{what} with {name.rstrip('_').replace('_', ' ').upper()}")
