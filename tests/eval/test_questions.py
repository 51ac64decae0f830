"""Questions, answer keys, suites, and what is said of those that are missing."""

import json
import shutil

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.eval.__main__ import main
from jax_t2sql.eval.options import EvalArgs, check_bounds
from jax_t2sql.eval.questions import load_questions, problem_of
from jax_t2sql.eval.suites import SUITES


def load(shop, **options):
    given = {"data": str(shop.questions), "databases": shop.databases} | options
    return load_questions(EvalArgs(policy="file:x", **given))


def test_own_files(shop):
    asked = load(shop)
    assert [row.question_id for row in asked.rows] == ["q0", "q1", "q2", "q3"]
    assert asked.key == "gold" and asked.left_out == {}
    problem = problem_of(asked.rows[0], evidence=False)
    assert (problem.evidence, problem.gold_sql) == ("", ""), "no gold query reaches a prompt"
    assert [row.question_id for row in load(shop, questions=2).rows] == ["q0", "q3"]


def test_answer_keys(shop):
    other = shop.write(shop.root / "other.jsonl", {"q0": "SELECT 4", "q3": "SELECT 1"})
    asked = load(shop, keys=f"corrected={other}")
    assert list(asked.keys) == ["gold", "corrected"]
    assert asked.rows[0].golds["corrected"].sql == "SELECT 4"
    assert list(asked.rows[1].golds) == ["gold"], "a key may lack questions"
    asked = load(shop, keys=f"gold={other}")
    assert list(asked.keys) == ["gold"] and asked.rows[0].golds["gold"].sql == "SELECT 4"


def test_answer_keys_that_do_not_fit(shop):
    wrong = shop.write(shop.root / "wrong.jsonl", {"q0": "SELECT 4"}, db_id="other")
    with pytest.raises(UserError, match="question q0 is about database 'other'"):
        load(shop, keys=f"a={wrong}")
    strange = shop.write(shop.root / "strange.jsonl", {"z": "SELECT 4"})
    with pytest.raises(UserError, match="has none of the questions asked"):
        load(shop, keys=f"a={strange}")
    with pytest.raises(UserError, match="it must be NAME=FILE"):
        load(shop, keys="corrected")


def test_missing_databases_are_an_error_or_counted(shop):
    rows = shop.questions.read_text()
    gone = json.dumps({"question_id": "q9", "db_id": "gone", "question": "?", "SQL": "SELECT 1"})
    shop.questions.write_text(rows + gone + "\n")
    with pytest.raises(UserError, match=r"1 databases of 1 of 5 questions cannot be used \(gone\)"):
        load(shop)
    asked = load(shop, allow_missing=True)
    assert len(asked.rows) == 4 and asked.left_out == {"no database": 1}
    shutil.rmtree(shop.databases)
    shop.databases.mkdir()
    with pytest.raises(UserError, match="none of the databases can be used"):
        load(shop, allow_missing=True)
    with pytest.raises(UserError, match="no such directory"):
        load(shop, databases=shop.root / "nowhere")


