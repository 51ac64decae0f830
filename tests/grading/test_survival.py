"""Workers are killed, programs are stopped, queues fill up: no item is lost, nothing is left."""

import asyncio
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jax_t2sql.grading import GradeJob, GradingPool
from jax_t2sql.sql import Limits

SOAK = runpy.run_path(str(Path(__file__).with_name("soak.py")))
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
SLOW = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 300000)"
SLOW += " SELECT max(n) FROM r"


def test_hostile_items_and_killed_workers_leave_nothing(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for variable in ("TMPDIR", "SQLITE_TMPDIR"):
        monkeypatch.setenv(variable, str(scratch))
    # A longer limit than the program's, so that a busy machine fails no query that is well.
    report = SOAK["soak"](tmp_path, items=1_000, hostile=0.05, workers=2, kills=3, seconds=0.3)
    assert SOAK["faults"](report) == {}
    assert report["items"] == 1_000 and report["workers_at_the_end"] == 2


def test_kill_9_in_the_middle_of_batches_loses_no_item(shop):
    jobs = [GradeJob(shop, "SELECT 1", f"{SLOW} -- {i}", "set") for i in range(60)]
    with GradingPool(2, limits=Limits(seconds=30)) as pool:
        pool.execute(shop, "SELECT 1").result()
        killer = SOAK["Killer"](pool, kills=4)
        killer.start()
        verdicts = pool.grade_many(jobs)
        killer.finish()
        assert {verdict.status for verdict in verdicts} <= {"different", "crashed"}
        assert [v.status for v in verdicts].count("crashed") <= 2  # killed twice, by chance
    assert not any(map(SOAK["exists"], killer.seen))


def test_a_worker_killed_while_idle_costs_nothing(shop):
    with GradingPool(1) as pool:
        for i in range(3):
            assert pool.grade(shop, "SELECT 1", f"SELECT 1 -- {i}").result().status == "equal"
            (pid,) = pool.worker_pids
            os.kill(pid, signal.SIGKILL)


def test_workers_killed_while_they_start_lose_nothing(shop):
    with GradingPool(1, limits=Limits(seconds=30)) as pool:
        futures = [pool.grade(shop, "SELECT 1", f"SELECT 1, {i}") for i in range(5)]
        killed = set()
        while len(killed) < 5 and not futures[-1].done():
            for pid in set(pool.worker_pids) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        assert {future.result(timeout=60).status for future in futures} == {"different"}


def test_a_worker_that_never_starts_is_told(shop, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with GradingPool(1) as pool, pytest.raises(OSError, match="does not start"):
        pool.execute(shop, "SELECT 1").result(timeout=60)


def test_a_prediction_that_takes_its_process_along_twice_has_crashed(shop):
    with GradingPool(1, limits=Limits(seconds=30)) as pool:
        assert pool.grade(shop, "SELECT id FROM item", "SELECT 1").result().status == "different"
        future = pool.grade(shop, "SELECT id FROM item", ENDLESS)
        (seat,) = pool._seats
        killed = []
        while len(killed) < 2:
            worker = seat._worker
            # Only when it is at the prediction: the gold's probe is to live.
            if worker and worker.pid not in killed and worker.work().stage == "prediction":
                if not seat._ready or not worker._next > 1:
                    continue
                killed.append(worker.pid)
                time.sleep(0.05)
                worker.kill()
        verdict = future.result(timeout=60)
        assert (verdict.status, verdict.matches) == ("crashed", False)
        assert "died twice" in verdict.detail


def test_neighbours_of_a_slow_query_need_not_wait_for_it(shop):
    jobs = [f"SELECT {i}" for i in range(100)]
    with GradingPool(2, limits=Limits(seconds=60)) as pool:
        for _ in range(8):
            pool.execute(shop, "SELECT 1").result()
        slow = pool.execute(shop, ENDLESS)
        futures = [pool.execute(shop, sql) for sql in jobs]
        assert [f.result(timeout=30).rows for f in futures] == [[(i,)] for i in range(100)]
        assert not slow.done()


def test_awaited(shop):
    async def work(pool):
        graded = [pool.grade_async(shop, "SELECT 3", f"SELECT {i}") for i in range(30)]
        outcome = await pool.execute_async(shop, "SELECT 1")
        return outcome, await asyncio.gather(*graded)

    with GradingPool(1, limits=Limits(seconds=5), max_waiting=4) as pool:
        outcome, verdicts = asyncio.run(work(pool))
    assert outcome.rows == [(1,)]
    assert [v.status == "equal" for v in verdicts] == [i == 3 for i in range(30)]


def test_a_cancelled_await_cancels_what_has_not_begun(shop):
    async def work(pool):
        running = asyncio.ensure_future(pool.execute_async(shop, ENDLESS))
        await asyncio.sleep(0.3)
        waiting = asyncio.ensure_future(pool.execute_async(shop, "SELECT 1"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await running).status == "timeout"
        return await pool.execute_async(shop, "SELECT 2")

    with GradingPool(1, limits=Limits(seconds=1)) as pool:
        assert asyncio.run(work(pool)).rows == [(2,)]


def test_admission_is_bounded(shop):
    with pytest.raises(ValueError, match="max_waiting is 0"):
        GradingPool(1, max_waiting=0)
    with GradingPool(1, limits=Limits(seconds=5), max_waiting=3) as pool:
        jobs = [GradeJob(shop, "SELECT 7", f"SELECT {i}") for i in range(200)]
        results = {}
        threads = [
            threading.Thread(target=lambda k=k: results.update({k: pool.grade_many(jobs[k::4])}))
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(v.status == "equal" for part in results.values() for v in part) == 1
    assert sum(map(len, results.values())) == 200


def test_verdicts_that_come_again_need_no_worker(shop):
    with GradingPool(1) as pool:
        first = pool.grade(shop, "SELECT name FROM item", "SELECT name FROM item;").result()
        (pid,) = pool.worker_pids
        os.kill(pid, signal.SIGSTOP)  # nobody is there to answer
        assert pool.grade(shop, "SELECT name FROM item", "SELECT name FROM item;").result() == first
        jobs = [GradeJob(shop, "SELECT name FROM item", "SELECT name FROM item;")] * 3
        assert pool.grade_many(jobs) == [first] * 3


def test_golds_are_kept_between_pools(shop, tmp_path):
    for _ in range(2):
        with GradingPool(1, gold_folder=tmp_path / "golds") as pool:
            assert pool.grade(shop, "SELECT id FROM item", "SELECT id FROM item").result().matches
        assert len(list((tmp_path / "golds").iterdir())) == 1


OWNER = """
import signal, sys
from jax_t2sql.grading import GradingPool
from jax_t2sql.sql import Limits
if sys.argv[2] == "graceful":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with GradingPool(2, limits=Limits(seconds=600)) as pool:
    assert pool.execute(sys.argv[1], "SELECT 1").result().ok
    while len(pool.worker_pids) < 2:
        pass
    print(*pool.worker_pids, flush=True)
    future = pool.execute(sys.argv[1], sys.argv[3])
    while True:
        pool.execute(sys.argv[1], "SELECT 1").result()
        print("alive", flush=True)
        signal.pause() if sys.argv[2] == "graceful" else input()
"""


def test_a_worker_that_just_starts_leaves_signals_to_its_owner(shop):
    with GradingPool(1) as pool:
        (pid,) = pool.worker_pids
        for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(pid, sign)
        assert pool.execute(shop, "SELECT 1").result().ok
        assert pool.worker_pids == [pid]


@pytest.mark.parametrize(("how", "status"), [("graceful", 7), ("default", -signal.SIGTERM)])
def test_sigterm_ends_all_processes(shop, how, status):
    """Slurm and Kubernetes send it to every process of a job: it is the owner's to decide."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(shop), how, ENDLESS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    workers = [int(pid) for pid in owner.stdout.readline().split()]
    assert owner.stdout.readline() == "alive\n"
    for pid in workers:
        for ignored in (signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, ignored)
    if how == "default":
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == "alive\n"
    assert all(map(SOAK["exists"], workers))
    owner.send_signal(signal.SIGTERM)
    _, err = owner.communicate(timeout=60)
    assert (owner.returncode, err) == (status, "")
    deadline = time.monotonic() + 30
    while any(map(SOAK["exists"], workers)):
        assert time.monotonic() < deadline, "workers outlive their owner"
        time.sleep(0.02)
