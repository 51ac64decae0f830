import json

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.scores import sweep
from jax_t2sql.scores.records import VerdictRow, write_rows
from jax_t2sql.scores.sweep import default_options, find_checkpoints

MARKS = {0: "----", 10: "++--", 20: "+-+-", 30: "++++"}


@pytest.fixture
def workdir(tmp_path):
    """A training run's folder with four checkpoints, and things that are none."""
    names = [f"run-ab-e0-s{step}-0000000{i}" for i, step in enumerate(MARKS)]
    for name in (*names, "run-ab-e1-s20-0000000f", "junk"):
        folder = tmp_path / "bus" / "adapters" / name
        folder.mkdir(parents=True)
        if name != "junk":
            (folder / "adapter_config.json").write_text("{}")
    (tmp_path / "bus" / "adapters" / names[3] / "adapter_config.json").rename(
        tmp_path / "bus" / "adapters" / names[3] / "config.json"
    )
    config = {
        "model": "models/base",
        "data": {"eval": "heldout.jsonl", "databases": "dbs"},
        "prompt": {"style": "direct", "max_tokens": 64, "worked_example": False},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.fixture
def evaluate(question, answer):
    """Stands for the evaluation program, and remembers how it was called."""

    def run(argv):
        run.calls.append(argv)
        out = sweep.Path(argv[argv.index("--out") + 1])
        out.mkdir(parents=True, exist_ok=True)
        marks = MARKS[int(out.name.split("-")[0])]
        names = [f"q{i}" for i in range(len(marks))]
        write_rows(out / "questions.jsonl", [question(n, "SELECT 1") for n in names])
        write_rows(out / "answers.jsonl", [answer(n, "SELECT 1") for n in names])
        verdicts = [
            VerdictRow(
                question_id=n, candidate=0, key="gold", grader="set", kind="", correct=m == "+"
            )
            for n, m in zip(names, marks, strict=True)
        ]
        write_rows(out / "verdicts.jsonl", verdicts)
        return run.status

    run.calls, run.status = [], 0
    return run


def test_every_kept_adapter_is_scored_and_traced(workdir, evaluate, capsys):
    assert sweep.main([str(workdir), "--questions", "4"], evaluate) == 0
    assert [call[1].rpartition("/")[2] for call in evaluate.calls] == [
        "run-ab-e0-s0-00000000",
        "run-ab-e0-s10-00000001",
        "run-ab-e1-s20-0000000f",  # the step was done twice
        "run-ab-e0-s30-00000003",
    ]
    assert evaluate.calls[0][1].startswith("local:models/base+")
    assert evaluate.calls[3][1].startswith(f"local:{workdir}")  # a whole model
    assert evaluate.calls[0][4:] == (
        "--questions 4 --data heldout.jsonl --databases dbs --style direct --max-tokens 64"
        " --no-worked-example".split()
    )
    found = json.loads((workdir / "sweep" / "sweep.json").read_text())
    rows = [
        (s["step"], s["accuracy"], s["solved_once"], s["solved_always"], s["churn"])
        for s in found["steps"]
    ]
    assert rows == [
        (0, 0.0, 0.0, 0.0, None),
        (10, 0.5, 0.5, 0.0, 0.5),
        (20, 0.5, 0.75, 0.0, 0.5),
        (30, 1.0, 1.0, 0.0, 0.5),
    ]
    page = (workdir / "sweep" / "sweep.html").read_text()
    assert "solved at least once: first 0.0%, last 100.0%" in page
    assert "page: " in capsys.readouterr().out


def test_a_failed_evaluation_ends_the_sweep(workdir, evaluate):
    evaluate.status = 3
    assert sweep.main([str(workdir)], evaluate) == 3
    assert len(evaluate.calls) == 1 and not (workdir / "sweep" / "sweep.json").exists()


def test_options_that_are_given_are_left_alone(tmp_path):
    config = {"data": {"eval": "e"}, "prompt": {"style": "tools", "worked_example": True}}
    assert default_options(config, ["--suite", "spider-dev", "--no-worked-example"], tmp_path) == [
        "--style",
        "tools",
    ]
    assert default_options(config, ["--data=x", "--style=direct"], tmp_path) == ["--worked-example"]
    with pytest.raises(UserError, match="give --data and --databases, or --suite"):
        default_options({}, [], tmp_path)


def test_a_world_that_the_run_has_made_is_taken(tmp_path):
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "heldout.jsonl").touch()
    world = tmp_path / "world"
    assert default_options({}, [], tmp_path) == [
        *("--data", str(world / "heldout.jsonl")),
        *("--databases", str(world / "databases")),
    ]


def test_bad_input_is_a_user_error(workdir, evaluate, tmp_path_factory):
    for option in (["--policy", "local:x"], ["--policy=local:x"]):
        with pytest.raises(UserError, match="--policy is set by sweep"):
            sweep.main([str(workdir), *option], evaluate)
    with pytest.raises(UserError, match="holds no weights"):
        find_checkpoints(tmp_path_factory.mktemp("empty"))
    (workdir / "config.json").write_text("{}")
    with pytest.raises(UserError, match="tells no model"):
        sweep.main([str(workdir)], evaluate)
    assert evaluate.calls == []
