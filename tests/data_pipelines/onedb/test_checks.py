"""Each known fault of generated questions is found, and its mended twin passes."""

import pytest

from data_pipelines.onedb.checks import CHECKS, first_fault
from data_pipelines.onedb.conditions import Condition, conditions_on
from data_pipelines.onedb.draft import Draft


def make(sql, *, subject="book", **fields):
    return Draft(family="f", tier=1, sql=sql, asks=("the x",), subject=subject, **fields)


JOINED = "FROM author AS T1 INNER JOIN book AS T2 ON T2.author_id = T1.author_id"
# (check, faulty draft, mended draft or None)
CASES = [
    ("fails", make("SELECT nothing FROM book"), None),
    ("empty", make("SELECT title FROM book WHERE pages > 9999"), None),
    (
        "null_cell",
        make("SELECT published FROM book WHERE book_id < 12"),
        make("SELECT published FROM book WHERE book_id < 10"),
    ),
    ("zero", make("SELECT COUNT(*) FROM book WHERE pages > 9999"), None),
    (
        "zero",
        make("SELECT CAST(SUM(CASE WHEN pages > 0 THEN 1 ELSE 0 END) AS REAL) * 100 / COUNT(*)"
             " FROM book"),
        None,
    ),
    (
        "mark_shown",
        make("SELECT DISTINCT status FROM reader WHERE status > ''", subject="reader"),
        make("SELECT DISTINCT status FROM reader WHERE status <> '-'", subject="reader"),
    ),
    (
        "mark_shown",
        make("SELECT COUNT(DISTINCT status) FROM reader", subject="reader"),
        make("SELECT COUNT(DISTINCT name) FROM reader", subject="reader"),
    ),
    ("too_many_rows", make("SELECT a.title FROM book AS a, book AS b"), None),
    ("constant", make("SELECT 'x' FROM book LIMIT 1"), None),
    (
        "whole_division",
        make("SELECT SUM(pages) / COUNT(*) FROM book"),
        make("SELECT CAST(SUM(pages) AS REAL) / COUNT(*) FROM book"),
    ),
    ("text_as_number", make("SELECT MAX(shelf_no) FROM book"), make("SELECT MAX(pages) FROM book")),
    (
        "placeholder",
        make("SELECT AVG(height_cm) FROM book"),
        make("SELECT AVG(height_cm) FROM book WHERE height_cm > 0"),
    ),
    (
        "id_shown",
        make("SELECT book_id FROM book WHERE pages > 600"),
        make("SELECT title FROM book WHERE pages > 600"),
    ),
    (
        "one_group",
        make("SELECT genre, COUNT(*) FROM book WHERE genre = 'novel' GROUP BY genre"),
        make("SELECT genre, COUNT(*) FROM book GROUP BY genre"),
    ),
    (
        "unasked_order",
        make("SELECT title FROM book ORDER BY title LIMIT 3"),
        make("SELECT title FROM book ORDER BY title LIMIT 3", grading="list"),
    ),
    (
        "idle_limit",
        make("SELECT genre FROM book GROUP BY genre ORDER BY SUM(pages) LIMIT 5", grading="list"),
        make("SELECT genre FROM book GROUP BY genre ORDER BY SUM(pages) LIMIT 2", grading="list"),
    ),
    (
        "idle_piece",
        make(
            "SELECT title FROM book WHERE pages > 600 AND book_id > 0",
            weaker=("SELECT title FROM book WHERE pages > 600",),
        ),
        make(
            "SELECT title FROM book WHERE pages > 500 AND book_id > 20",
            weaker=("SELECT title FROM book WHERE pages > 500",),
        ),
    ),
    (
        "null_in_not_in",
        make("SELECT COUNT(*) FROM author WHERE 1 OR author_id NOT IN"
             " (SELECT translator_id FROM book)", subject="author"),
        make("SELECT COUNT(*) FROM author WHERE author_id NOT IN"
             " (SELECT translator_id FROM book WHERE translator_id IS NOT NULL)", subject="author"),
    ),
    (
        "multiplied",
        make(f"SELECT COUNT(*) {JOINED} WHERE T2.genre = 'novel'", subject="author"),
        make(f"SELECT COUNT(DISTINCT T1.author_id) {JOINED} WHERE T2.genre = 'novel'",
             subject="author"),
    ),
    (
        "chance",
        make("SELECT title FROM book ORDER BY height_cm DESC LIMIT 2", grading="list"),
        make("SELECT title FROM book ORDER BY book_id DESC LIMIT 2", grading="list"),
    ),
    ("quoted_text", make('SELECT COUNT(*) FROM book WHERE genre = "novel"'), None),
]  # fmt: skip


@pytest.mark.parametrize("name, faulty, mended", CASES, ids=[name for name, *_ in CASES])
def test_fault_is_found_and_its_mending_passes(live, name, faulty, mended):
    assert first_fault(faulty, live)[0] == name
    if mended is not None:
        assert first_fault(mended, live) is None


def equal(live, column, value):
    return Condition(live.scan.column("book", column), "equal", (value,))


def test_checks_of_conditions(live):
    told = make(
        "SELECT DISTINCT genre FROM book WHERE genre = 'novel'",
        conditions=(equal(live, "genre", "novel"),),
    )
    assert first_fault(told, live)[0] == "told_answer"
    other_case = make(
        "SELECT title FROM book WHERE genre <> 'Novel' AND pages > 600",
        conditions=(equal(live, "genre", "Novel"),),
    )
    assert first_fault(other_case, live)[0] == "unknown_value"
    everything = make(
        "SELECT title FROM book WHERE pages > 0", conditions=(equal(live, "genre", "novel"),)
    )
    assert first_fault(everything, live)[0] == "whole_table"


def test_missing_is_not_asked_where_marks_say_it_too(live):
    height, published = (live.scan.column("book", c) for c in ("height_cm", "published"))
    assert "missing" in conditions_on(published)
    assert "missing" not in conditions_on(live.scan.column("reader", "status"))
    assert not set(conditions_on(height)) & {"missing", "under", "between"}


def test_every_check_has_a_case():
    covered = {name for name, *_ in CASES} | {"told_answer", "unknown_value", "whole_table"}
    assert {check.__name__ for check in CHECKS} == covered
