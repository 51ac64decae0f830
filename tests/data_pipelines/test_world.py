"""The built world as a user gets it: files, idempotence, and what its questions promise."""

import errno
import json
import random
import re
from pathlib import Path

import pytest
import sqlglot
import sqlite_utils

from data_pipelines.templates_catalogue import TEMPLATES
from data_pipelines.world import DATABASES, build_world
from data_pipelines.world_questions import QuestionPool
from jax_t2sql.errors import UserError
from jax_t2sql.sql import execute, is_empty, parse_mode, resolve_database, results_equal
from jax_t2sql.text2sql import load_problems

SIZES = {"warmup": 120, "train": 300, "heldout": 120}


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return build_world(tmp_path_factory.mktemp("world") / "world", seed=3, **SIZES)


def test_holds_as_many_questions_as_asked_for_in_the_format_that_programs_read(world):
    for split, size in SIZES.items():
        problems = load_problems(getattr(world, split))
        assert len(problems) == size
        assert len({problem.question_id for problem in problems}) == size
        for problem in problems:
            parse_mode(problem.grading)
            assert resolve_database(world.databases, problem.db_id).is_file()


def test_every_gold_runs_and_answers_something(world):
    for split in SIZES:
        for problem in load_problems(getattr(world, split)):
            path = resolve_database(world.databases, problem.db_id)
            outcome = execute(path, problem.gold_sql)
            assert outcome.status == "ok", (problem.gold_sql, outcome.message)
            assert not is_empty(outcome), problem.gold_sql
            assert any(value for row in outcome.rows for value in row), problem.gold_sql
            mode = parse_mode(problem.grading)
            assert results_equal(outcome.rows, outcome.rows, mode)


def test_heldout_sql_occurs_nowhere_else(world):
    def normal_forms(split: str) -> set[str]:
        return {
            sqlglot.parse_one(row["SQL"], dialect="sqlite").sql(dialect="sqlite").lower()
            for row in rows(getattr(world, split))
        }

    assert not normal_forms("heldout") & (normal_forms("warmup") | normal_forms("train"))


def test_no_text_is_asked_twice(world):
    texts = [row["question"] for split in SIZES for row in rows(getattr(world, split))]
    assert len(texts) == len(set(texts))


def test_a_fifth_of_the_heldout_questions_come_from_templates_never_trained_on(world):
    trained = {
        row["template"] for split in ("warmup", "train") for row in rows(getattr(world, split))
    }
    heldout = rows(world.heldout)
    assert all(row["seen_template"] == (row["template"] in trained) for row in heldout)
    assert sum(not row["seen_template"] for row in heldout) == SIZES["heldout"] // 5
    unseen = {row["template"] for row in heldout} - trained
    for template in unseen:
        head, *filters = template.split(" + ")
        assert any(other.split(" + ")[0] == head for other in trained), template
        for family in filters:
            assert any(family in other.split(" + ")[1:] for other in trained), template


def test_warmup_and_training_hold_the_same_templates(world):
    warmup = {row["template"] for row in rows(world.warmup)}
    assert warmup == {row["template"] for row in rows(world.train)}


def test_what_is_hard_to_hit_by_chance_is_shown_more_in_the_warmup(world):
    def share(split: str) -> float:
        asked = rows(getattr(world, split))
        boosted = {template.name for template in TEMPLATES if template.boost > 1}
        return sum(row["template"] in boosted for row in asked) / len(asked)

    assert share("warmup") > 1.15 * share("train")


def test_ordered_questions_are_graded_as_lists(world):
    for row in rows(world.train) + rows(world.heldout):
        assert (row["grading_method"] == "list") == ("ORDER BY" in row["SQL"])


def test_wrong_queries_seldom_have_the_right_answer(world):
    def skeleton(sql: str) -> str:
        return re.sub(r"'[^']*'|\d+", "?", sql)

    asked = rows(world.train)
    answers = [
        execute(resolve_database(world.databases, row["db_id"]), row["SQL"]).rows for row in asked
    ]
    pairs = equal = 0
    for row, answer in zip(asked, answers, strict=True):
        mode = parse_mode(row["grading_method"])
        for other, other_answer in zip(asked[::7], answers[::7], strict=True):
            if row["db_id"] == other["db_id"] and skeleton(row["SQL"]) != skeleton(other["SQL"]):
                pairs += 1
                equal += results_equal(answer, other_answer, mode)
    assert pairs > 3000
    assert equal / pairs < 0.01


def test_databases_have_keys_dates_and_nulls(world):
    for db_id in ("cinema", "harbor"):
        db = sqlite_utils.Database(resolve_database(world.databases, db_id))
        try:
            assert len(db.table_names()) == 2
            assert sum(len(table.foreign_keys) for table in db.tables) == 1
            assert not list(db.query("PRAGMA foreign_key_check"))
            values = [value for table in db.tables for row in table.rows for value in row.values()]
            assert None in values
            assert any(re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)) for value in values)
        finally:
            db.close()


def test_the_same_parameters_give_the_same_bytes_and_another_seed_gives_others(world, tmp_path):
    again = build_world(tmp_path / "again", seed=3, **SIZES)
    assert contents(again.directory) == contents(world.directory)
    other = contents(build_world(tmp_path / "other", seed=4, **SIZES).directory)
    assert all(other[name] != data for name, data in contents(world.directory).items())


def test_a_built_world_is_reused_untouched(world):
    stamps = {path: path.stat().st_mtime_ns for path in world.directory.rglob("*")}
    assert build_world(world.directory, seed=3, **SIZES) == world
    assert {path: path.stat().st_mtime_ns for path in world.directory.rglob("*")} == stamps


def test_another_world_in_the_folder_is_refused(world):
    with pytest.raises(UserError, match="holds a world of .*'seed': 3.*choose another folder"):
        build_world(world.directory, seed=4, **SIZES)


def test_a_folder_of_other_things_is_refused_and_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no world"):
        build_world(tmp_path, seed=3, **SIZES)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_changed_world_is_refused(tmp_path):
    world = build_world(tmp_path / "world", seed=1, warmup=30, train=30, heldout=30)
    world.train.write_text(world.train.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="train.jsonl is missing or changed"):
        build_world(tmp_path / "world", seed=1, warmup=30, train=30, heldout=30)


def test_a_disk_that_fills_up_leaves_nothing(tmp_path, monkeypatch):
    def full(path, rows):
        path.write_text("half a ro")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipelines.world._write_jsonl", full)
    with pytest.raises(OSError, match="No space left"):
        build_world(tmp_path / "world", seed=1, warmup=30, train=30, heldout=30)
    assert not list(tmp_path.iterdir())


def test_more_questions_than_there_are_is_an_error(world):
    paths = {db_id: resolve_database(world.databases, db_id) for db_id in ("cinema", "harbor")}
    few = [template for template in TEMPLATES if template.name == "count"]
    with (
        QuestionPool(DATABASES, paths, random.Random(0)) as pool,
        pytest.raises(UserError, match="only .* questions for heldout, not 100; ask for fewer"),
    ):
        pool.split(few, {"heldout": 100}, apart="heldout")


@pytest.mark.parametrize("split", ["warmup", "train", "heldout"])
def test_an_empty_split_is_refused(tmp_path, split):
    sizes = {"warmup": 30, "train": 30, "heldout": 30, split: 0}
    with pytest.raises(UserError, match=f"{split} is 0"):
        build_world(tmp_path / "world", seed=1, **sizes)
