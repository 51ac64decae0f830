"""The program from its options to its files, and on from wherever it was killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.eval import judging
from jax_t2sql.eval.__main__ import main
from jax_t2sql.scores.graders import grade_answers
from jax_t2sql.scores.records import AnswerRow, VerdictRow, read_rows
from jax_t2sql.scores.summary import proxy_test

ROOT = Path(__file__).resolve().parents[2]
PREDICTIONS = [
    {"question_id": "q0", "pred": "SELECT 3"},
    {"question_id": "q1", "pred": "SELECT a FROM t ORDER BY a DESC", "prompt_tokens": 9},
    {"question_id": "q2", "pred": "SELEC"},
    {"question_id": "q3", "pred": "SELECT 1 WHERE 0"},
]


def test_a_file_is_scored_under_every_grader(shop, tmp_path):
    policy = f"file:{shop.predict(PREDICTIONS)}"
    found = shop.run(policy, tmp_path / "out", "--grader", "set,list")
    assert (found["n"], found["correct"], found["grader"]) == (4, 3, "set")
    assert found["wilson_low"] < found["accuracy"] == 0.75 < found["wilson_high"]
    assert found["by"]["difficulty"]["hard"]["correct"] == 1
    assert found["graders"]["list"]["correct"] == 2
    assert found["manifest"]["questions"]["n"] == 4
    assert len(found["manifest"]["databases"]["sha256"]["shop"]) == 64
    assert (tmp_path / "out" / "report.html").is_file()
    rows = read_rows(tmp_path / "out" / "verdicts.jsonl", VerdictRow)
    assert len(rows) == 8 and {row.key for row in rows} == {"gold"}


def test_questions_without_a_prediction_are_told(shop, tmp_path, capsys):
    found = shop.run(f"file:{shop.predict(PREDICTIONS[:1])}", tmp_path / "out")
    assert (found["n"], found["correct"], found["answered"]) == (4, 1, 0.25)
    told = "3 of 4 answers hold no query and count as wrong: 3 no query"
    assert told in capsys.readouterr().out


def test_what_the_machine_left_open_is_tried_again(shop, tmp_path, capsys, monkeypatch):
    def failing(*args, **options):
        for rows in grade_answers(*args, **options):
            yield [
                msgspec.structs.replace(row, kind="infrastructure", correct=None)
                if row.question_id == "q0"
                else row
                for row in rows
            ]

    policy = f"file:{shop.predict(PREDICTIONS)}"
    with monkeypatch.context() as patch:
        patch.setattr(judging, "grade_answers", failing)
        assert shop.run(policy, tmp_path / "out")["n"] == 3
    assert "1 questions do not count" in capsys.readouterr().out
    assert shop.run(policy, tmp_path / "out")["n"] == 4
    rows = read_rows(tmp_path / "out" / "verdicts.jsonl", VerdictRow)
    assert sorted(row.question_id for row in rows) == ["q0", "q1", "q2", "q3"]


def test_several_predictions_of_a_question_are_voted_on(shop, tmp_path):
    samples = [
        {"question_id": name, "pred": sql}
        for name, sqls in {
            "q0": ["SELECT 3", "SELECT 4", "SELECT 3.0"],
            "q1": ["SELECT 1", "SELECT 2", "SELECT 1"],
            "q2": ["SELECT 2", "SELEC", "SELECT nothing"],
            "q3": ["SELECT 1"],
        }.items()
        for sql in sqls
    ]
    found = shop.run(f"file:{shop.predict(samples)}", tmp_path / "out")
    assert found["decoding"] == "self-consistency of 3"
    assert found["accuracy"] == 0.5 and found["correct"] == 2
    assert found["by"]["difficulty"]["easy"]["correct"] == 1
    assert found["graders"]["question"]["correct"] == 2
    votes = found["graders"]["question"]["votes"]
    assert votes["accuracy"] == 0.5 and votes["candidates"] == 3 and votes["n"] == 4
    curve = found["self_consistency"]
    assert curve["by_question"] == {"q0": 1.0, "q1": 0.0, "q2": 1.0, "q3": 0.0}
    # Pass@1: two of three, none, one of three, none.
    assert curve["pass_at_k"][0] == pytest.approx((2 / 3 + 0 + 1 / 3 + 0) / 4)
    rows = read_rows(tmp_path / "out" / "answers.jsonl", AnswerRow)
    assert {row.candidate for row in rows} == {1, 2, 3}


def test_what_is_tested_against_the_proxy_is_the_mean_of_the_draws(shop, tmp_path):
    right = {"q0": "3", "q1": "a FROM t", "q2": "2", "q3": "1 WHERE 0"}
    tied = [
        {"question_id": name, "pred": f"SELECT {sql}"}
        for name, good in right.items()
        for sql in (good, "'wrong'")
    ]
    found = shop.run(f"file:{shop.predict(tied)}", tmp_path / "out", "--seed", "3")
    first_draw = found["graders"]["question"]
    assert round(found["correct"]) != first_draw["correct"]
    assert found["proxy"] == proxy_test(found, 0.9296) != proxy_test(first_draw, 0.9296)


def test_an_id_that_occurs_twice_is_told_and_not_guessed_at(shop, tmp_path, capsys):
    shop.questions.write_text(shop.questions.read_text() * 2)
    with pytest.raises(UserError, match="question_id 'q0' occurs more than once"):
        shop.run(f"file:{shop.predict(PREDICTIONS)}", tmp_path / "out")
    assert "4 questions have the id of another one and are called 'q0#2'" in capsys.readouterr().err
    both = PREDICTIONS + [row | {"question_id": f"{row['question_id']}#2"} for row in PREDICTIONS]
    assert shop.run(f"file:{shop.predict(both)}", tmp_path / "out2")["n"] == 8


def test_what_a_file_lacks_or_has_too_much_of_is_told(shop, tmp_path, capsys):
    path = shop.predict([PREDICTIONS[0], PREDICTIONS[0], PREDICTIONS[1]])
    shop.run(f"file:{path}", tmp_path / "out")
    said = capsys.readouterr()
    rows = read_rows(tmp_path / "out" / "answers.jsonl", AnswerRow)
    assert len(rows) == 5, "two samples of the first, one line for each of the others"
    assert "2 of 4 questions have no prediction: they are wrong" in said.err
    assert "1 of 4 questions have several predictions, up to 2" in said.err
    assert "all is the mean of 5 draws of the vote" in said.out


def test_what_it_cost(shop, tmp_path, capsys):
    rows = [row | {"prompt_tokens": 900, "completion_tokens": 100} for row in PREDICTIONS]
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"mine": {"input": 10, "output": 100}}}')
    options = ("--model", "mine", "--prices", prices)
    found = shop.run(f"file:{shop.predict(rows)}", tmp_path / "out", *options)
    assert "cost: $0.076, $25.33 for 1,000 correct" in capsys.readouterr().out
    assert found["cost"]["dollars"] == pytest.approx(4 * 0.019)
    assert found["cost"]["dollars_per_1000_correct"] == pytest.approx(1000 * 4 * 0.019 / 3)


def test_keys_that_disagree_are_listed(shop, tmp_path):
    other = shop.write(
        shop.root / "other.jsonl", {"q0": "SELECT 4", "q3": "SELECT a FROM t WHERE 0"}
    )
    policy = f"file:{shop.predict(PREDICTIONS)}"
    found = shop.run(policy, tmp_path / "out", "--keys", f"corrected={other}")
    assert found["keys"]["gold"]["correct"] == 3 and found["keys"]["corrected"]["n"] == 2
    (flip,) = found["key_disagreements"]
    assert flip == {"question_id": "q0", "correct": {"gold": True, "corrected": False}}
    assert [row["question_id"] for row in found["differing_golds"]] == ["q0"]


def test_of_samples_the_winner_of_the_vote_is_held_against_every_key(shop, tmp_path):
    other = shop.write(shop.root / "other.jsonl", {"q0": "SELECT 4"})
    samples = [{"question_id": "q0", "pred": f"SELECT {n}"} for n in (4, 3, 3)]
    policy = f"file:{shop.predict(samples)}"
    found = shop.run(policy, tmp_path / "out", "--keys", f"corrected={other}")
    assert (found["keys"]["gold"]["correct"], found["keys"]["corrected"]["correct"]) == (1, 0)
    (flip,) = found["key_disagreements"]
    assert flip == {"question_id": "q0", "correct": {"gold": True, "corrected": False}}


def test_a_submission_is_written(shop, tmp_path):
    policy = f"file:{shop.predict(PREDICTIONS)}"
    shop.run(policy, tmp_path / "out", "--write-format", "bird")
    table = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert table["0"] == "SELECT 3\t----- bird -----\tshop" and len(table) == 4
    again = f"file:{tmp_path / 'out' / 'predictions.json'}"
    assert shop.run(again, tmp_path / "again")["correct"] == 3


def test_another_evaluation_does_not_go_into_the_folder(shop, tmp_path):
    policy, out = f"file:{shop.predict(PREDICTIONS)}", tmp_path / "out"
    shop.run(policy, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = shop.predict(PREDICTIONS[:2], "other.jsonl")
    for answered_by, options, told in (
        (f"file:{other}", (), "model.file was"),
        (policy, ("--questions", "2"), "questions.n was 4, now 2"),
        (policy, ("--seconds", "9"), "limits.seconds was 30.0, now 9.0"),
        (policy, ("--seed", "7"), "seed was 0, now 7"),
    ):
        with pytest.raises(UserError, match=f"holds another evaluation: .*{told}"):
            main(shop.arguments(answered_by, out, *options))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_another_grader_may_be_added(shop, tmp_path):
    policy, out = f"file:{shop.predict(PREDICTIONS)}", tmp_path / "out"
    shop.run(policy, out, "--grader", "set")
    found = shop.run(policy, out, "--grader", "list,set")
    assert (found["grader"], found["correct"]) == ("list", 2)
    assert len(read_rows(out / "verdicts.jsonl", VerdictRow)) == 8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--candidates", "2"), "has what it has"),
        (("--show-evidence", "both"), "has what it has"),
        (("--grader", "exact"), "exact"),
        (("--grader", "soft-f1,set"), "gives a number"),
        (("--prices", "nowhere.json"), "--prices nowhere.json cannot be read"),
        (("--device-hour-price", "2"), "needs --device-hours"),
    ],
)
def test_options_that_do_not_fit(shop, tmp_path, options, told):
    with pytest.raises(UserError, match=told):
        main(shop.arguments(f"file:{shop.predict(PREDICTIONS)}", tmp_path / "out", *options))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_all_faults_of_the_input_are_told_at_once(shop, tmp_path):
    arguments = shop.arguments(
        "local:no/such/model.gguf", tmp_path / "out", "--prices", "nowhere.json"
    )
    arguments[arguments.index(str(shop.databases))] = "no/databases"
    with pytest.raises(
        UserError, match=r"3 faults(.|\n)*1\. no/databases(.|\n)*2\. --prices(.|\n)*3\. "
    ):
        main(arguments)


def test_a_file_is_scored_without_loading_a_model():
    code = "import sys, jax_t2sql.eval.run; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_nothing_is_written_over_what_is_read(shop, tmp_path):
    path = shop.predict(PREDICTIONS)
    with pytest.raises(UserError, match="holds the file of --"):
        main(shop.arguments(f"file:{path}", shop.root))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "verdicts.jsonl").write_text("{}")
    with pytest.raises(UserError, match="holds verdicts.jsonl but no manifest.json"):
        main(shop.arguments(f"file:{path}", tmp_path / "old"))


def figures(out: Path) -> dict:
    """results.json without what a clock decides."""
    return json.loads((out / "results.json").read_text())


def test_killed_at_random_it_ends_with_the_same_figures(shop, tmp_path):
    """Kills land anywhere: before the first answer, between two verdicts, after the results."""
    samples = [row | {"pred": f"{row['pred']} /* {i} */"} for row in PREDICTIONS for i in range(50)]
    policy = f"file:{shop.predict(samples)}"
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    shop.run(policy, whole, "--grader", "set,list")
    command = [sys.executable, "-m", "jax_t2sql.eval"]
    command += shop.arguments(policy, torn, "--grader", "set,list")
    random_ = random.Random(5)
    for at in ("answers.jsonl", "verdicts.jsonl"):
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not (torn / at).exists():
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for name in ("answers.jsonl", "executions.jsonl", "verdicts.jsonl"):
            if (torn / name).exists():  # as if the kill had struck in the middle of a line
                data = (torn / name).read_bytes()
                (torn / name).write_bytes(data[: random_.randint(0, len(data))])
    assert main(command[3:]) == 0
    assert figures(torn) == figures(whole)
    for name, kind in (("answers.jsonl", AnswerRow), ("verdicts.jsonl", VerdictRow)):
        assert sorted(map(repr, read_rows(torn / name, kind))) == sorted(
            map(repr, read_rows(whole / name, kind))
        )
