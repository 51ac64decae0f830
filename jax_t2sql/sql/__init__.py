"""The ground floor of the CPU side: databases, bounded read-only execution, result comparison.

Needs sqlite-utils (for `read_schema` alone) and nothing else outside the standard library.
"""

from jax_t2sql.sql.compare import distinct_rows, results_equal
from jax_t2sql.sql.constant import is_constant
from jax_t2sql.sql.database import resolve_database
from jax_t2sql.sql.gold import GoldStore, is_empty
from jax_t2sql.sql.gold_files import GoldFiles
from jax_t2sql.sql.modes import Mode, parse_mode
from jax_t2sql.sql.outcome import Limits, Outcome
from jax_t2sql.sql.proposal import asks_for_order, propose_mode
from jax_t2sql.sql.sandbox import Sandbox, execute
from jax_t2sql.sql.schema import (
    Column,
    ForeignKey,
    Schema,
    Table,
    quote_identifier,
    read_schema,
    sample_values,
)
from jax_t2sql.sql.shape import fingerprint, is_ordered, skeleton
from jax_t2sql.sql.tokens import split_statement, tokenize
from jax_t2sql.sql.undecided import Undecided

__all__ = [
    "Column",
    "ForeignKey",
    "GoldFiles",
    "GoldStore",
    "Limits",
    "Mode",
    "Outcome",
    "Sandbox",
    "Schema",
    "Table",
    "Undecided",
    "asks_for_order",
    "distinct_rows",
    "execute",
    "fingerprint",
    "is_constant",
    "is_empty",
    "is_ordered",
    "parse_mode",
    "propose_mode",
    "quote_identifier",
    "read_schema",
    "resolve_database",
    "results_equal",
    "sample_values",
    "skeleton",
    "split_statement",
    "tokenize",
]
