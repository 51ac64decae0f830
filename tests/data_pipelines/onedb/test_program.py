"""The program as a user runs it."""

import json

import pytest

from data_pipelines.onedb.program import main
from jax_t2sql.errors import UserError
from jax_t2sql.text2sql.notes import read_notes


def test_build_writes_pool_report_and_page(library, tmp_path, capsys):
    out = tmp_path / "pool.jsonl"
    assert main(["build", str(library), "--out", str(out), "--rows", "120"]) == 0
    assert len(out.read_text().splitlines()) == 120
    told = json.loads((tmp_path / "pool.jsonl.report.json").read_text())
    assert told["questions"] == 120 and told["join_paths_missed"] == []
    page = (tmp_path / "pool.jsonl.html").read_text()
    assert page.startswith("<!doctype html>") and "Questions for library" in page
    assert "120 questions" in capsys.readouterr().out

    assert main(["audit", str(out), "--databases", str(library), "--rows", "5"]) == 0
    assert capsys.readouterr().out.count("SELECT") >= 5

    test = tmp_path / "test.jsonl"
    sql = "SELECT ROUND(AVG(pages)) FROM book"
    test.write_text(json.dumps({"db_id": "library", "question": "q", "SQL": sql}) + "\n")
    assert main(["compare", str(out), str(test)]) == 0
    assert "in the test set alone: ROUND (1)" in capsys.readouterr().out


def test_legend_is_drafted_checked_and_never_replaced(library, tmp_path, capsys):
    path = tmp_path / "legend.yaml"
    assert main(["legend", str(library), "--out", str(path)]) == 0
    assert main(["legend", str(library), "--check", str(path)]) == 0
    with pytest.raises(UserError, match="may be edited"):
        main(["legend", str(library), "--out", str(path)])
    out = tmp_path / "pool.jsonl"
    path.write_text(path.read_text().replace("noun: reader\n", "noun: borrower\n"))
    main(["build", str(library), "--out", str(out), "--rows", "60", "--legend", str(path)])
    assert "borrower" in out.read_text()
    notes = tmp_path / "notes.txt"
    main(["legend", str(library), "--check", str(path), "--notes", str(notes)])
    assert "of note is joined on note.reader_id = reader.reader_id" in read_notes(notes)("library")


def test_tiny_cuts_a_pool_and_makes_a_model(library, tmp_path):
    pool, out = tmp_path / "pool.jsonl", tmp_path / "tiny"
    main(["build", str(library), "--out", str(pool), "--rows", "100"])
    assert main(["tiny", str(pool), "--out", str(out), "--warmup", "30", "--heldout", "20"]) == 0
    parts = {
        name: [json.loads(line)["SQL"] for line in (out / f"{name}.jsonl").open()]
        for name in ("warmup", "train", "heldout")
    }
    assert sum(map(len, parts.values())) == 100 and len(parts["heldout"]) >= 20
    queries = [set(part) for part in parts.values()]
    assert not queries[0] & queries[1] | queries[1] & queries[2] | queries[0] & queries[2]
    assert (out / "model" / "config.json").is_file()
    with pytest.raises(UserError, match="cannot give"):
        main(["tiny", str(pool), "--out", str(tmp_path / "x"), "--warmup", "99"])


def test_scan_prints_tables_and_json(library, capsys):
    assert main(["scan", str(library)]) == 0
    assert main(["scan", str(library), "--json"]) == 0
    assert main(["scan", str(library), str(library)]) == 0
    assert "translator_id" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["build", "LIB", "--out", "OUT", "--rows", "0"], "at least 1"),
        (["build", "LIB", "--out", "OUT", "--evidence-share", "2"], "from 0 to 1"),
        (["build", "LIB", "--out", "/nowhere/pool.jsonl"], "there is no folder"),
        (["scan", "LIB", "--policy", "far:away"], "local:MODEL"),
        (["gate", "LIB", "--databases", "LIB", "--policy", "x", "--variants", "odd"], "is unknown"),
        (["perturbed", "LIB", "--databases", "LIB", "--copies", "0"], "at least 1"),
        (["build", "LIB", "--out", "OUT", "--legend", "nowhere.yaml"], "cannot be read"),
        (["build", "nowhere.sqlite", "--out", "OUT"], "cannot be read"),
        (["legend", "LIB"], "give --out"),
        (["audit", "LIB", "--databases", "LIB"], "not"),
    ],
)
def test_faults_are_told_and_nothing_is_written(library, tmp_path, arguments, message):
    out = tmp_path / "out.jsonl"
    names = {"LIB": str(library), "OUT": str(out)}
    with pytest.raises(UserError, match=message):
        main([names.get(a, a) for a in arguments])
    assert not out.exists()
