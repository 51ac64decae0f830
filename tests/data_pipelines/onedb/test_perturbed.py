"""Rewarded queries on perturbed data."""

import json

import pytest

from data_pipelines.onedb.perturbed import check_rewarded, read_records
from data_pipelines.onedb.program import main
from jax_t2sql.errors import UserError

GOLD = "SELECT COUNT(*) FROM book WHERE genre = 'novel'"


def record(predicted, verdict="equal"):
    return {
        "db_id": "library",
        "question": "How many novels are there?",
        "gold_sql": GOLD,
        "predicted_sql": predicted,
        "verdict": verdict,
        "grading": "set",
    }


@pytest.fixture
def samples(tmp_path, live):
    """The right query twice, the number itself, a wrong answer, and a question never put."""
    (count,) = live.run(GOLD).rows[0]
    rows = [record(GOLD.lower().replace("'novel'", "'novel'"))] * 2
    rows += [record(f"SELECT {count} FROM book LIMIT 1"), record("SELECT 1", "different")]
    rows += [{"db_id": "library", "verdict": "prompt_too_long"}]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_lucky_query_breaks_and_right_one_holds(samples, library):
    found = check_rewarded(read_records(samples), library)
    assert (found.rewarded, found.distinct, len(found.broken)) == (3, 2, 1)
    assert found.broken[0][0]["predicted_sql"].startswith("SELECT ")
    assert found.share == 0.5 and found.interval[0] < 0.5 < found.interval[1]


def test_program_prints_the_share(samples, library, capsys):
    assert main(["perturbed", str(samples), "--databases", str(library)]) == 0
    assert "1 of 2 distinct rewarded queries stop matching" in capsys.readouterr().out


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"question": "q"}\n')
    with pytest.raises(UserError, match="has no verdict"):
        read_records(path)
