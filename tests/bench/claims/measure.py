"""What is measured of a finished run."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import data

from jax_t2sql.grading import GradeJob, GradingPool
from jax_t2sql.sql import parse_mode, resolve_database
from jax_t2sql.sql.profile import profile
from jax_t2sql.tracking import read_metrics

Share = tuple[int, int]  # so many of so many
Value = Share | float

# Steps at either end of a run over which lengths are averaged.
_ENDS = 10


def measure(letter: str, workdir: Path, heldout: Path, second: Path) -> dict[str, Value]:
    """All measures of a claim's arm, by name.

    Args:
      letter: of the claim.
      workdir: of the finished run.
      heldout: its held-out questions.
      second: databases of the same schemas with other rows.
    """
    answers = data.read(workdir / "evaluations" / "after.jsonl")
    rows = [row for row in read_metrics(workdir) if row["phase"] == "rl"]
    found: dict[str, Value] = {"accuracy": _share(answers, lambda a: a["correct"])}
    found |= MEASURES[letter](answers, rows, workdir, heldout, second)
    return found


def _doubles(answers, rows, workdir, heldout, second) -> dict[str, Value]:
    wanted = [a for a in answers if profile(a["gold_sql"]).distinct]
    others = [a for a in answers if not profile(a["gold_sql"]).distinct]
    return {
        "DISTINCT where the gold has it": _share(wanted, _says_distinct),
        "DISTINCT where it has none": _share(others, _says_distinct),
    }


def _says_distinct(answer: dict) -> bool:
    return profile(answer.get("predicted_sql") or "").distinct


def _lengths(answers, rows, workdir, heldout, second) -> dict[str, Value]:
    lengths = [row["completion_tokens_mean"] for row in rows]
    return {
        "tokens an answer, first steps": _mean(lengths[:_ENDS]),
        "tokens an answer, last steps": _mean(lengths[-_ENDS:]),
        "held out, cut off": _share(answers, lambda a: a.get("ending") == "cut_off"),
    }


def _luck(answers, rows, workdir, heldout, second) -> dict[str, Value]:
    """Answers right on the first databases whose result differs on the second."""
    right = [a for a in answers if a["correct"]]
    jobs = [
        GradeJob(
            resolve_database(second, a["db_id"]),
            a["gold_sql"],
            a["predicted_sql"],
            a["grading"] if isinstance(a["grading"], str) else str(parse_mode(a["grading"])),
        )
        for a in right
    ]
    with GradingPool(1) as pool:
        verdicts = pool.grade_many(jobs)
    lucky = sum(not verdict.matches for verdict in verdicts)
    return {
        "right by luck, of the right": (lucky, len(right)),
        "right on both databases": (len(right) - lucky, len(answers)),
    }


def _withheld(answers, rows, workdir, heldout, second) -> dict[str, Value]:
    names = {row["question_id"] for row in data.read(heldout) if data.is_withheld(row)}
    mine = [a for a in answers if a["question_id"] in names]
    before = data.read(workdir / "evaluations" / "before.jsonl")
    early = [a for a in before if a["question_id"] in names]
    return {
        "withheld kinds, before RL": _share(early, lambda a: a["correct"]),
        "withheld kinds, after RL": _share(mine, lambda a: a["correct"]),
        "hinted groups with some right": _mean(
            [row["hinted_mixed_share"] for row in rows if "hinted_mixed_share" in row]
        ),
    }


def _pace(answers, rows, workdir, heldout, second) -> dict[str, Value]:
    evaluations = [r for r in read_metrics(workdir) if r["phase"] == "eval"]
    half = [r for r in evaluations if r["step"] <= rows[-1]["step"] / 2][-1]
    questions = len((workdir / "solves.jsonl").read_bytes().splitlines())
    result = json.loads((workdir / "result.json").read_text())
    return {
        "accuracy at half": (half["eval_correct"], half["eval_n"]),
        "groups with signal": 1 - _mean([row["zero_signal_share"] for row in rows]),
        "questions sampled": float(questions),
        "minutes": float(result["minutes"]),
    }


MEASURES: dict[str, Callable[..., dict[str, Value]]] = {
    "a": _doubles,
    "b": _lengths,
    "c": _luck,
    "d": _withheld,
    "e": _pace,
    "f": _pace,
}


def _share(answers: Sequence[dict], holds: Callable[[dict], bool]) -> Share:
    return sum(bool(holds(answer)) for answer in answers), len(answers)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else float("nan")
