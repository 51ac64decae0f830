import json
import os
import subprocess
import sys

import pytest

tfds = pytest.importorskip("tensorflow_datasets", reason="needs the [data] extra")

from data_pipelines import import_data, prepare  # noqa: E402
from data_pipelines.datasets import find_dataset, heldout_split, open_split  # noqa: E402
from data_pipelines.provenance import read_provenance  # noqa: E402
from jax_t2sql.errors import UserError  # noqa: E402
from jax_t2sql.sql import resolve_database  # noqa: E402
from jax_t2sql.text2sql import load_problems  # noqa: E402


def run(shop, *more, name="mine", questions="questions.jsonl"):
    arguments = [
        *("--questions", str(shop / questions), "--databases", str(shop / "databases")),
        *("--name", name, "--out", str(shop / "out"), *more),
    ]
    assert import_data.main(arguments) == 0
    return shop / "out" / name


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def mine(shop):
    return run(shop)


def test_what_goes_in_comes_out(shop, mine):
    spec = f"tfds:{mine}"
    found = {}
    for split in ("train", "val"):
        opened = open_split(spec, split=split)
        assert opened.name == f"mine:1.0.0@{split}" and opened.databases == shop / "databases"
        found |= {problem.question_id: problem for problem in opened.problems}
        assert all(resolve_database(opened.databases, p.db_id) for p in opened.problems)
    wanted = {p.question_id: p for p in load_problems(shop / "questions.jsonl")[:20]}
    empty = found.pop("23")
    assert found.keys() == wanted.keys() and empty.question == "Nothing?"
    for name, problem in found.items():
        assert problem.source == "mine"
        for field in ("db_id", "question", "gold_sql", "evidence", "grading", "difficulty"):
            assert getattr(problem, field) == getattr(wanted[name], field)
    assert heldout_split(spec) == "val"
    # The order of the file is kept.
    ids = [int(p.question_id) for p in open_split(spec, split="train").problems]
    assert ids == sorted(ids)


def test_faulty_golds_are_set_aside_with_the_reason(mine):
    folder = mine / "1.0.0"
    aside = {row["question"]: row["reason"] for row in rows(folder / "quarantine.jsonl")}
    assert aside.keys() == {"No such table?", "No such database?", "Random?"}
    assert "nowhere" in aside["No such table?"] and "none" in aside["No such database?"]
    record = read_provenance(folder)
    assert sum(split.quarantined for split in record.splits.values()) == 3
    assert sum(split.gold_empty for split in record.splits.values()) == 1
    marked = [
        row["question_id"].decode()
        for split in record.splits
        for row in tfds.builder_from_directory(str(folder)).as_data_source(split)
        if row["gold_empty"]
    ]
    assert marked == ["23"]
    schemas = {row["db_id"]: row for row in rows(folder / "schemas.jsonl")}
    assert schemas["depot"]["described"] == 1 and schemas["shop"]["described"] == 0
    assert schemas["shop"]["tables"] == 1 and schemas["shop"]["tokens"] is None


def test_a_version_is_never_changed(shop, mine, capsys):
    before = {path: path.stat().st_mtime_ns for path in (mine / "1.0.0").iterdir()}
    run(shop)
    assert "already, with the same content" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in (mine / "1.0.0").iterdir()}
    lines = (shop / "questions.jsonl").read_text().splitlines()
    (shop / "questions.jsonl").write_text("\n".join(lines[1:]))
    with pytest.raises(UserError, match="another --version"):
        run(shop)
    run(shop, "--version", "1.0.10")
    run(shop, "--version", "1.0.9")
    assert find_dataset(f"tfds:{mine}")[0].name == "1.0.10"
    assert find_dataset(f"tfds:{mine}:1.0.0@val") == (mine / "1.0.0", "val")


def test_what_is_interrupted_leaves_nothing(shop, monkeypatch):
    def fail(*args):
        raise OSError("disk")

    monkeypatch.setattr(prepare, "write_provenance", fail)
    with pytest.raises(OSError, match="disk"):
        run(shop)
    assert list((shop / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda folder, shop: next(folder.glob("*.array_record-*")).write_bytes(b"x"), "not the"),
        (lambda folder, shop: next(folder.glob("*.array_record-*")).unlink(), "is gone"),
        (lambda folder, shop: (folder / "provenance.json").unlink(), "no readable"),
        (lambda folder, shop: (folder / "provenance.json").write_text("{}"), "is broken"),
        (lambda folder, shop: (folder / "features.json").unlink(), "no readable dataset"),
        (lambda folder, shop: (shop / "databases" / "shop.sqlite").unlink(), "shop.sqlite is gone"),
        (
            lambda folder, shop: os.truncate(shop / "databases" / "shop.sqlite", 4096),
            "not the file",
        ),
    ],
)
def test_changed_files_are_told(shop, mine, change, word):
    change(mine / "1.0.0", shop)
    with pytest.raises(UserError, match=word):
        open_split(f"tfds:{mine}", split="train")


