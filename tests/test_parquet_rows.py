"""Question files in Parquet: the same questions as from JSON lines, and clear refusals."""

import json
import sys

import pytest

from data_pipelines.local_copies import read_rows
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql import load_problems

pa = pytest.importorskip("pyarrow", reason="question files in Parquet need the [data] extra")

ROWS = [
    {"question_id": 7, "db_id": "d", "question": "Q?", "evidence": None, "SQL": "SELECT 1"},
    {"question_id": 8, "db_id": "d", "question": "é?", "evidence": "a; b", "SQL": "SELECT 2"},
]


def write(path, rows):
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_the_same_questions_as_from_json_lines(tmp_path):
    path = write(tmp_path / "train.parquet", ROWS)
    lines = tmp_path / "train.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert load_problems(path) == load_problems(lines)
    assert list(read_rows(path)) == ROWS


def test_faults_name_file_and_row(tmp_path):
    bad = [ROWS[0], {**ROWS[1], "question": " "}]
    with pytest.raises(UserError, match=r"bad.parquet:2: field 'question' is blank"):
        load_problems(write(tmp_path / "bad.parquet", bad))
    with pytest.raises(UserError, match="field 'question' must be text"):
        load_problems(write(tmp_path / "bytes.parquet", [{**ROWS[0], "question": b"\xff"}]))
    (tmp_path / "no.parquet").write_text("this is no Parquet")
    with pytest.raises(UserError, match="no.parquet: is no Parquet file"):
        load_problems(tmp_path / "no.parquet")
    with pytest.raises(UserError, match="cannot be read"):
        load_problems(tmp_path / "missing.parquet")
    with pytest.raises(UserError, match="holds no questions"):
        load_problems(write(tmp_path / "empty.parquet", []))


def test_without_pyarrow_it_says_what_to_do(tmp_path, monkeypatch):
    path = write(tmp_path / "train.parquet", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="JSON lines"):
        load_problems(path)
