"""After training: which rewarded queries stop matching when the data change a little?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.json_rows import json_rows
from jax_t2sql.sql import resolve_database
from jax_t2sql.stats import wilson


@dataclass(frozen=True)
class PerturbedReport:
    """What became of the rewarded queries.

    Attributes:
      rewarded: records whose answer was right; distinct: pairs of queries among them.
      broken: distinct pairs that some copy tells apart, each with its record and the reason.
      undecided: distinct pairs that could not be run on any copy.
    """

    rewarded: int
    distinct: int
    broken: tuple[tuple[dict, str], ...]
    undecided: int

    @property
    def share(self) -> float:
        return len(self.broken) / self.distinct if self.distinct else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the share."""
        return wilson(len(self.broken), self.distinct)


def read_records(path: Path) -> list[dict]:
    """Records of a run's samples.jsonl, of evaluations/*.jsonl or of eval's verdicts.jsonl.

    Raises:
      UserError: the file is something else.
    """
    try:
        with open(path, "rb") as file:
            records = [record for _, record in json_rows(file, path)]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    needed = {"db_id", "gold_sql", "predicted_sql", "verdict"}
    for number, record in enumerate(records, start=1):
        # A question that was not put has a verdict and no queries.
        if not isinstance(record, dict) or "verdict" not in record:
            raise UserError(
                f"{path}: row {number} has no verdict; give samples or verdicts of a run"
            )
    return [record for record in records if needed <= record.keys() and record["predicted_sql"]]


def check_rewarded(
    records: Sequence[dict],
    databases: Path,
    *,
    copies: int = 10,
    limit: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> PerturbedReport:
    """Runs each rewarded query beside its gold on perturbed copies of the database.

    Args:
      records: of `read_records`.
      databases: folder of the databases, or the one file.
      copies: of each database, made from its own rows.
      limit: at most so many distinct pairs.
      seed: of the copies.
    """
    from jax_t2sql.equivalence.perturb import check_perturbed  # loads the checker

    rewarded = [r for r in records if r["verdict"] == "equal"]
    pairs = {(r["db_id"], r["gold_sql"], r["predicted_sql"]): r for r in rewarded}
    chosen = list(pairs.values())[:limit]
    broken, undecided = [], 0
    for number, record in enumerate(chosen, start=1):
        verdict = check_perturbed(
            record["gold_sql"],
            record["predicted_sql"],
            resolve_database(databases, record["db_id"]),
            grading=record.get("grading") or "set",
            copies=copies,
            seed=seed,
        )
        if verdict.kind == "refuted":
            broken.append((record, verdict.reason))
        elif verdict.broken is None:
            undecided += 1
        if number % 50 == 0:
            say(f"{number} of {len(chosen)} pairs")
    return PerturbedReport(len(rewarded), len(chosen), tuple(broken), undecided)
