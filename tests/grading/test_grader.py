"""What a worker makes of a request, in this process."""

import sqlite3

import pytest

from jax_t2sql.grading.grader import Grader
from jax_t2sql.grading.requests import CheckGold, Execute, Failed, Grade, Probe, Settings
from jax_t2sql.grading.verdict import Verdict
from jax_t2sql.sql import Limits, Mode, Outcome, Sandbox

LIMITS = Limits(seconds=5, max_rows=4)
SET = Mode("set")
NO_MEMORY = "SQLITE_NOMEM"


def grader(limits=LIMITS, **more):
    return Grader(Settings(limits, limits.times(4), "position", 2**30, **more))


def grade(path, gold, pred, mode=SET):
    return Grade(str(path), gold, pred, mode)


def numbers(count):
    return f"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT {count}) "


def test_a_gold_over_the_limit_of_predictions_can_be_won(shop):
    gold = numbers(10) + "SELECT n FROM r"
    worker = grader()
    assert worker.answer(Execute(str(shop), gold)).status == "too_large"
    assert worker.answer(CheckGold(str(shop), gold, SET)).status == "equal"
    assert worker.answer(grade(shop, gold, gold + " -- same")).status == "equal"
    twice, more = numbers(20) + "SELECT n FROM r", numbers(21) + "SELECT n FROM r"
    assert worker.answer(grade(shop, gold, twice)).status == "different"
    assert worker.answer(grade(shop, gold, more)).status == "too_large"
    # Bounds of single texts widen alike, and narrow again.
    worker = grader(Limits(seconds=5, max_bytes=1_000_000))
    long = "SELECT hex(zeroblob({}))"
    pair = grade(shop, long.format(1_000_000), long.format(1_000_000) + " AS same")
    assert worker.answer(pair).status == "equal"
    assert worker.answer(Execute(str(shop), long.format(1_000_000))).status == "too_large"


def test_a_gold_over_its_own_limit_is_quarantined(shop):
    verdict = grader().answer(CheckGold(str(shop), numbers(17) + "SELECT n FROM r", SET))
    assert verdict.status == "gold_error" and "more than 16 rows" in verdict.detail


@pytest.mark.parametrize(
    ("gold", "pred", "status", "constant"),
    [
        ("SELECT name FROM item WHERE id = 1", "SELECT 'pen'", "equal", True),
        ("SELECT name FROM item WHERE id = 1", "SELECT 'pen' FROM item", "equal", True),
        ("SELECT name FROM item WHERE id = 1", "SELECT min(name) FROM item WHERE id = 1",
         "equal", False),
        ("SELECT name FROM item WHERE id = 1", "SELECT 'ink'", "different", False),
        ("SELECT 'pen'", "SELECT 'pen' AS n", "equal", False),
        ("SELECT count(*) FROM item", "SELECT 3", "equal", True),
        ("SELECT id FROM gone", "SELECT 1 WHERE 0", "gold_empty", True),
    ],
)  # fmt: skip
def test_constant_answers_to_golds_that_look_things_up(shop, gold, pred, status, constant):
    verdict = grader().answer(grade(shop, gold, pred))
    assert (verdict.status, verdict.constant) == (status, constant)


def test_checks_warn_of_chance(shop):
    worker = grader()
    with sqlite3.connect(shop) as writer:
        writer.execute("UPDATE item SET price = 4.0 WHERE id = 1")
    writer.close()
    verdict = worker.answer(
        CheckGold(str(shop), "SELECT name FROM item ORDER BY price DESC LIMIT 1", SET)
    )
    assert verdict.status == "equal" and "rows 1 and 2" in verdict.warnings[0]
    assert worker.answer(CheckGold(str(shop), "SELECT name FROM item", SET)).warnings == ()


@pytest.fixture
def torn(tmp_path):
    """Two tables; the pages of the second are noise, the schema is whole."""
    path = tmp_path / "torn.sqlite"
    with sqlite3.connect(path) as writer:
        writer.executescript(
            "CREATE TABLE good(a); INSERT INTO good VALUES (1), (2);"
            "CREATE TABLE bad(a); INSERT INTO bad VALUES (1);"
        )
    writer.close()
    with open(path, "r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xff" * 4096)
    return path


