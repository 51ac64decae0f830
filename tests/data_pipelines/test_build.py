"""Published sets from local copies, in the layouts of their releases."""

import json

import pytest

pytest.importorskip("tensorflow_datasets", reason="needs the [data] extra")

from data_pipelines import build  # noqa: E402
from data_pipelines.datasets import open_split  # noqa: E402
from data_pipelines.provenance import read_provenance  # noqa: E402
from data_pipelines.sources import SOURCES  # noqa: E402
from jax_t2sql.errors import UserError  # noqa: E402

ROWS = [
    {
        "question_id": i,
        "db_id": "shop",
        "question": f"Over {i}?",
        "evidence": None,
        "SQL": f"SELECT name FROM item WHERE price > {i}",
    }
    for i in range(6)
]
SPIDER_ROWS = [
    {"db_id": "shop", "question": row["question"], "query": row["SQL"], "sql": {}} for row in ROWS
]


def run(shop, dataset, *more):
    arguments = ["--dataset", dataset, "--copy", str(shop), "--out", str(shop / "out"), *more]
    assert build.main(arguments) == 0
    return f"tfds:{shop / 'out' / dataset}"


def put(path, rows, *, lines=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))


def ids(spec, split):
    return [problem.question_id for problem in open_split(spec, split=split).problems]


def test_bird_in_the_folders_of_its_releases(shop):
    put(shop / "train" / "train.json", ROWS)
    put(shop / "dev_20240627" / "dev.json", ROWS[:3])
    (shop / "train" / "train_databases").symlink_to(shop / "databases")
    (shop / "dev_20240627" / "dev_databases").symlink_to(shop / "databases")
    spec = run(shop, "bird")
    assert ids(spec, "train") == list("012345") and ids(spec, "dev") == list("012")
    record = read_provenance(shop / "out" / "bird" / "1.0.0")
    assert set(record.splits) == {"train", "dev"} and record.licence == "CC BY-SA 4.0"
    assert record.splits["dev"].databases.endswith("dev_20240627/dev_databases")
    assert len(record.files) == 2


def test_the_hard_subset_by_the_solve_rates_of_the_first_visit(shop, capsys):
    put(shop / "bird_verified_train.jsonl", ROWS, lines=True)
    put(shop / "bird_verified_val.jsonl", ROWS[:2], lines=True)
    rates = [
        {"question_id": 0, "solve_rate": 1.0},
        {"question_id": "1", "solve_rate": 0.5},
        {"question_id": 2, "solve_rate": 0},
        {"question_id": 0, "solve_rate": 0.25},  # a later visit
    ]
    put(shop / "rates.jsonl", rates, lines=True)
    spec = run(shop, "bird_verified", "--solve-rates", str(shop / "rates.jsonl"))
    assert ids(spec, "train_hard") == ["1", "2"]
    assert "the release has 2064" in capsys.readouterr().out
    for bad in ([{"question_id": 0}], [{"question_id": 0, "solve_rate": 2}]):
        put(shop / "rates.jsonl", bad, lines=True)
        with pytest.raises(UserError, match="row 1 must have"):
            run(shop, "bird_verified", "--solve-rates", str(shop / "rates.jsonl"))
    put(shop / "rates.jsonl", rates[:1], lines=True)
    with pytest.raises(UserError, match="no question of train"):
        run(shop, "bird_verified", "--solve-rates", str(shop / "rates.jsonl"))


def test_spider_trains_on_both_of_its_files(shop):
    put(shop / "train_spider.json", SPIDER_ROWS[:4])
    put(shop / "train_others.json", SPIDER_ROWS[4:])
    put(shop / "dev.json", SPIDER_ROWS[:1])
    (shop / "database").symlink_to(shop / "databases")
    spec = run(shop, "spider")
    assert ids(spec, "train") == list("012345")
    assert open_split(spec, split="dev").problems[0].gold_sql == ROWS[0]["SQL"]


