"""docs/equivalence.md: each row of its table of SQLite's semantics is true."""

import re
from pathlib import Path

import pytest
import replayer

from jax_t2sql.equivalence import Budget, check

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "equivalence.md").read_text()
DDL = re.search(r"```sql\n(.*?)```", TEXT, re.DOTALL)[1]
HEADING = "| in SQLite | first query |"


def table() -> list[tuple[str, ...]]:
    """(trait, first query, second query, grading, verdict) of each row."""
    lines = TEXT[TEXT.index(HEADING) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        trait, *queries = (cell.replace("\\|", "|") for cell in cells)
        rows.append((trait, queries[0].strip("`"), queries[1].strip("`"), *queries[2:]))
    return rows


ROWS = table()


def test_the_table_is_read():
    assert len(ROWS) > 40
    assert {row[4] for row in ROWS} == {"refuted", "equivalent", "unknown"}
    assert {row[3] for row in ROWS} == {"set", "multiset", "list"}


@pytest.mark.parametrize(("first", "second", "grading", "expected"), [r[1:] for r in ROWS],
                         ids=[row[0] for row in ROWS])  # fmt: skip
def test_row(first, second, grading, expected):
    # Only what stays open uses its time up; the others have plenty, however busy the machine is.
    seconds = 0.4 if expected == "unknown" else 5
    verdict = check(first, second, DDL, grading=grading, budget=Budget(seconds=seconds, bound=2))
    assert verdict.kind == expected, verdict.reason
    if expected == "refuted":
        assert replayer.replay(verdict.database, first, second, grading=grading).holds