@pytest.fixture
def benchmarks(shop):
    """A folder of benchmarks with a part of Spider, and Spider 2.0-Lite with one gold query."""
    folder = shop.root / "benchmarks"
    spider = folder / "spider"
    spider.mkdir(parents=True)
    rows = [json.loads(line) for line in shop.questions.read_text().splitlines()]
    (spider / "dev.json").write_text(json.dumps(rows))
    shutil.copytree(shop.databases, spider / "database")
    lite = folder / "spider2-lite"
    golds = lite / "evaluation_suite" / "gold" / "sql"
    golds.mkdir(parents=True)
    (golds / "local001.sql").write_text("SELECT 1")
    asked = [
        {"instance_id": name, "db": db_id, "question": "?"}
        for name, db_id in (("local001", "shop"), ("local002", "shop"), ("bq001", "cloud"))
    ]
    (lite / "spider2-lite.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    local = lite / "resource" / "databases" / "spider2-localdb"
    shutil.copytree(shop.databases, local)
    return folder


def suite(benchmarks, name, **options):
    return load_questions(EvalArgs(policy="file:x", suite=name, benchmarks=benchmarks, **options))


def test_a_suite_is_found_in_a_folder_of_the_folder(benchmarks):
    with pytest.raises(UserError, match="of 1,034 questions 1,030 not in this copy"):
        suite(benchmarks, "spider-dev")
    asked = suite(benchmarks, "spider-dev", allow_missing=True)
    assert len(asked.rows) == 4 and asked.left_out == {"not in this copy": 1030}
    assert asked.databases == benchmarks / "spider" / "database"


def test_a_folder_of_benchmarks_that_is_none_is_named(benchmarks):
    with pytest.raises(UserError, match="--benchmarks .*typo' is no folder"):
        suite(benchmarks / "typo", "spider-dev")


def test_a_key_is_named_once(benchmarks):
    keys = "a=spider-dev,a=spider-dev"
    with pytest.raises(UserError, match="--keys names 'a' twice"):
        suite(benchmarks, "spider-dev", allow_missing=True, keys=keys)


def test_questions_without_a_gold_query_are_counted(benchmarks):
    with pytest.raises(UserError, match="of 2 questions 1 no gold query"):
        suite(benchmarks, "spider2-sqlite")
    asked = suite(benchmarks, "spider2-sqlite", allow_missing=True)
    assert [row.question_id for row in asked.rows] == ["local001"]
    asked = suite(benchmarks, "spider2-lite", allow_missing=True)
    assert asked.left_out == {"no gold query": 2}


def test_a_suite_that_is_not_there_says_what_it_needs(benchmarks, monkeypatch):
    with pytest.raises(UserError, match="no question file dev/dev.json or .*--benchmarks"):
        suite(benchmarks, "bird-dev")
    with pytest.raises(UserError, match="must be one of arcwise-plat-full"):
        suite(benchmarks, "bird")
    monkeypatch.setenv("JAX_T2SQL_BENCHMARKS", str(benchmarks))
    assert suite(None, "spider-dev", allow_missing=True).rows


def test_the_list_names_every_suite_and_what_is_missing(benchmarks, capsys):
    assert main(["--list", "--benchmarks", str(benchmarks)]) == 0
    told = capsys.readouterr().out
    blocks = {block.partition(":")[0]: block for block in told.split("\n\n")}
    assert blocks.keys() >= SUITES.keys()
    assert "MISSING: dev/dev.json" in blocks["bird-dev"]
    assert "4 of 1,034, the others MISSING" in blocks["spider-dev"]
    assert "1 of 1:" in blocks["spider-dev"]
    assert "MISSING: cloud" in blocks["spider2-lite"]
    assert "MISSING for 2" in blocks["spider2-lite"]


def test_suites_of_the_real_copies(data_dir):
    found = {}
    for name in ("spider-dev", "geoquery", "arcwise-plat-full", "bird-mini-dev"):
        args = EvalArgs(suite=name, benchmarks=data_dir, allow_missing=True)
        asked = load_questions(args)
        found[name] = (len(asked.rows), sum(asked.left_out.values()))
    assert found == {
        "spider-dev": (1034, 0),
        "geoquery": (270, 0),
        "arcwise-plat-full": (52, 446),
        "bird-mini-dev": (52, 448),
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"candidates": -1}, "--candidates is -1; it must be at least 0"),
        ({"temperature": float("nan")}, "--temperature is nan"),
        ({"greedy": False}, "leaves nothing to answer"),
        ({"suite": "spider-dev"}, "give one of them"),
        ({"data": None}, "no questions"),
    ],
)
def test_bounds(options, told):
    with pytest.raises(UserError, match=told):
        check_bounds(EvalArgs(**({"data": "x"} | options)))
