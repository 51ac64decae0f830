"""Known ways in which generated questions go wrong, each a mechanical check.

A check gets a draft, its outcome and the database, and says what is wrong or None. The first fault
counts. `CHECKS` is the whole list; the names are what the build's report tallies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from data_pipelines.onedb.columns import is_blank_mark
from data_pipelines.onedb.draft import Draft
from data_pipelines.onedb.live import Live
from jax_t2sql.sql import Outcome, is_constant, is_ordered, parse_mode, results_equal
from jax_t2sql.sql.ties import order_warnings

MOST_ROWS = 300
MOST_SECONDS = 5.0
Check = Callable[[Draft, Outcome, Live], str | None]

_AGGREGATE = re.compile(r"(?:COUNT\(\*\)|(?:SUM|AVG)\()")
_BODY = re.compile(r"\bFROM\b.*?(?=\s(?:GROUP BY|HAVING|ORDER BY|LIMIT)\b|$)")
_GROUPED = re.compile(r"\sGROUP BY .*?(?=\s(?:HAVING|ORDER BY|LIMIT)\b|$)")


def fails(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """The query fails, is refused, or takes too long."""
    if outcome.ok and outcome.seconds <= MOST_SECONDS:
        return None
    return outcome.message or f"took {outcome.seconds:.1f} s"


def empty(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """No row: any other empty answer would be as right."""
    return None if outcome.rows else "no rows"


def null_cell(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """NULL in the answer: nothing known, which nobody asked for."""
    return "NULL in the answer" if any(c is None for row in outcome.rows for c in row) else None


def zero(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A lone 0, or a share of 100 %, which many wrong queries give."""
    if len(outcome.rows) != 1:
        return None
    if all(cell == 0 for cell in outcome.rows[0]):
        return "the answer is 0"
    whole = "* 100 /" in draft.sql and outcome.rows[0] == (100.0,)
    return "the share is all of it" if whole else None


