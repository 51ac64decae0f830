"""Gold queries with the schema that they run on, read from the real data."""

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Gold:
    """A gold query.

    Attributes:
      id: of its question, with its source.
      sql: the text.
      ddl: script that makes the empty database.
      database: the real database, where there is one.
    """

    id: str
    sql: str
    ddl: str
    database: Path | None = None


def spider_golds(data: Path) -> list[Gold]:
    """The golds of Spider's development set, each text once a database."""
    golds, ddls, seen = [], {}, set()
    for row in _lines(data / "spider_dev" / "questions.jsonl"):
        db_id, sql = row["db_id"], row["SQL"].strip().rstrip(";")
        path = data / "spider_dev" / "database" / db_id / f"{db_id}.sqlite"
        if db_id not in ddls:
            ddls[db_id] = ddl_of(path)
        if row["executes"] and (db_id, sql) not in seen:
            seen.add((db_id, sql))
            golds.append(Gold(f"spider-{row['question_id']}", sql, ddls[db_id], path))
    return golds


def bird_golds(data: Path) -> list[Gold]:
    """The golds of BIRD-Verified, each text once a database; there are schemas only."""
    schemas = json.loads((data / "equivalence" / "bird_schemas.json").read_text())
    golds, seen = [], set()
    for part in ("train", "val"):
        for row in _lines(data / "bird_platinum" / f"bird_verified_{part}.jsonl"):
            db_id, sql = row["db_id"], row["SQL"].strip().rstrip(";")
            if (db_id, sql) not in seen:
                seen.add((db_id, sql))
                golds.append(Gold(f"bird-{row['question_id']}", sql, schemas[db_id]["schema"]))
    return golds


def ddl_of(path: Path) -> str:
    """The statements that created a database's tables and indexes."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
            " AND type IN ('table', 'index') AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
            " ORDER BY type DESC, rowid"
        ).fetchall()
    finally:
        connection.close()
    return ";\n".join(sql for (sql,) in rows) + ";\n"


def _lines(path: Path) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
