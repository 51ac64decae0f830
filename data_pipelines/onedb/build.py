"""Puts a pool together: scan, legend, draw, evidence, rows, report."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_pipelines.onedb.evidence import evidence_lines, question_legend
from data_pipelines.onedb.features import Comparison, Features, compare_features, read_features
from data_pipelines.onedb.leak import LeakCheck
from data_pipelines.onedb.legend import draft
from data_pipelines.onedb.legend_file import load
from data_pipelines.onedb.live import Live
from data_pipelines.onedb.pool import Pool, Question, draw_pool
from data_pipelines.onedb.scan import scan_database
from jax_t2sql.errors import UserError
from jax_t2sql.sql import Limits, Sandbox
from jax_t2sql.sql.database import check_database
from jax_t2sql.text2sql import Problem, load_problems
from jax_t2sql.text2sql.descriptions import find_descriptions, read_descriptions

# Counts changes of the generator's output.
RECIPE = 1
DIFFICULTIES = {1: "simple", 2: "moderate", 3: "challenging", 4: "challenging"}


@dataclass(frozen=True)
class Built:
    """A pool with what there is to tell about it.

    Attributes:
      rows: in the question format, with tier, family, register, features and provenance.
      pool: as drawn.
      comparison: with the test set, None without one.
      leak: what was held against the pool, None without.
    """

    rows: list[dict]
    pool: Pool
    comparison: Comparison | None
    leak: LeakCheck | None


@contextlib.contextmanager
def open_live(database: Path, legend: Path | None, *, seconds: float = 10.0) -> Iterator[Live]:
    """Scans a database and opens it for drawing.

    Raises:
      UserError: the database or the legend cannot be used.
    """
    path = check_database(database)
    scan = scan_database(path)
    if legend is None:
        words = draft(scan, read_descriptions(find_descriptions(path)))
    else:
        words = load(legend, scan)
    with Sandbox(path, limits=Limits(seconds=seconds, max_rows=20_000)) as sandbox:
        yield Live(scan, words, sandbox)


def problems_on(path: Path, db_id: str) -> list[Problem]:
    """The questions of a test file on this database.

    Raises:
      UserError: there are none, so that nothing would be checked.
    """
    problems = load_problems(path)
    found = [p for p in problems if p.db_id == db_id]
    if not found:
        others = sorted({p.db_id for p in problems})
        raise UserError(
            f"--leak-check {path}: no question is on {db_id!r}; it has questions on"
            f" {', '.join(others[:8])}{'…' if len(others) > 8 else ''}"
        )
    return found


def build_pool(
    live: Live,
    count: int,
    *,
    seed: int,
    test: Sequence[Problem] = (),
    evidence_share: float = 0.3,
    whole_legend: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Built:
    """Draws a pool and makes its rows.

    Args:
      live: the database.
      count: rows wanted.
      seed: of all draws.
      test: questions whose queries and results must not be in the pool.
      evidence_share: share of the rows that carry evidence lines.
      whole_legend: these rows carry the whole legend besides.

    Raises:
      UserError: nothing can be asked of this database.
    """
    leak = LeakCheck.of([p.gold_sql for p in test], live.sandbox) if test else None
    pool = draw_pool(live, count, seed=seed, leak=leak, say=say)
    if not pool.questions:
        raise UserError(
            f"{live.scan.path}: no question came of {sum(pool.faults.values())} drafts; the tables"
            " have too few rows, or the legend excludes their columns"
        )
    features = [read_features(question.draft.sql) for question in pool.questions]
    rng = random.Random(f"evidence/{live.scan.db_id}/{seed}")
    digest = hashlib.sha256(live.scan.path.read_bytes()).hexdigest()
    rows = [
        _row(live, question, found, number, seed, digest)
        for number, (question, found) in enumerate(zip(pool.questions, features, strict=True))
    ]
    for row, question in zip(rows, pool.questions, strict=True):
        if rng.random() < evidence_share:
            told = "; ".join(evidence_lines(question, live))
            row["evidence"] = question_legend(live, told) if whole_legend else told
    comparison = None
    if test:
        comparison = compare_features(features, [read_features(p.gold_sql) for p in test])
    return Built(rows, pool, comparison, leak)


def _row(
    live: Live,
    question: Question,
    features: Features,
    number: int,
    seed: int,
    digest: str,
) -> dict:
    made = question.draft
    return {
        "question_id": f"{live.scan.db_id}-{seed}-{number:05d}",
        "db_id": live.scan.db_id,
        "question": question.text,
        "evidence": "",
        "SQL": made.sql,
        "difficulty": DIFFICULTIES[made.tier],
        "grading_method": made.grading,
        "tier": made.tier,
        "family": made.family,
        "register": question.register,
        "join_path": made.path,
        "features": sorted(features.names),
        "provenance": {
            "generator": f"data_pipelines.onedb/{RECIPE}",
            "seed": seed,
            "database_sha256": digest,
        },
    }


def report(built: Built, live: Live, wanted: int) -> dict:
    """What became of the build, as plain data."""
    pool = built.pool
    missed = sorted(set(pool.paths) - pool.covered)
    made = {name: count for name, count in pool.by_family.items() if count}
    comparison = built.comparison
    return {
        "database": str(live.scan.path),
        "questions": len(built.rows),
        "wanted": wanted,
        "tiers": dict(sorted(Counter(row["tier"] for row in built.rows).items())),
        "registers": dict(sorted(Counter(row["register"] for row in built.rows).items())),
        "families": made,
        "families_without_questions": sorted(set(pool.by_family) - set(made)),
        "join_paths": len(pool.paths),
        "join_paths_covered": len(pool.covered),
        "join_paths_missed": missed,
        "turned_away": dict(pool.faults.most_common()),
        "test_questions": built.leak.questions if built.leak else None,
        "features": [list(row) for row in comparison.rows] if comparison else None,
        "missing_in_pool": list(comparison.missing) if comparison else None,
        "skipped_in_database": list(live.scan.skipped),
    }


def to_problems(rows: Sequence[dict]) -> list[Problem]:
    """Rows of a pool as questions."""
    return [
        Problem(
            question_id=str(row.get("question_id", number)),
            db_id=row["db_id"],
            question=row["question"],
            gold_sql=row["SQL"],
            evidence=row.get("evidence") or "",
            grading=row.get("grading_method") or "set",
            difficulty=row.get("difficulty"),
        )
        for number, row in enumerate(rows)
    ]


def write_rows(rows: Sequence[dict], out: Path) -> None:
    """Writes JSON lines; the file appears whole or not at all."""
    from jax_t2sql.whole_file import whole_file

    with whole_file(out) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