def mark_shown(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A dash or "N/A" that stands for nothing known, in the answer or counted as a value."""
    if any(is_blank_mark(cell) for row in outcome.rows for cell in row):
        return "a mark for a missing value in the answer"
    found = re.search(r'COUNT\(DISTINCT (?:T\d+\.)?"?([^")]+)"?\)', draft.sql)
    for table in live.scan.tables if found else ():
        for column in table.columns:
            if column.name == found[1] and "marks for missing values" in column.notes:
                return f"{table.name}.{column.name} has marks for missing values"
    return None


def too_many_rows(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """More rows than a person would read."""
    return f"{len(outcome.rows)} rows" if len(outcome.rows) > MOST_ROWS else None


def whole_table(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A condition that every row of the table meets."""
    rows = live.table(draft.subject).rows if draft.subject else 0
    grouped = "GROUP BY" in draft.sql or "COUNT(" in draft.sql
    listed = draft.conditions and not grouped and len(outcome.rows) >= rows > 1
    return "the whole table" if listed else None


def idle_piece(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A piece of the question that could be left out without changing the answer."""
    mode = parse_mode("set" if draft.grading == "list" else draft.grading)
    for weaker in draft.weaker:
        other = live.run(weaker)
        if not other.ok:
            continue
        same_order = draft.grading != "list" or list(other.rows) == list(outcome.rows)
        if same_order and results_equal(outcome.rows, other.rows, mode):
            return f"the same answer as {weaker}"
    return None


def constant(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """An answer that stands in the query's text."""
    return "a constant" if is_constant(draft.sql, outcome.reads) else None


def chance(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """Ties that LIMIT cuts or whose order counts; NULLs that sort first."""
    if not is_ordered(draft.sql):
        return None
    mode = parse_mode(draft.grading)
    warnings = order_warnings(draft.sql, outcome, mode, live.run)
    return warnings[0] if warnings else None


def idle_limit(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A LIMIT that cuts nothing: "the five alignments with the most heroes" of four."""
    limited = re.search(r" LIMIT \d+(?: OFFSET \d+)?$", draft.sql)
    if limited is None:
        return None
    whole = live.run(draft.sql[: limited.start()])
    fewer = whole.ok and len(whole.rows) <= len(outcome.rows)
    return f"the LIMIT cuts nothing of {len(whole.rows)} rows" if fewer else None


def unasked_order(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """Several ordered rows graded without their order, or an order graded that nothing makes."""
    ordered = is_ordered(draft.sql) and len(outcome.rows) > 1
    if (draft.grading == "list") and not is_ordered(draft.sql):
        return "graded in an order that the query does not make"
    return "an order that is not graded" if ordered and draft.grading != "list" else None


def one_group(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A figure "for each …" of which there is one."""
    figures = "GROUP BY" in draft.sql and "LIMIT" not in draft.sql and "HAVING" not in draft.sql
    return "one group" if figures and len(outcome.rows) < 2 else None


def multiplied(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """Rows that a join repeats before they are counted, added up or averaged."""
    top = draft.sql.partition(" FROM ")[0]
    body = _BODY.search(draft.sql)
    if " JOIN " not in draft.sql or "(SELECT" in draft.sql or body is None:
        return None
    grouped = _GROUPED.search(draft.sql)
    ordered = " ORDER BY ".join(draft.sql.split(" ORDER BY ")[1:])
    if not _AGGREGATE.search(top + ordered):
        return None
    alias = re.search(r"(?:SUM|AVG)\((?:CASE WHEN )?(T\d+)\.", top + ordered)
    # Rows of the first table are what a share or a count is of.
    owner = alias[1] if alias and "CASE" not in top else "T1"
    counts = (
        f"SELECT COUNT(*), COUNT(DISTINCT {owner}.rowid) {body[0]}{grouped[0] if grouped else ''}"
    )
    found = live.run(counts)
    if found.ok and any(rows != distinct for rows, distinct in found.rows):
        return f"rows of {owner} count several times"
    return None


def whole_division(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """Division of whole numbers, which SQLite cuts."""
    divides = " / " in draft.sql
    return "divides whole numbers" if divides and " AS REAL)" not in draft.sql else None


def null_in_not_in(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """NOT IN over a list that holds NULL, which nothing passes."""
    for found in re.finditer(r"NOT IN \((SELECT .*)\)", draft.sql):
        inner = live.run(found[1])
        if inner.ok and any(row[0] is None for row in inner.rows):
            return "NULL in the list of NOT IN"
    return None


def text_as_number(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A text column compared, ranked or averaged as if it held numbers or sortable dates."""
    for table in live.scan.tables:
        if draft.sql.find(table.name) < 0:
            continue
        for column in table.columns:
            odd = any("as text" in note and "year" not in note for note in column.notes)
            if not odd or column.name not in draft.sql:
                continue
            name = re.escape(column.name) + r'"?'
            used = rf'(?:MIN|MAX|AVG|SUM)\((?:T\d+\.)?"?{name}\)|ORDER BY (?:T\d+\.)?"?{name} '
            used += rf'|(?:^|[\s(.])"?{name} (?:[<>]|BETWEEN)'
            elsewhere = any(
                other is not column and other.name == column.name and other.kind == "number"
                for t in live.scan.tables for other in t.columns
            )  # fmt: skip
            if re.search(used, draft.sql) and not elsewhere:
                return f"{table.name}.{column.name} holds text that does not sort as meant"
    return None


def placeholder(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """Zeros that stand for "unknown" in an average, a minimum or a ranking from below."""
    for table in live.scan.tables:
        for column in table.columns:
            if not column.placeholder_low or column.name not in draft.sql:
                continue
            ref = rf'(?:T\d+\.)?"?{re.escape(column.name)}"?'
            risky = rf"(?:MIN|AVG)\({ref}\)|ORDER BY {ref} ASC|{ref} <|{ref} BETWEEN"
            if re.search(risky, draft.sql) and not re.search(rf"{ref} > \d", draft.sql):
                same = [c for t in live.scan.tables for c in t.columns if c.name == column.name]
                if len(same) == 1 or table.name == draft.subject:
                    return f"{table.name}.{column.name} has placeholders"
    return None


def unknown_value(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A value that no row has exactly so, or that others equal but for case or blanks."""
    for condition in draft.conditions:
        if condition.op not in ("equal", "other", "among") or condition.column.kind == "number":
            continue
        known = live.values(condition.column)
        for value in condition.values:
            if value not in known:
                return f"{value!r} is no value that a question can name"
    return None


def id_shown(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """An id in the answer where rows have names."""
    shown = draft.sql.removeprefix("SELECT ").removeprefix("DISTINCT ").partition(" FROM ")[0]
    for part in shown.split(", "):
        name = part.rpartition(".")[2].strip('"')
        if not re.fullmatch(r'(?:T\d+\.)?"?[\w ]+"?', part):
            continue
        for table in live.scan.tables:
            if table.name == draft.subject and table.named and name == table.identity:
                column = table.column(name)
                if name not in table.label and column.kind == "key":
                    return f"shows {name} though rows have names"
    return None


def told_answer(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """An answer that the question itself names."""
    if len(outcome.rows) != 1 or len(outcome.rows[0]) != 1:
        return None
    (cell,) = outcome.rows[0]
    told = [v for c in draft.conditions if c.op == "equal" for v in c.values]
    return "the question names the answer" if isinstance(cell, str) and cell in told else None


def quoted_text(draft: Draft, outcome: Outcome, live: Live) -> str | None:
    """A name in double quotes that SQLite reads as a text."""
    from jax_t2sql.sql import execute  # a run of its own, which looks for warnings

    if '"' not in draft.sql:
        return None
    warned = execute(live.scan.path, draft.sql).warnings
    return warned[0] if warned else None


CHECKS: tuple[Check, ...] = (
    fails, empty, null_cell, zero, mark_shown, too_many_rows, constant, whole_division,
    text_as_number, placeholder, unknown_value, id_shown, told_answer, whole_table, one_group,
    unasked_order, idle_limit, idle_piece, null_in_not_in, multiplied, chance, quoted_text,
)  # fmt: skip


def first_fault(
    draft: Draft, live: Live, checks: Sequence[Check] = CHECKS
) -> tuple[str, str] | None:
    """(name of the check, what it found), or None for a sound draft."""
    outcome = live.run(draft.sql)
    for check in checks:
        fault = check(draft, outcome, live)
        if fault:
            return check.__name__, fault
    return None
