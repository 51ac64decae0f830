"""A small shop: a database, questions with gold queries, and the program run on them."""

import json
import sqlite3
from pathlib import Path

import pytest

from jax_t2sql.eval.__main__ import main

GOLDS = {
    "q0": "SELECT max(a) FROM t",
    "q1": "SELECT a FROM t ORDER BY a",
    "q2": "SELECT count(*) FROM t WHERE b = 'x'",
    "q3": "SELECT a FROM t WHERE a > 9",
}


class Shop:
    """Question file and databases in a folder; `run` evaluates and returns results.json."""

    def __init__(self, root: Path):
        self.root, self.questions, self.databases = root, root / "questions.jsonl", root / "db"
        self.databases.mkdir()
        with sqlite3.connect(self.databases / "shop.sqlite") as connection:
            connection.executescript(
                "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'x');"
            )
        connection.close()
        self.write(self.questions, GOLDS)

    def write(self, path: Path, golds: dict[str, str], **fields) -> Path:
        rows = [
            {
                "question_id": name,
                "db_id": "shop",
                "question": f"<{name}>",
                "SQL": sql,
                "evidence": f"about {name}",
                "difficulty": "easy" if name < "q2" else "hard",
            }
            | fields
            for name, sql in golds.items()
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def predict(self, rows: list[dict], name: str = "predictions.jsonl") -> Path:
        path = self.root / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def arguments(self, policy: str, out: Path, *options: str) -> list[str]:
        return [
            *("--data", str(self.questions), "--databases", str(self.databases)),
            *("--policy", policy, "--out", str(out), "--workers", "1", *map(str, options)),
        ]

    def run(self, policy: str, out: Path, *options: str) -> dict:
        assert main(self.arguments(policy, out, *options)) == 0
        return json.loads((out / "results.json").read_text())


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)
