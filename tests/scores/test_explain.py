import json
import logging

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program
from jax_t2sql.scores import explain as program
from jax_t2sql.scores.browser import browser_rows
from jax_t2sql.scores.differences import Difference
from jax_t2sql.scores.guess import CLASSES, guess
from jax_t2sql.scores.records import VerdictRow, write_rows
from jax_t2sql.scores.run import read_run
from jax_t2sql.sql import Outcome

ITEMS = "SELECT name FROM item WHERE kind = 'drink'"


@pytest.fixture
def evaluation(tmp_path, shop, question, answer):
    """The folder of an evaluation with a right answer and three wrong ones."""
    folder = tmp_path / "run"
    folder.mkdir()
    golds = {"right": ITEMS, "case": ITEMS, "fails": ITEMS, "silent": ITEMS}
    preds = {
        "right": ITEMS,
        "case": "SELECT name FROM item WHERE kind = 'Drink\x1b[31m'",
        "fails": "SELECT nowhere FROM item",
        "silent": None,
    }
    write_rows(folder / "questions.jsonl", [question(n, sql) for n, sql in golds.items()])
    write_rows(folder / "answers.jsonl", [answer(n, sql) for n, sql in preds.items()])
    kinds = {"right": "match", "case": "mismatch", "fails": "error", "silent": "no_query"}
    write_rows(
        folder / "verdicts.jsonl",
        [
            VerdictRow(
                question_id=n,
                candidate=0,
                key="gold",
                grader="set",
                kind=kind,
                correct=kind == "match",
            )
            for n, kind in kinds.items()
        ],
    )
    (folder / "manifest.json").write_text(json.dumps({"databases": {"path": str(shop)}}))
    return folder


