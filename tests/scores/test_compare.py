import json

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.scores import ceiling as ceiling_program
from jax_t2sql.scores import compare as compare_program
from jax_t2sql.scores.ceiling import ceiling
from jax_t2sql.scores.compare import compare
from jax_t2sql.scores.records import VerdictRow, write_rows
from jax_t2sql.scores.run import read_run
from jax_t2sql.stats import mcnemar, paired_bootstrap, wilson


@pytest.fixture
def evaluation(tmp_path, question, answer):
    """An evaluation's folder: ``evaluation("a", {"q1": "+", "q2": "-+"})``: marks by candidate;
    "?" cannot be told."""

    def make(name, marks, *, grader="set", gold="SELECT 1", first=0, results=None, hard=()):
        folder = tmp_path / name
        folder.mkdir()
        asked = [
            question(n, gold, text=f"{n}?", difficulty="hard" if n in hard else "easy")
            for n in marks
        ]
        write_rows(folder / "questions.jsonl", asked)
        answers, verdicts = [], []
        for n, row in marks.items():
            for candidate, mark in enumerate(row, start=first):
                answers.append(answer(n, "SELECT 1", candidate=candidate))
                correct = {"+": True, "-": False, "?": None}[mark]
                kind = "match" if correct else "mismatch"
                verdicts.append(
                    VerdictRow(
                        question_id=n,
                        candidate=candidate,
                        key="gold",
                        grader=grader,
                        kind=kind,
                        correct=correct,
                    )
                )
        write_rows(folder / "answers.jsonl", answers)
        write_rows(folder / "verdicts.jsonl", verdicts)
        if results is not None:
            (folder / "results.json").write_text(json.dumps(results))
        return folder

    return make


def test_a_paired_comparison(evaluation):
    first = evaluation("a", {"q1": "+", "q2": "-", "q3": "-", "q4": "+", "q5": "?", "q6": "+"})
    second = evaluation("b", {"q1": "+", "q2": "+", "q3": "+", "q4": "-", "q5": "+"})
    found = compare(read_run(first), read_run(second), grader="set", key="gold", seed=3)
    assert (found["n"], found["left_out"]) == (4, 2)
    assert (found["gained"], found["lost"]) == (["q2", "q3"], ["q4"])
    assert (found["first"]["accuracy"], found["second"]["accuracy"]) == (0.5, 0.75)
    assert (found["first"]["wilson_low"], found["first"]["wilson_high"]) == wilson(2, 4)
    assert found["p_value"] == mcnemar(1, 2)
    interval = paired_bootstrap([1, 0, 0, 1], [1, 1, 1, 0], seed=3)
    assert (found["difference"], found["low"]) == (interval.difference, interval.low)


def test_the_comparison_by_difficulty(evaluation, capsys):
    marks = {"q1": "+", "q2": "-", "q3": "-", "q4": "+", "q5": "+"}, {
        "q1": "+", "q2": "+", "q3": "+", "q4": "-", "q5": "-"}  # fmt: skip
    hard = ("q3", "q4", "q5")
    first, second = (evaluation(n, m, hard=hard) for n, m in zip("ab", marks, strict=True))
    found = compare(read_run(first), read_run(second), grader="set", key="gold")
    parts = found["by"]["difficulty"]
    assert list(parts) == ["easy", "hard"]
    easy, of_hard = parts["easy"], parts["hard"]
    assert (easy["first"]["correct"], easy["second"]["correct"], easy["first"]["n"]) == (1, 2, 2)
    assert (easy["gained"], easy["lost"], of_hard["gained"], of_hard["lost"]) == (1, 0, 1, 2)
    assert of_hard["p_value"] == mcnemar(2, 1)
    assert compare_program.main([str(first), str(second)]) == 0
    printed = capsys.readouterr().out
    assert "difficulty" in printed and "66.7%" in printed


