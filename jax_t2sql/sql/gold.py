"""Results of gold queries, kept so that the rollouts of a group do not each run the gold again."""

import os
from collections import OrderedDict
from collections.abc import Callable

from jax_t2sql.sql.database import file_identity
from jax_t2sql.sql.gold_files import GoldFiles
from jax_t2sql.sql.outcome import Outcome
from jax_t2sql.sql.varying import is_varying

# What the same file and query would give again. A timeout may be the machine's fault, and so may
# errors that SQLite gives other names to: of reading, of memory.
_REPEATABLE = ("ok", "error", "refused", "too_large", "no_query")
_REPEATABLE_CODES = ("", "SQLITE_ERROR", "SQLITE_AUTH", "SQLITE_TOOBIG")

_CELL_BYTES = 100  # what a cell takes in memory, roughly


class GoldStore:
    """A bounded memory of outcomes, keyed by the database file and the query.

    A file that is rewritten or replaced (`database.file_identity`) is another database.
    """

    def __init__(self, *, max_cells: int = 2_000_000, files: GoldFiles | None = None) -> None:
        """Keeps the most recently used outcomes.

        Args:
          max_cells: at most so many cells in all; long texts and blobs count as several.
          files: a folder behind the memory: results are sought there before a query is run.
        """
        self._files = files
        self._outcomes: OrderedDict[tuple, Outcome] = OrderedDict()
        self._cells = 0
        self._max_cells = max_cells

    def get(self, path: str | os.PathLike, sql: str, run: Callable[[], Outcome]) -> Outcome:
        """The outcome of a gold query: the one kept, or what `run()` gives.

        A query of today's date, or of chance, is run each time: an answer of the past would call
        right predictions wrong.

        Raises:
          UserError: the file is missing; and whatever `run` raises.
        """
        key = (file_identity(path), sql)
        if key in self._outcomes:
            self._outcomes.move_to_end(key)
            return self._outcomes[key]
        if is_varying(sql):
            return run()
        outcome = self._files.read(path, sql) if self._files else None
        if outcome is None:
            outcome = run()
            if self._files and outcome.ok:
                self._files.write(path, sql, outcome)
        repeatable = outcome.status in _REPEATABLE and outcome.code in _REPEATABLE_CODES
        if repeatable and _cells(outcome) <= self._max_cells:
            self._outcomes[key] = outcome
            self._cells += _cells(outcome)
            while self._cells > self._max_cells:
                self._cells -= _cells(self._outcomes.popitem(last=False)[1])
        return outcome

    def __len__(self) -> int:
        return len(self._outcomes)


def _cells(outcome: Outcome) -> int:
    return 1 + max(len(outcome.rows) * len(outcome.columns), outcome.size // _CELL_BYTES)


def is_empty(outcome: Outcome) -> bool:
    """Whether a result says nothing: no rows, or nothing but NULL in them."""
    return all(cell is None for row in outcome.rows for cell in row)