def test_a_machine_fault_is_no_excuse_while_the_gold_runs(torn):
    worker = grader()
    verdict = worker.answer(grade(torn, "SELECT a FROM good", "SELECT a FROM bad"))
    assert verdict.status == "error" and "malformed" in verdict.detail
    verdict = worker.answer(grade(torn, "SELECT a FROM bad", "SELECT a FROM good"))
    assert verdict.status == "infrastructure"


def test_probes_decide_by_the_gold(shop, torn):
    worker = grader()
    suspect = Verdict("crashed", "twice")
    assert worker.answer(Probe(str(shop), "SELECT id FROM item", suspect)) == suspect
    broken = worker.answer(Probe(str(torn), "SELECT a FROM bad", suspect))
    assert broken.status == "infrastructure" and "twice" in broken.detail


def test_a_fault_of_ours_is_no_excuse_for_a_prediction(shop, monkeypatch):
    def fail(*args, **kwargs):
        raise RecursionError("too deep")

    monkeypatch.setattr("jax_t2sql.grading.grader.judge", fail)
    verdict = grader().answer(grade(shop, "SELECT 1", "SELECT 2"))
    assert (verdict.status, verdict.detail) == ("error", "RecursionError: too deep")
    missing = grader().answer(grade(shop.with_name("no.sqlite"), "SELECT 1", "SELECT 2"))
    assert isinstance(missing, Failed) and missing.is_users


def test_golds_are_found_in_the_folder(shop, tmp_path):
    folder = str(tmp_path / "golds")
    pair = grade(shop, "SELECT name FROM item", "SELECT name FROM item WHERE 1")
    assert grader(gold_folder=folder).answer(pair).status == "equal"
    assert len(list((tmp_path / "golds").iterdir())) == 1
    began = []
    worker = grader(gold_folder=folder)
    worker.begin = began.append
    assert worker.answer(pair).status == "equal"
    assert began == ["prediction", "comparison"]


def test_memory_that_runs_out_is_a_verdict(shop, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError

    worker = grader()
    monkeypatch.setattr("jax_t2sql.grading.grader.judge", fail)
    assert worker.answer(grade(shop, "SELECT 1", "SELECT 2")).status == "too_large"
    monkeypatch.setattr("jax_t2sql.grading.grader.judge_gold", fail)
    assert worker.answer(grade(shop, "SELECT 1", "SELECT 2")).status == "gold_error"
    monkeypatch.undo()
    assert worker.answer(grade(shop, "SELECT 1", "SELECT 1.0")).status == "equal"


def test_a_gold_that_has_no_room_for_its_own_answer_is_not_unwinnable(shop, monkeypatch):
    gold, pred = "SELECT name FROM item", "SELECT name FROM item WHERE 1"
    real, held = Sandbox.execute, []

    def second_gold_fails(self, sql, **more):
        held.append(sql)
        if sql == pred or held.count(gold) > 1:
            return Outcome("too_large", message="out of memory", code=NO_MEMORY, seconds=9.0)
        return real(self, sql, **more)

    monkeypatch.setattr(Sandbox, "execute", second_gold_fails)
    verdict = grader().answer(grade(shop, gold, pred))
    assert verdict.status == "gold_error" and "out of memory" in verdict.detail
    # Where the gold's answer has room, the prediction's size is its own fault.
    held.clear()
    monkeypatch.setattr(
        Sandbox,
        "execute",
        lambda self, sql, **more: (
            real(self, sql, **more)
            if sql == gold
            else Outcome("too_large", code=NO_MEMORY, seconds=9.0)
        ),
    )
    assert grader().answer(grade(shop, gold, pred)).status == "too_large"


def test_memory_that_other_databases_hold_is_given_back(shop, tmp_path, monkeypatch):
    other = tmp_path / "other.sqlite"
    other.write_bytes(shop.read_bytes())
    worker = grader()
    assert worker.answer(Execute(str(other), "SELECT 1")).ok
    ran = []
    real = Sandbox.execute

    def fail_once(self, sql, **more):
        ran.append(sql)
        return real(self, sql, **more) if len(ran) > 1 else Outcome("too_large", code=NO_MEMORY)

    monkeypatch.setattr(Sandbox, "execute", fail_once)
    assert worker.answer(Execute(str(shop), "SELECT 1")).ok
    assert list(worker._open) == [str(shop)]