def test_the_program_prints_and_writes_what_it_found(evaluation, tmp_path, capsys):
    first, second = evaluation("a", {"q1": "+", "q2": "-"}), evaluation("b", {"q1": "-", "q2": "-"})
    out = tmp_path / "deep" / "found.json"
    assert compare_program.main([str(first), str(second), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "0 gained, 1 lost: exact McNemar p = 1, may be chance" in printed
    assert "lost:\n  q1 (shop) q1?" in printed and "gained:" not in printed
    assert json.loads(out.read_text())["lost"] == ["q1"]


def test_runs_that_cannot_be_compared_say_why(evaluation, tmp_path):
    first = evaluation("a", {"q1": "+"})
    for second, told in (
        (evaluation("b", {"q9": "+"}), "no graded question in common"),
        (evaluation("c", {"q1": "+"}, gold="SELECT 2"), "1 of 1 questions have another gold query"),
        (evaluation("d", {"q1": "+"}, grader="bird"), "no verdicts of grader 'set'; it has bird"),
        (tmp_path / "none", "none is no folder"),
        (tmp_path, "lacks questions.jsonl, answers.jsonl, verdicts.jsonl"),
    ):
        with pytest.raises(UserError, match=told):
            compare_program.main([str(first), str(second)])
    with pytest.raises(UserError, match="--shown is -1"):
        compare_program.main([str(first), str(first), "--shown", "-1"])


def test_the_headline_grader_is_the_one_that_the_results_name(evaluation):
    run = read_run(evaluation("a", {"q1": "+"}, grader="bird", results={"grader": "bird"}))
    assert run.choose(None, None) == ("bird", "gold")
    (run.folder / "results.json").write_text("[]")
    with pytest.raises(UserError, match="holds no JSON object"):
        read_run(run.folder)


def test_a_run_of_samples_alone_is_scored_by_its_first(evaluation):
    run = read_run(evaluation("a", {"q1": "-+", "q2": "+-"}, first=1))
    assert run.correct("set", "gold") == {"q1": False, "q2": True}


def test_a_run_of_samples_alone_is_scored_by_the_winners_of_its_vote(evaluation):
    results = {
        "decoding": "self-consistency of 3",
        "evidence": True,
        "self_consistency": {"winners": {"q1": 2, "q2": 3, "q3": 2}},
    }
    marks = {"q1": "-+-", "q2": "+-?", "q3": "?+-"}
    run = read_run(evaluation("a", marks, first=1, results=results))
    found = run.correct("set", "gold")
    assert found == {"q1": True, "q2": True, "q3": True}, "one that cannot be told does not count"
    other = {"decoding": "self-consistency of 2", "evidence": False, "without_evidence": results}
    run = read_run(evaluation("b", marks, first=1, results=results | other))
    assert run.correct("set", "gold") == found
    greedy = read_run(evaluation("c", marks, first=0, results=results | {"decoding": "greedy"}))
    assert greedy.correct("set", "gold")["q1"] is False


def test_what_runs_can_do_together(evaluation):
    rows = [
        {"always": "++", "never": "--", "half": "+-", "flips": "+", "turns": "-", "only": "+"},
        {"always": "+", "never": "-", "half": "-", "flips": "-", "turns": "-"},
        {"always": "+", "never": "-", "half": "-", "flips": "+", "turns": "+"},
    ]
    runs = [read_run(evaluation(f"r{i}", row)) for i, row in enumerate(rows)]
    found = ceiling(runs, grader="set", key="gold")
    assert found["n"] == 5 and found["best"] == (1 + 0 + 0.5 + 1 + 1) / 5
    assert (found["reliably"], found["sometimes"], found["never"]) == (0.2, 0.6, 0.2)
    assert found["flipping"] == [{"question_id": "flips", "flips": 2}]
    assert found["questions"]["half"] == [0.5, 0, 0]
    assert [run["correct"] for run in found["runs"]] == [3, 1, 3]


def test_the_ceiling_program(evaluation, tmp_path, capsys):
    folders = [evaluation("a", {"q1": "+", "q2": "-"}), evaluation("b", {"q1": "-", "q2": "-"})]
    out = tmp_path / "found.json"
    assert ceiling_program.main([*map(str, folders), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 questions keep flipping" in printed and "q1 (shop, 1×) q1?" in printed
    assert json.loads(out.read_text())["sometimes"] == 0.5
    with pytest.raises(UserError, match="no run is named"):
        ceiling_program.main([])
