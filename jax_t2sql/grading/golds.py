"""Finding, before anything is learnt from them, the questions whose gold query cannot serve."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jax_t2sql.errors import UserError
from jax_t2sql.grading.pool import GradingPool
from jax_t2sql.sql import resolve_database

if TYPE_CHECKING:
    from jax_t2sql.text2sql import Problem


@dataclass(frozen=True)
class GoldReport:
    """What became of each problem; the three parts hold them all, each in the order given.

    Attributes:
      kept: the gold query runs and, graded against itself, is right.
      quarantined: (problem, reason): it fails, is too slow or large, changes from run to run, or
        its database or mode is unusable.
      empty: it gives no rows or only NULL, so any empty answer would match: nothing to reward.
      warnings: (problem, reason) of problems that are kept: part of the gold's answer is chance
        (ties cut by LIMIT or ordered at will, NULL sorted first), or it barely keeps to the limits.
    """

    kept: list["Problem"]
    quarantined: list[tuple["Problem", str]]
    empty: list["Problem"]
    warnings: list[tuple["Problem", str]] = field(default_factory=list)


def check_golds(
    problems: Sequence["Problem"], databases: str | os.PathLike, pool: GradingPool
) -> GoldReport:
    """Runs every gold query in the pool, graded against itself.

    Args:
      problems: anything with `db_id`, `gold_sql` and `grading`.
      databases: as for `resolve_database`.
      pool: its limits for golds hold.

    Raises:
      UserError: no problem at all has a database: the folder is wrong, not the data.
    """
    report = GoldReport([], [], [])
    paths: dict[str, str] = {}
    faults: dict[str, UserError] = {}
    for db_id in dict.fromkeys(problem.db_id for problem in problems):
        try:
            paths[db_id] = str(resolve_database(databases, db_id))
        except UserError as error:
            faults[db_id] = error
    if faults and not paths:
        raise next(iter(faults.values()))

    checks = []
    for problem in problems:
        try:
            if problem.db_id in faults:
                raise faults[problem.db_id]
            path = paths[problem.db_id]
            checks.append(pool.check_gold(path, problem.gold_sql, problem.grading))
        except UserError as error:
            checks.append(error)
    for problem, check in zip(problems, checks, strict=True):
        if isinstance(check, UserError):
            report.quarantined.append((problem, str(check)))
            continue
        verdict = check.result()
        if verdict.status == "equal":
            report.kept.append(problem)
            report.warnings.extend((problem, warning) for warning in verdict.warnings)
        elif verdict.status == "gold_empty":
            report.empty.append(problem)
        else:
            report.quarantined.append((problem, verdict.detail))
    return report
