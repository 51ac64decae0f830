"""All graders over real predictions: CPU seconds cold and from a memo, and verdicts unlike labels.

    python tests/bench/scores.py [--data DIR] [--graders question,set,multiset,list,bird] [--most N]

"cold": nothing known; "warm": every verdict in the memo's file, a new pool. CPU time counts the
caller and the workers, their start included. The labels that come with the predictions are the
public BIRD evaluator's rule (eq_set, for set and bird) and stricter ones.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from grader import cpu_seconds

from jax_t2sql.grading import GradingPool
from jax_t2sql.scores.graders import VALUED, grade_answers, parse_graders
from jax_t2sql.scores.memo import Memo
from jax_t2sql.scores.records import AnswerRow, Gold, QuestionRow
from jax_t2sql.sql import resolve_database

_LABELS = {"bird": "eq_set", "set": "eq_set", "multiset": "eq_multiset", "list": "eq_list"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--graders", default="question,set,multiset,list,bird")
    parser.add_argument("--most", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    graders = parse_graders(args.graders)
    path = args.data / "test_suite" / "spider_dev_predictions.jsonl"
    rows = [json.loads(line) for line in path.open()][: args.most]
    databases = args.data / "spider_dev" / "database"
    questions = {
        row["id"]: QuestionRow(
            question_id=row["id"],
            db_id=row["db_id"],
            question="",
            golds={"": Gold(sql=row["gold"])},
        )
        for row in rows
    }
    answers = [
        AnswerRow(
            question_id=row["id"], candidate=0, decoding="greedy", ending="answer", sql=row["pred"]
        )
        for row in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cold", "warm"):
            cpu, wall = time.process_time(), time.perf_counter()
            with GradingPool(args.workers) as pool, Memo(Path(folder) / "memo.sqlite") as memo:
                bursts = grade_answers(
                    questions,
                    answers,
                    graders=graders,
                    find=lambda db_id: resolve_database(databases, db_id),
                    pool=pool,
                    memo=memo,
                )
                verdicts = [verdict for burst in bursts for verdict in burst]
                cpu = cpu_seconds(pool.worker_pids) - cpu
            wall = time.perf_counter() - wall
            print(f"{name}: {len(verdicts):,} verdicts, {cpu:.1f} CPU s, {wall:.1f} s by the clock")
    labels = {(row["id"], g): bool(row[label]) for row in rows for g, label in _LABELS.items()}
    for grader in graders:
        found = [verdict for verdict in verdicts if verdict.grader == grader]
        if grader in VALUED:
            values = [verdict.value for verdict in found if verdict.value is not None]
            print(f"{grader}: mean {sum(values) / len(values):.4f} of {len(values):,}")
            continue
        told = [verdict.correct for verdict in found if verdict.correct is not None]
        unlike = [
            v.question_id
            for v in found
            if labels.get((v.question_id, grader), v.correct) != v.correct
        ]
        print(
            f"{grader}: {sum(told):,} of {len(told):,} right; unlike the label: {unlike or 'none'}"
        )


if __name__ == "__main__":
    main()