def test_databases_may_move_and_are_compared_by_content_where_asked(shop, mine):
    moved = shop / "databases"
    moved.rename(shop / "moved")
    with pytest.raises(UserError, match="--databases"):
        open_split(f"tfds:{mine}", split="train")
    place = shop / "moved"
    assert open_split(f"tfds:{mine}", split="train", databases=place).databases == place
    data = bytearray((place / "shop.sqlite").read_bytes())
    data[-1] ^= 1
    (place / "shop.sqlite").write_bytes(data)
    open_split(f"tfds:{mine}", split="train", databases=place)
    with pytest.raises(UserError, match="not the file"):
        open_split(f"tfds:{mine}", split="train", databases=place, content=True)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("tfds:", "names no dataset"),
        ("tfds:a:b:c", "names no dataset"),
        ("tfds:{out}/other", "datasets there: mine"),
        ("tfds:{out}/mine:9.9.9", "no version 9.9.9"),
        ("tfds:{out}/mine@dev", "no split 'dev'; there are train, val"),
        ("tfds:{out}/none/mine", "no dataset mine"),
    ],
)
def test_names_that_lead_nowhere(mine, spec, word):
    with pytest.raises(UserError, match=word):
        open_split(spec.format(out=mine.parent), split="train")


def test_the_folder_of_datasets_comes_from_the_environment(mine, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(mine.parent))
    assert find_dataset("tfds:mine") == (mine / "1.0.0", None)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--version", "1.0"], "three numbers"),
        (["--eval-share", "0"], "between 0 and 1"),
        (["--workers", "0"], "--workers is 0"),
        (["--seconds", "nan"], "--seconds"),
        (["--tokenizer", "nowhere"], "nowhere"),
    ],
)
def test_bad_options(shop, more, word):
    with pytest.raises(UserError, match=word):
        run(shop, *more)
    assert not (shop / "out").exists() or not list((shop / "out").iterdir())


def test_bad_input(shop):
    with pytest.raises(UserError, match="--name is 'My set'"):
        run(shop, name="My set")
    bad = [f'{{"db_id": "shop", "question": "Q?", "SQL": "SELECT a{i}"}}\n' for i in range(9)]
    (shop / "bad.jsonl").write_text(bad[0] * 9)
    with pytest.raises(UserError, match="too few questions"):
        run(shop, questions="bad.jsonl")
    (shop / "bad.jsonl").write_text("".join(bad))
    with pytest.raises(UserError, match="no question of the split train can be used.*a[0-9]"):
        run(shop, questions="bad.jsonl")
    with pytest.raises(UserError, match="none.jsonl"):
        run(shop, questions="none.jsonl")


def test_marks_of_the_rows_are_splits(shop):
    lines = [json.loads(line) for line in (shop / "questions.jsonl").read_text().splitlines()]
    marked = [row | {"split": "test" if i % 3 == 0 else "train"} for i, row in enumerate(lines)]
    (shop / "marked.jsonl").write_text("\n".join(map(json.dumps, marked)))
    folder = run(shop, questions="marked.jsonl")
    record = read_provenance(folder / "1.0.0")
    assert record.split_rule == "marks of the rows"
    assert [(name, split.questions) for name, split in record.splits.items()] == [
        ("test", 7),
        ("train", 14),
    ]


def test_no_tensorflow_is_loaded(shop):
    code = (
        "import sys; from data_pipelines import import_data\n"
        f"import_data.main(['--questions', {str(shop / 'questions.jsonl')!r}, '--databases',"
        f" {str(shop / 'databases')!r}, '--name', 'mine', '--out', {str(shop / 'out')!r}])\n"
        "from data_pipelines.datasets import open_split\n"
        f"assert list(open_split('tfds:{shop / 'out' / 'mine'}', split='train').problems)\n"
        "print(*{'tensorflow', 'torch', 'grain', 'apache_beam'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
