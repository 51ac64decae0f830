"""The questions of a run: read, checked by running every gold query, split into parts.

What cannot be learned from is set aside, with the reason.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_pipelines.mixture import merge, parse_mixture
from data_pipelines.splits import split_by_hash
from jax_t2sql.config import DataConfig
from jax_t2sql.datasets import heldout_split, open_data
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool, check_golds
from jax_t2sql.text2sql import Problem


@dataclass(frozen=True)
class Questions:
    """The questions of a run after every unusable one was set aside.

    Attributes:
      train, heldout, warmup: usable questions.
      databases, heldout_databases: where their databases lie.
      unseen: ids of held-out questions whose template never occurs in training; None where
        questions have no templates.
      excluded: (question, reason) of those set aside.
      doubts: (question, reason) of those kept although part of the gold's answer is chance.
      shares: parts of the draws of sources that are mixed in.
    """

    train: list[Problem]
    heldout: list[Problem]
    warmup: list[Problem]
    databases: Path
    heldout_databases: Path
    unseen: frozenset[str] | None = None
    excluded: tuple[tuple[Problem, str], ...] = ()
    doubts: tuple[tuple[Problem, str], ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)


def load_questions(
    data: DataConfig,
    *,
    pool: GradingPool,
    need_warmup: bool,
    say: Callable[[str], None] = lambda text: None,
) -> Questions:
    """Reads questions, runs every gold query once, and sets aside what cannot be learned from.

    Args:
      data: resolved.
      pool: runs the golds.
      need_warmup: whether there is a supervised warm-up.
      say: is told what is set aside.

    Raises:
      UserError: a file or database is missing or broken, or nothing usable is left.
    """
    opened = open_data(data.train, data.databases)
    train, databases = list(opened.problems), opened.databases
    published = heldout_split(data.train)
    if data.eval is not None:
        split = heldout_split(data.eval) or "val"
        held = open_data(data.eval, data.eval_databases or data.databases, split=split)
        heldout, heldout_databases = list(held.problems), held.databases
    elif published is not None and "@" not in Path(data.train).name:
        held = open_data(f"{data.train}@{published}", data.eval_databases or data.databases)
        heldout, heldout_databases = list(held.problems), held.databases
    else:
        train, heldout = split_by_hash(train, data.eval_share)
        heldout_databases = databases
    shares: dict[str, float] = {}
    if data.mix:
        parts = [(opened.name or "data", train, databases)]
        for ingredient in parse_mixture(data.mix):
            part = open_data(ingredient.spec, None)
            parts.append((part.name, part.problems, part.databases))
            shares[part.name] = ingredient.share
        train, databases = merge(parts)
    warmup = []
    if need_warmup:
        warmup = list(open_data(data.warmup, databases).problems) if data.warmup else train

    excluded: list[tuple[Problem, str]] = []
    doubts: list[tuple[Problem, str]] = []
    usable = {}
    for name, problems, folder in (
        ("train", train, databases),
        ("heldout", heldout, heldout_databases),
        ("warmup", warmup, databases),
    ):
        if name == "warmup" and not data.warmup:
            usable[name] = usable["train"] if need_warmup else []
            continue
        if not problems and name != "warmup":
            raise UserError(
                f"no question is left for {name}: --data.eval-share {data.eval_share:g} of"
                f" {len(train) + len(heldout)} questions are held out; give --data.eval, a"
                " held-out file, or another share"
            )
        report = check_golds(problems, folder, pool)
        kept = list(report.kept)
        aside = [(problem, f"{name}: {reason}") for problem, reason in report.quarantined]
        if data.empty_gold == "exclude" and name == "train":
            aside += [
                (problem, f"{name}: empty or all-NULL gold result") for problem in report.empty
            ]
        else:
            kept = _in_order(problems, kept + list(report.empty))
        if aside:
            say(f"{len(aside)} of {len(problems)} {name} questions set aside (see excluded.jsonl)")
        if not kept and problems:
            problem, reason = aside[0]
            raise UserError(
                f"no usable question among the {len(problems)} for {name}; the first,"
                f" {problem.question_id} ({problem.db_id}): {reason}. Correct the gold SQL or the"
                " databases, or give other questions"
            )
        excluded += aside
        doubts += [(problem, f"{name}: {reason}") for problem, reason in report.warnings]
        usable[name] = kept
    return Questions(
        train=usable["train"],
        heldout=usable["heldout"],
        warmup=usable["warmup"],
        databases=databases,
        heldout_databases=heldout_databases,
        unseen=_unseen_ids(data.eval),
        excluded=tuple(excluded),
        doubts=tuple(doubts),
        shares=shares,
    )


def _in_order(problems: Sequence[Problem], kept: Sequence[Problem]) -> list[Problem]:
    ids = {problem.question_id for problem in kept}
    return [problem for problem in problems if problem.question_id in ids]


def _unseen_ids(path: str | None) -> frozenset[str] | None:
    """Ids of questions marked `"seen_template": false`; None if the file has no such mark.

    Only JSON lines have it, as the question generator writes them, each with an id.
    """
    if path is None or Path(path).suffix != ".jsonl":
        return None
    try:
        with open(path, encoding="utf-8-sig") as file:
            rows = [json.loads(line) for line in file if line.strip()]
    except ValueError:  # one array over several lines: a proper question file all the same
        return None
    marked = [row for row in rows if isinstance(row, dict) and "seen_template" in row]
    if not marked:
        return None
    return frozenset(str(row.get("question_id")) for row in marked if row["seen_template"] is False)


def write_reasons(path: Path, found: Sequence[tuple[Problem, str]]) -> None:
    """One JSON line for each question, with what was found about it."""
    with open(path, "w", encoding="utf-8") as file:
        for problem, reason in found:
            row = {
                "question_id": problem.question_id,
                "db_id": problem.db_id,
                "reason": reason,
                "question": problem.question,
                "SQL": problem.gold_sql,
            }
            file.write(json.dumps(row) + "\n")