def test_spider2_finds_golds_and_documents(shop):
    for name, rows in (
        ("spider2-lite", [("local001", "db"), ("local002", "db"), ("bq001", "db")]),
        ("spider2-snow", [("sf_001", "db_id")]),
    ):
        put(
            shop / name / f"{name}.jsonl",
            [
                {
                    "instance_id": i,
                    db: "shop",
                    "question" if db == "db" else "instruction": f"{i}?",
                    "external_knowledge": "notes.md" if i == "local001" else None,
                }
                for i, db in rows
            ],
            lines=True,
        )
        for i in ("local001", "bq001", "sf_001"):
            gold = shop / name / "evaluation_suite" / "gold" / "sql" / f"{i}.sql"
            gold.parent.mkdir(parents=True, exist_ok=True)
            gold.write_text("SELECT max(price) FROM item;\n")
        notes = shop / name / "resource" / "documents" / "notes.md"
        notes.parent.mkdir(parents=True)
        notes.write_text("price is in euros")
    spec = run(shop, "spider2_sqlite", "--databases", str(shop / "databases"))
    (problem,) = open_split(spec, split="test").problems
    assert (problem.question_id, problem.evidence) == ("local001", "price is in euros")
    aside = (shop / "out" / "spider2_sqlite" / "1.0.0" / "quarantine.jsonl").read_text()
    assert '"local002"' in aside and "no gold query" in aside and "bq001" not in aside

    spec = run(shop, "spider2_snow")
    assert read_provenance(shop / "out" / "spider2_snow" / "1.0.0").splits["test"].questions == 1
    with pytest.raises(UserError, match="snowflake, which cannot be run here"):
        open_split(spec, split="test")


def test_geoquery_fills_in_its_templates(shop):
    put(
        shop / "geography.json",
        [
            {
                "sentences": [
                    {"question-split": s, "text": "items over var0 or var01", "variables": v}
                    for s, v in (
                        ("train", {"var0": "1", "var01": "2"}),
                        ("dev", {"var0": "3", "var01": "4"}),
                        ("test", {"var0": "5", "var01": "6"}),
                    )
                ],
                "sql": ["SELECT name FROM item WHERE price > var0 OR price > var01 ;", "other"],
            }
        ],
    )
    (shop / "databases" / "shop.sqlite").rename(shop / "databases" / "geography.sqlite")
    spec = run(shop, "geoquery", "--databases", str(shop / "databases"))
    (problem,) = open_split(spec, split="dev").problems
    assert problem.question == "items over 3 or 4"
    assert problem.gold_sql == "SELECT name FROM item WHERE price > 3 OR price > 4 ;"
    assert len(ids(spec, "train")) == len(ids(spec, "test")) == 1


def test_files_may_be_named(shop):
    put(shop / "elsewhere.json", ROWS)
    spec = run(
        shop,
        *("arcwise_plat_full", "--databases", str(shop / "databases")),
        *("--file", f"test={shop / 'elsewhere.json'}"),
    )
    assert len(ids(spec, "test")) == 6
    with pytest.raises(UserError, match="must be SPLIT=PATH"):
        run(shop, "arcwise_plat_full", "--file", "train=x")


def test_copies_that_lack_what_is_needed(shop):
    for name in SOURCES:
        with pytest.raises(UserError, match="--file SPLIT=PATH"):
            run(shop, name)
    put(shop / "arcwise_plat_sql.json", ROWS)
    (shop / "databases").rename(shop / "hidden")
    with pytest.raises(UserError, match="none of the folders"):
        run(shop, "arcwise_plat_sql")
    with pytest.raises(UserError, match="no such directory"):
        run(shop / "none", "bird")


def test_real_copies(data_dir, tmp_path):
    arguments = ["--copy", str(data_dir), "--out", str(tmp_path)]
    assert build.main(["--dataset", "geoquery", *arguments]) == 0
    splits = read_provenance(tmp_path / "geoquery" / "1.0.0").splits
    assert {n: (s.questions, s.quarantined) for n, s in splits.items()} == {
        "train": (526, 0),
        "dev": (48, 0),
        "test": (270, 0),
    }
    arguments = ["--copy", str(data_dir / "bird_small"), "--out", str(tmp_path)]
    assert build.main(["--dataset", "arcwise_plat_full", *arguments]) == 0
    spec = f"tfds:{tmp_path / 'arcwise_plat_full'}"
    assert len(open_split(spec, split="test", content=True).problems) == 52
