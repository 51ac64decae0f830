"""The grading pool against the usual way, on real predictions: pairs per CPU-second and wall time.

    python tests/bench/grader.py [--data DIR] [--workers 2] [--rounds 3]

The usual way: one process, a fresh read-only connection a query, `fetchall`, Python sets compared.
"cold": a started pool that has seen nothing. "golds stored": the same databases and golds, each
predicted text new to the pool. "warm": all of it seen before. CPU time counts the caller and the
workers. A text is made new by other blanks between its words, which cost its run nothing. Also
prints the pool's own cost a pair, the machine's load, and every verdict that differs
from the labels of the data.
"""

import argparse
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from jax_t2sql.grading import GradeJob, GradingPool
from jax_t2sql.sql import Limits, resolve_database

_TICKS = os.sysconf("SC_CLK_TCK")
_LABELS = {"set": "eq_set", "multiset": "eq_multiset", "list": "eq_list"}


def usual(jobs: list[GradeJob]) -> list[bool]:
    """The baseline."""

    def run(path: str, sql: str) -> list[tuple] | None:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.Error:
            return None
        finally:
            connection.close()

    verdicts = []
    for job in jobs:
        gold, pred = run(job.db_path, job.gold_sql), run(job.db_path, job.pred_sql)
        verdicts.append(gold is not None and pred is not None and set(gold) == set(pred))
    return verdicts


def cpu_seconds(pids: list[int]) -> float:
    """CPU time so far of this process and of these."""
    total = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def timed(pids: list[int], work: Callable[[], object]) -> tuple[float, float, object]:
    """CPU and wall seconds of a piece of work, and what it returns."""
    cpu, wall = cpu_seconds(pids), time.perf_counter()
    result = work()
    return cpu_seconds(pids) - cpu, time.perf_counter() - wall, result


def ready_pool(workers: int, path: str) -> GradingPool:
    """A pool whose workers have all answered once."""
    pool = GradingPool(workers, limits=Limits(seconds=30))
    while len(pool.worker_pids) < workers:
        time.sleep(0.01)
    for future in [pool.execute(path, f"SELECT {i}") for i in range(50 * workers)]:
        future.result()
    return pool


def relaid(sql: str, number: int) -> str:
    """The query with the number written in its first blank, as blanks."""
    digits = f"{number:b}".replace("0", " ").replace("1", "\n")
    return sql.replace(" ", f" {digits} ", 1)


def own_cost(jobs: list[GradeJob], workers: int) -> float:
    """Microseconds of CPU that the pool itself takes for a pair when pairs come in batches.

    Pairs whose queries cost next to nothing, graded in the pool and, in this process, by the code
    that the workers run.
    """
    from jax_t2sql.grading.verdict import judge
    from jax_t2sql.sql import Mode, Sandbox

    path = jobs[0].db_path
    count = 5_000
    mode = Mode("set")
    with Sandbox(path, limits=Limits()) as sandbox:
        gold = sandbox.execute("SELECT 1")

        def direct() -> None:
            for i in range(count):
                judge(gold, sandbox.execute(f"SELECT {i}"), mode)

        bare, _, _ = timed([], direct)
    tiny = [GradeJob(path, "SELECT 1", f"SELECT {i}", mode) for i in range(count)]
    with ready_pool(workers, path) as pool:
        pooled, _, _ = timed(pool.worker_pids, lambda: pool.grade_many(tiny))
    return (pooled - bare) / count * 1e6


def show(name: str, pairs: int, cpu: float, wall: float, base: tuple[float, float]) -> None:
    """One line: absolute numbers, and ratios to the baseline."""
    print(
        f"{name:14} {pairs / cpu:9,.0f} pairs per CPU-second ({base[0] / cpu:5.2f}x)"
        f" {pairs / wall:9,.0f} per second ({base[1] / wall:5.2f}x)"
    )


def main() -> None:
    """Prints the table."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("JAX_T2SQL_DATA", default))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many")
    args = parser.parse_args()
    data = Path(args.data)
    with open(data / "test_suite" / "spider_dev_predictions.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    databases = data / "spider_dev" / "database"
    paths = {row["db_id"]: str(resolve_database(databases, row["db_id"])) for row in rows}
    jobs = [GradeJob(paths[row["db_id"]], row["gold"], row["pred"], "set") for row in rows]
    new = [
        GradeJob(job.db_path, job.gold_sql, relaid(job.pred_sql, i), "set")
        for i, job in enumerate(jobs)
    ]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(f"{len(jobs):,} pairs, {args.workers} workers, {cores} cores to run on, load {load:.1f}")

    best: dict[str, tuple[float, float]] = {}

    def note(name: str, cpu: float, wall: float) -> None:
        old = best.get(name, (cpu, wall))
        best[name] = min(cpu, old[0]), min(wall, old[1])

    for _ in range(args.rounds):
        cpu, wall, _ = timed([], lambda: usual(jobs))
        note("usual way", cpu, wall)
        with ready_pool(args.workers, jobs[0].db_path) as pool:
            for name, batch in (("cold", jobs), ("golds stored", new), ("warm", jobs)):
                cpu, wall, _ = timed(pool.worker_pids, lambda b=batch, p=pool: p.grade_many(b))
                note(name, cpu, wall)
    for name, (cpu, wall) in best.items():
        show(name, len(jobs), cpu, wall, best["usual way"])
    print(f"the pool's own cost: {own_cost(jobs, args.workers):.0f} us of CPU a pair")

    with GradingPool(args.workers) as pool:
        for mode, label in _LABELS.items():
            modal = [GradeJob(job.db_path, job.gold_sql, job.pred_sql, mode) for job in jobs]
            verdicts = pool.grade_many(modal)
            wrong = [r["id"] for r, v in zip(rows, verdicts, strict=True) if v.matches != r[label]]
            print(f"{mode}: {len(wrong)} of {len(rows):,} verdicts differ from the labels {wrong}")


if __name__ == "__main__":
    main()
