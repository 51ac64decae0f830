import shutil

import pytest

from data_pipelines.mixture import Ingredient, merge, parse_mixture
from jax_t2sql.errors import UserError
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import Problem, schema_text


def problem(db_id, question_id="1"):
    return Problem(question_id=question_id, db_id=db_id, question="Q?", gold_sql="SELECT 1")


def test_parts_and_shares():
    assert parse_mixture(["tfds:a/b=0.5", "tfds:x:1.0.0@train=0.25"]) == [
        Ingredient("tfds:a/b", 0.5),
        Ingredient("tfds:x:1.0.0@train", 0.25),
    ]


@pytest.mark.parametrize(
    "items", [["tfds:a"], ["=0.5"], ["tfds:a=0"], ["tfds:a=1"], ["tfds:a=x"], ["tfds:a=nan"]]
)
def test_parts_that_say_nothing(items):
    with pytest.raises(UserError, match="is no part of a mixture"):
        parse_mixture(items)


def test_shares_must_leave_room_for_the_main_set():
    with pytest.raises(UserError, match="leave nothing"):
        parse_mixture(["tfds:a=0.5", "tfds:b=0.5"])


def test_ids_and_databases_of_several_sets_are_told_apart(shop):
    other = shop / "other"
    shutil.copytree(shop / "databases", other)
    parts = [
        ("mine", [problem("shop"), problem("depot", "2")], shop / "databases"),
        ("same", [problem("shop")], shop / "databases"),
        ("other", [problem("shop"), problem("none", "2")], other),
    ]
    problems, folder = merge(parts, shop / "links")
    assert [(p.question_id, p.db_id, p.source) for p in problems] == [
        ("mine/1", "shop", "mine"),
        ("mine/2", "depot", "mine"),
        ("same/1", "shop", "same"),
        ("other/1", "other.shop", "other"),
        ("other/2", "none", "other"),
    ]
    paths = [resolve_database(folder, p.db_id).resolve() for p in problems[:4]]
    assert paths == [
        shop / "databases" / "shop.sqlite",
        shop / "databases" / "depot" / "depot.sqlite",
        shop / "databases" / "shop.sqlite",
        other / "shop.sqlite",
    ]
    # Descriptions lie beside the file itself.
    assert "what it costs; in euros" in schema_text(resolve_database(folder, "depot"))
    with pytest.raises(UserError, match="'none'"):
        resolve_database(folder, "none")
    # Again over the same links, one of which has gone astray.
    (folder / "shop.sqlite").unlink()
    (folder / "shop.sqlite").symlink_to(other / "shop.sqlite")
    assert merge(parts, shop / "links") == (problems, folder)
    assert resolve_database(folder, "shop").resolve() == shop / "databases" / "shop.sqlite"


def test_a_set_has_one_share(shop):
    part = ("mine", [problem("shop")], shop / "databases")
    with pytest.raises(UserError, match="same set twice"):
        merge([part, part], shop / "links")
    (shop / "links").write_text("a file")
    with pytest.raises(UserError, match="cannot link"):
        merge([part], shop / "links")