def test_every_failure_is_explained(evaluation, capsys):
    assert program.main([str(evaluation), "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert "3 of 4 answers are wrong (grader set, key gold)" in printed
    assert "only upper and lower case differ" not in printed  # more than case differs
    assert "other value: item.kind = 'Drink\\x1b[31m' instead of item.kind = 'drink'" in printed
    assert "\x1b" not in printed and "INSERT INTO" in printed
    rows = {
        row["question_id"]: row for row in map(json.loads, (evaluation / "failures.jsonl").open())
    }
    assert list(rows) == ["case", "fails", "silent"]
    case = rows["case"]
    assert case["gold"] == {"columns": ["name"], "rows": [["'tea'"], ["'ale'"]], "n_rows": 2}
    assert case["predicted"]["n_rows"] == 0 and case["verdict"] == "mismatch"
    assert [d["kind"] for d in case["differences"]] == ["other value"]
    assert "CREATE TABLE" in case["counterexample"]["database"]
    assert case["counterexample"]["gold"]["rows"] != case["counterexample"]["predicted"]["rows"]
    assert rows["fails"]["predicted"]["message"].startswith("error: no such column")
    assert rows["fails"]["counterexample"] is None
    assert rows["silent"]["predicted"] == {"message": "not run"}
    assert {row["guess"]["name"] for row in rows.values()} <= set(CLASSES)


def test_of_samples_the_winner_of_the_vote_is_explained(evaluation, answer):
    given = [answer("case", f"SELECT {n}", candidate=n) for n in (1, 2, 3)]
    write_rows(evaluation / "answers.jsonl", given)
    marked = [
        VerdictRow(
            question_id="case", candidate=n, key="gold", grader="set", kind="error", correct=False
        )
        for n in (1, 2, 3)
    ]
    write_rows(evaluation / "verdicts.jsonl", marked)
    vote = {"winners": {"case": 2}}
    results = {"decoding": "self-consistency of 3", "evidence": True, "self_consistency": vote}
    (evaluation / "results.json").write_text(json.dumps(results))
    assert program.main([str(evaluation), "--no-counterexamples", "--workers", "1"]) == 0
    (row,) = map(json.loads, (evaluation / "failures.jsonl").open())
    assert row["predicted_sql"] == "SELECT 2"
    rows, _ = browser_rows(read_run(evaluation), "set", "gold")
    shown = next(row for row in rows if row["id"] == "case")
    assert (shown["pred"], [s["candidate"] for s in shown["samples"]]) == ("SELECT 2", [1, 3])


def test_what_the_parser_warns_of_does_not_reach_the_terminal(evaluation, answer, caplog):
    """It would write the query as it is."""
    write_rows(evaluation / "answers.jsonl", [answer("case", "VACUUM INTO '\x1b[31m'")])
    options = [str(evaluation), "--no-counterexamples", "--workers", "1"]
    logger = logging.getLogger("sqlglot")
    try:
        with pytest.raises(SystemExit) as ended:
            run_program(lambda: program.main(options))
    finally:
        logger.setLevel(logging.NOTSET)
    assert ended.value.code == 0 and not caplog.records


def test_long_queries_are_cut_unless_they_are_asked_for(evaluation, answer, capsys):
    write_rows(evaluation / "answers.jsonl", [answer("case", f"SELECT '{'x' * 5_000}!'")])
    options = [str(evaluation), "--no-counterexamples", "--workers", "1"]
    assert program.main(options) == 0
    printed = capsys.readouterr().out
    assert "more characters" in printed and "x!" not in printed
    assert program.main([*options, "--id", "case"]) == 0
    assert "x!" in capsys.readouterr().out


def test_one_question_can_be_asked_for_even_if_it_is_right(evaluation, capsys):
    program.main([str(evaluation), "--id", "right", "--no-counterexamples", "--workers", "1"])
    printed = capsys.readouterr().out
    assert "the answers to 1 questions" in printed and "verdict:   match" in printed
    assert "guess:" not in printed and "whose fault" not in printed
    assert not (evaluation / "failures.jsonl").exists()
    with pytest.raises(UserError, match="has no such question"):
        program.main([str(evaluation), "--id", "q9"])


def test_what_cannot_be_explained_leaves_the_file_alone(evaluation, tmp_path):
    (evaluation / "failures.jsonl").write_text("as it was")
    with pytest.raises(UserError, match="--databases .* does not exist"):
        program.main([str(evaluation), "--databases", str(tmp_path / "typo")])
    row = {"question_id": "right", "candidate": 0, "key": "gold", "grader": "soft-f1"}
    row |= {"kind": "match", "correct": None, "value": 1.0}
    with open(evaluation / "verdicts.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="'soft-f1' gives a number, not right or wrong"):
        program.main([str(evaluation), "--grader", "soft-f1"])
    assert (evaluation / "failures.jsonl").read_text() == "as it was"


def test_missing_databases_do_not_stop_it(evaluation, tmp_path, capsys):
    assert program.main([str(evaluation), "--databases", str(tmp_path), "--workers", "1"]) == 0
    assert "gold: not run" in capsys.readouterr().out
    (evaluation / "manifest.json").unlink()
    with pytest.raises(UserError, match="give --databases"):
        program.main([str(evaluation)])


def outcome(*rows, columns=1):
    return Outcome("ok", columns=tuple("abc"[:columns]), rows=[tuple(row) for row in rows])


@pytest.mark.parametrize(
    ("expected", "signs"),
    [
        ("model", {"pred": None}),
        ("model", {}),
        ("defect/database", {"gold_outcome": Outcome("error")}),
        ("defect/database", {"gold_outcome": outcome()}),
        ("defect/question", {"question": "Which are older than 30?", "pred": "SELECT a > 30"}),
        ("defect/knowledge", {"evidence": "adult means flag = 'Grown'", "pred": "SELECT 'Grown'"}),
        ("ambiguity/output", {"pred_outcome": outcome((1, 5), (2, 6), columns=2)}),
        ("ambiguity/output", {"found": [Difference("DISTINCT", "")]}),
        ("ambiguity/reading", {"found": [Difference("limit", ""), Difference("order", "")]}),
        ("ambiguity/names", {"found": [Difference("other column", "")]}),
        ("model", {"found": [Difference("other column", ""), Difference("missing filter", "")]}),
    ],
)
def test_the_first_sign_decides(expected, signs):
    usual = {
        "question": "Which?",
        "evidence": "",
        "gold": "SELECT a FROM t",
        "pred": "SELECT b FROM t",
        "found": [],
        "gold_outcome": outcome((1,), (2,)),
        "pred_outcome": outcome((3,), (4,)),
    }
    found = guess(**usual | signs)
    assert found.name == expected and found.why


def test_columns_with_the_same_values_paired_otherwise_are_no_matter_of_form():
    found = guess(
        question="?",
        evidence="",
        gold="SELECT a, b FROM t",
        pred="SELECT a, c FROM t",
        found=[],
        gold_outcome=outcome((1, "x"), (2, "y"), columns=2),
        pred_outcome=outcome((1, "y"), (2, "x"), columns=2),
    )
    assert found.name == "model"
