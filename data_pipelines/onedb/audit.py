"""Rows for a person to read: question, query and result side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.json_rows import json_rows
from jax_t2sql.sql import Limits, Outcome, Sandbox, resolve_database
from jax_t2sql.text2sql.values import show_value

_SHOWN_ROWS = 8


def read_pool(path: Path) -> list[dict]:
    """Rows of a pool file.

    Raises:
      UserError: it cannot be read, or holds something else.
    """
    try:
        with open(path, "rb") as file:
            rows = [row for _, row in json_rows(file, path)]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not {"question", "SQL", "db_id"} <= row.keys():
            raise UserError(f"{path}: row {number} has no question, SQL and db_id; give a pool")
    if not rows:
        raise UserError(f"{path}: holds no rows")
    return rows


def pick(rows: Sequence[dict], count: int, *, seed: int) -> list[dict]:
    """A sample spread over the families: each gives its share, the rare ones at least one."""
    rng = random.Random(seed)
    by_family: dict[str, list[dict]] = {}
    for row in rng.sample(list(rows), len(rows)):
        by_family.setdefault(row.get("family", ""), []).append(row)
    queues = [by_family[name] for name in sorted(by_family)]
    rng.shuffle(queues)
    chosen: list[dict] = []
    while len(chosen) < min(count, len(rows)):
        for queue in queues:
            if queue and len(chosen) < count:
                chosen.append(queue.pop())
    return chosen


def result_text(outcome: Outcome) -> str:
    """An answer on a few lines."""
    if not outcome.ok:
        return f"{outcome.status}: {outcome.message}"
    lines = [
        " | ".join(show_value(cell, max_chars=40)[0] for cell in row)
        for row in outcome.rows[:_SHOWN_ROWS]
    ]
    if len(outcome.rows) > _SHOWN_ROWS:
        lines.append(f"… {len(outcome.rows)} rows in all")
    return "\n".join(lines)


def audit_text(rows: Sequence[dict], databases: Path) -> str:
    """The rows with their results, as text to read and to mark."""
    parts = []
    sandboxes: dict[str, Sandbox] = {}
    try:
        for number, row in enumerate(rows, start=1):
            db_id = row["db_id"]
            if db_id not in sandboxes:
                path = resolve_database(databases, db_id)
                sandboxes[db_id] = Sandbox(path, limits=Limits(seconds=10.0))
            result = result_text(sandboxes[db_id].execute(row["SQL"], warn=False))
            head = f"{number}. [{row.get('question_id', '')} {row.get('family', '')}]"
            evidence = f"\n   evidence: {row['evidence']}" if row.get("evidence") else ""
            indented = result.replace("\n", "\n      ")
            parts.append(f"{head} {row['question']}{evidence}\n   {row['SQL']}\n      {indented}")
    finally:
        for sandbox in sandboxes.values():
            sandbox.close()
    return "\n\n".join(parts) + "\n"
