"""Does SQLite read a query as we do?

The resolved query is printed with every name qualified and every operation in parentheses. SQLite
compiles that and the text as given; only if both give the same program is the reading taken. So
precedence, name resolution, joins' columns and aliases are never a matter of belief.
"""

import functools
import sqlite3
import threading
from dataclasses import replace

from jax_t2sql.equivalence.catalog import Catalog
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.ir import Query, Source
from jax_t2sql.equivalence.symbolic.printing import print_query
from jax_t2sql.equivalence.symbolic.walking import rebuilt
from jax_t2sql.sql.tokens import split_statement

Program = tuple[tuple, ...]


def confirm(sql: str, query: Query, catalog: Catalog) -> None:
    """Refuses a reading that SQLite does not share.

    Raises:
      Unsupported: the two programs differ, or SQLite does not compile the text.
    """
    try:
        given = program(split_statement(sql)[0], catalog)
    except sqlite3.Error as error:
        raise Unsupported(f"a query that SQLite does not compile: {error}") from None
    # sqlglot gives a comma and CROSS JOIN alike, which differ in what SQLite may reorder.
    for ours in (plainly_joined(query), query):
        try:
            if given == program(print_query(ours), catalog):
                return
        except sqlite3.Error:
            continue
    raise Unsupported("a query whose reading SQLite does not confirm")


def plainly_joined(query: Query) -> Query:
    """The query with CROSS JOIN written as JOIN."""
    return rebuilt(
        query,
        lambda node: (
            replace(node, join="INNER")
            if isinstance(node, Source) and node.join == "CROSS"
            else node
        ),
    )


def program(sql: str, catalog: Catalog) -> Program:
    """The program that SQLite compiles a query to, on an empty database of the schema.

    Raises:
      sqlite3.Error: it does not compile.
    """
    rows = _databases.connection(catalog.ddl).execute(f"EXPLAIN {sql}")
    return tuple(row[1:7] for row in rows if row[1] != "Explain")


class _Databases(threading.local):
    """Empty databases of the schemas seen last, for each thread its own."""

    def __init__(self) -> None:
        self.connection = functools.lru_cache(maxsize=64)(_open)


def _open(ddl: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(ddl)
    return connection


_databases = _Databases()
