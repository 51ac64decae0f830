"""What running one query gave, and the bounds it ran under."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Status = Literal["ok", "timeout", "too_large", "error", "refused", "no_query"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one query.

    Attributes:
      seconds: wall time, preparing and fetching included.
      max_rows: rows; one more and the result is too large.
      max_bytes: size of the whole result, a cell counting 8 plus the length of its text or blob;
        also (from a floor of a million) of any single text or blob that SQLite builds on the way.
    """

    seconds: float = 30.0
    max_rows: int = 100_000
    max_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name in ("seconds", "max_rows", "max_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Limits.{name} is {getattr(self, name)!r}; it must be above 0")

    def times(self, factor: int) -> "Limits":
        """Bounds so many times as wide."""
        return Limits(
            seconds=self.seconds * factor,
            max_rows=self.max_rows * factor,
            max_bytes=self.max_bytes * factor,
        )

    def with_room_for(self, gold: "Outcome") -> "Limits":
        """These bounds, or wider ones that hold a result twice the size of the gold's.

        A gold query may run under wider bounds than predictions; without this its own answer could
        then be too large to be right.
        """
        rows, size = 2 * len(gold.rows), 2 * gold.size
        if rows <= self.max_rows and size <= self.max_bytes:
            return self
        return replace(self, max_rows=max(rows, self.max_rows), max_bytes=max(size, self.max_bytes))


@dataclass(frozen=True)
class Outcome:
    """The result of one query.

    Attributes:
      status: "ok"; "timeout", "too_large" (a bound of `Limits`); "error" (SQLite's); "refused" (not
        one reading statement); "no_query" (nothing but blanks and comments).
      columns: column names.
      rows: tuples of None, int, float, str and bytes; empty unless "ok".
      message: what to tell the query's author unless "ok"; SQLite's own words where it spoke.
      warnings: what an author would want to know although the query ran.
      seconds: wall time.
      code: SQLite's name of the error ("SQLITE_ERROR", "SQLITE_IOERR_READ"), "" where it gave none.
      size: bytes of the result as `Limits.max_bytes` counts them.
      reads: lower-case names of the columns of stored tables that the query reads, "" for a table
        of which it reads none; nothing at all where the answer does not depend on the data.
    """

    status: Status
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple] = field(default=(), repr=False)
    message: str = ""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    code: str = ""
    size: int = 0
    reads: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return self.status == "ok"
