"""The pool: right answers, and nothing stuck, lost or left behind."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradeJob, GradingPool
from jax_t2sql.sql import Limits

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
# One SQLite step that takes hours: no progress handler is called within it.
STUCK = "SELECT instr(zeroblob(30000000), CAST(zeroblob(10000000) || x'01' AS BLOB))"


@pytest.fixture(scope="module")
def pool():
    with GradingPool(2, limits=Limits(seconds=5)) as pool:
        yield pool


def gone(pid):
    """Whether a process has ended. (One that waits to be reaped by its parent has.)"""
    if not Path("/proc/self").exists():
        return subprocess.call(["kill", "-0", str(pid)], stderr=subprocess.DEVNULL) != 0
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_execute(pool, shop):
    outcome = pool.execute(shop, "SELECT id, name FROM item WHERE id < 3; -- two").result()
    assert (outcome.status, outcome.columns) == ("ok", ("id", "name"))
    assert outcome.rows == [(1, "pen"), (2, "ink")]
    assert pool.execute(str(shop), "DROP TABLE item").result().status == "refused"
    assert pool.execute(shop, 'SELECT "nope" FROM item').result().warnings


def test_values_survive_the_way_back(pool, shop):
    sql = "SELECT CAST(x'4DFC' AS TEXT), x'ff00', NULL, 1, 1.0, 9e999, char(0)"
    (row,) = pool.execute(shop, sql).result().rows
    assert row == ("M\udcfc", b"\xff\x00", None, 1, 1.0, float("inf"), "\0")
    assert [type(cell) for cell in row[3:5]] == [int, float]


@pytest.mark.parametrize(
    ("gold", "pred", "mode", "status"),
    [
        ("SELECT id FROM item", "SELECT id FROM item ORDER BY id DESC", None, "equal"),
        ("SELECT id FROM item", "SELECT id FROM item ORDER BY id DESC", "list", "different"),
        ("SELECT id FROM item", "SELECT id FROM item LIMIT 2;;", "subset,=,2", "equal"),
        ("SELECT 1", "SELECT 1.0", "bird", "equal"),
        ("SELECT 1", "SELEC 1", "set", "error"),
        ("SELECT 1", "SELECT 1; SELECT 2", "set", "refused"),
        ("SELECT 1", "-- none", "set", "no_query"),
        ("SELECT 1", "SELECT zeroblob(900000000)", "set", "too_large"),
        ("SELECT nope", "SELECT 1", "set", "gold_error"),
        ("SELECT 1 WHERE 0", "SELECT 2 WHERE 0", "set", "gold_empty"),
    ],
)
def test_grade(pool, shop, gold, pred, mode, status):
    assert pool.grade(shop, gold, pred, mode).result().status == status


def test_grade_many_keeps_order_and_grades_twins_once(pool, shop):
    jobs = [GradeJob(shop, "SELECT 3", f"SELECT {i % 4}", "set") for i in range(40)]
    verdicts = pool.grade_many(jobs)
    assert [v.status == "equal" for v in verdicts] == [i % 4 == 3 for i in range(40)]
    assert len({id(verdict) for verdict in verdicts}) == 4
    assert pool.grade_many([]) == []


def test_twins_may_differ_around_the_statement_alone(pool, shop):
    texts = ["SELECT 8", "SELECT 8;", " SELECT 8 ;; -- done", "/* first */ SELECT 8"]
    others = ["SELECT 8; SELECT 9", "SELECT '8;'", "SELECT /* */ 8", "", "SELECT '8", ";"]
    verdicts = pool.grade_many([GradeJob(shop, "SELECT 8", text) for text in texts + others])
    assert len({id(verdict) for verdict in verdicts[:4]}) == 1
    statuses = [verdict.status for verdict in verdicts]
    assert statuses[:4] == ["equal"] * 4
    assert statuses[4:] == ["refused", "different", "equal", "no_query", "error", "no_query"]


def test_faults_of_the_caller_are_raised_or_told(pool, shop, tmp_path):
    with pytest.raises(UserError, match="'bag' is unknown"):
        pool.grade(shop, "SELECT 1", "SELECT 1", "bag")
    missing = tmp_path / "none.sqlite"
    with pytest.raises(UserError, match=r"none\.sqlite"):
        pool.execute(missing, "SELECT 1").result()
    verdict = pool.grade(missing, "SELECT 1", "SELECT 1", "set").result()
    assert verdict.status == "infrastructure" and "none.sqlite" in verdict.detail
    with pytest.raises(ValueError, match="at least 1"):
        GradingPool(0)


def test_a_damaged_file_is_no_fault_of_the_query(pool, shop):
    assert pool.grade(shop, "SELECT id FROM item", "SELECT id FROM item").result().matches
    size = shop.stat().st_size
    with open(shop, "r+b") as file:  # the table's pages become noise, the header stays
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    pred = "SELECT id + 0 FROM item"
    assert pool.grade(shop, "SELECT id FROM item", pred).result().status == "infrastructure"


def test_a_changed_file_is_read_anew(pool, shop):
    import sqlite3

    sql = "SELECT name FROM item WHERE id = 1"
    assert pool.grade(shop, sql, "SELECT 'pen'").result().status == "equal"
    with sqlite3.connect(shop) as writer:
        writer.execute("UPDATE item SET name = 'nib' WHERE id = 1")
    writer.close()
    for _ in range(4):  # whichever worker has it open
        assert pool.grade(shop, sql, "SELECT 'nib'").result().status == "equal"


def test_tolerance_and_column_order_are_settable(shop):
    with GradingPool(1, rel_tol=1e-6, column_order="any") as pool:
        assert pool.grade(shop, "SELECT 1.0, 'a'", "SELECT 'a', 1.0000001").result().matches
        assert not pool.grade(shop, "SELECT 1.0", "SELECT 1.00001").result().matches
    with pytest.raises(UserError, match="rel_tol is 0.1"):
        GradingPool(1, rel_tol=0.1)
    with pytest.raises(UserError, match="column_order is 'all'"):
        GradingPool(1, column_order="all")


def test_usable_from_many_threads(pool, shop):
    answers = {}

    def ask(i):
        answers[i] = pool.execute(shop, f"SELECT {i}").result().rows

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: [(i,)] for i in range(16)}


def test_time_limit(shop):
    def heeded(pool):
        pids = pool.worker_pids
        assert pool.execute(shop, ENDLESS).result().status == "timeout"
        assert pool.grade(shop, "SELECT 1", ENDLESS).result().status == "timeout"
        assert pool.grade(shop, ENDLESS, "SELECT 1").result().status == "gold_error"
        return pool.worker_pids == pids  # no need to kill it

    with GradingPool(1, limits=Limits(seconds=0.2)) as pool:
        # A machine with too much to do may once not let it look at the clock in time.
        assert any(heeded(pool) for _ in range(5))


def test_a_stuck_worker_is_killed_and_replaced(shop):
    with GradingPool(1, limits=Limits(seconds=0.2)) as pool:
        assert pool.execute(shop, "SELECT 1").result().ok
        for ask, status in [
            (lambda: pool.execute(shop, STUCK), "timeout"),
            (lambda: pool.grade(shop, "SELECT 1", STUCK), "timeout"),
            (lambda: pool.grade(shop, STUCK, "SELECT 1"), "gold_error"),
        ]:
            (pid,) = pool.worker_pids
            assert ask().result().status == status
            assert gone(pid)
        assert pool.execute(shop, "SELECT 1").result().ok


def test_many_runaway_queries_leave_nothing(shop):
    cross = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 1000) "
    cross += "SELECT count(*) FROM r a, r b, r c"
    threads = threading.active_count()
    with GradingPool(2, limits=Limits(seconds=0.02)) as pool:
        futures = [pool.execute(shop, cross) for _ in range(100)]
        assert {future.result().status for future in futures} == {"timeout"}
        pids = pool.worker_pids
        assert len(pids) == 2
        assert pool.execute(shop, "SELECT 1").result().ok
    assert all(map(gone, pids))
    assert threading.active_count() == threads


def test_killed_in_the_middle_of_a_query(shop):
    with GradingPool(1, limits=Limits(seconds=2)) as pool:
        pool.execute(shop, "SELECT 1").result()
        (first,) = pool.worker_pids
        future = pool.grade(shop, "SELECT 1", ENDLESS)
        later = pool.grade(shop, "SELECT 1", "SELECT 1")
        os.kill(first, signal.SIGKILL)
        # Tried once more, on a new process, where the query meets its time limit.
        assert future.result().status == "timeout"
        assert later.result().status == "equal"
        assert pool.worker_pids != [first]


def test_a_query_that_kills_every_process_is_given_up(shop):
    with GradingPool(1, limits=Limits(seconds=30)) as pool:
        pool.execute(shop, "SELECT 1").result()
        future = pool.grade(shop, "SELECT 1", ENDLESS)
        killed = set()
        while not future.done():
            for pid in set(pool.worker_pids) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            time.sleep(0.01)
        verdict = future.exception() or future.result()
        # Killed while at work twice: infrastructure. Killed while starting, thrice: an OSError.
        assert isinstance(verdict, OSError) or verdict.status == "infrastructure"
        assert pool.execute(shop, "SELECT 1").result().ok


def test_memory_is_bounded(shop):
    hoard = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 300000) "
    hoard += "SELECT length(group_concat(printf('%500d', n))) FROM r ORDER BY 1"
    bomb = "WITH RECURSIVE r(n, t) AS (SELECT 1, hex(randomblob(500000)) UNION ALL "
    bomb += "SELECT n + 1, hex(randomblob(500000)) FROM r LIMIT 2000) SELECT n FROM r ORDER BY t"
    with GradingPool(1, limits=Limits(seconds=20), memory_bytes=400 * 2**20) as pool:
        for sql in (hoard, bomb):
            assert pool.execute(shop, sql).result().status == "too_large"
        assert pool.grade(shop, "SELECT 1", "SELECT 1").result().status == "equal"


def test_close_ends_everything(shop):
    pool = GradingPool(2, limits=Limits(seconds=30))
    pool.grade_many([GradeJob(shop, "SELECT 1", f"SELECT {i}") for i in range(8)])
    pids = pool.worker_pids
    running = [pool.execute(shop, ENDLESS) for _ in range(2)]
    wait_until(lambda: all(future.running() for future in running))
    waiting = pool.execute(shop, "SELECT 1")
    pool.close()
    pool.close()
    assert all(map(gone, pids)) and pool.worker_pids == []
    for future in running:
        with pytest.raises(RuntimeError, match="closed"):
            future.result(timeout=0)
    with pytest.raises(CancelledError):
        waiting.result(timeout=0)
    with pytest.raises(RuntimeError, match="closed"):
        pool.execute(shop, "SELECT 1")


def test_no_handles_are_left(shop):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("counts handles by /proc, which this system lacks")

    def use():
        with GradingPool(2, limits=Limits(seconds=0.2)) as pool:
            pool.execute(shop, STUCK).result()
            pool.grade(shop, "SELECT 1", "SELECT 1").result()

    use()
    before = sorted(os.listdir("/proc/self/fd"))
    use()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("what", ["process", "thread"])
def test_a_pool_that_cannot_be_started_leaves_nothing(monkeypatch, what):
    started, real = [], (subprocess.Popen, threading.Thread.start)

    def start_process(*args, **kwargs):
        if what == "process" and len(started) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        started.append(real[0](*args, **kwargs))
        return started[-1]

    def start_thread(thread):
        if what == "thread" and len(started) == 3:
            raise RuntimeError("can't start new thread")
        real[1](thread)

    monkeypatch.setattr(subprocess, "Popen", start_process)
    monkeypatch.setattr(threading.Thread, "start", start_thread)
    threads = threading.active_count()
    with pytest.raises(UserError, match="grading worker 3 of 9 cannot be started"):
        GradingPool(9)
    assert threading.active_count() == threads
    assert started and all(process.returncode is not None for process in started)


def test_a_pool_that_is_dropped_is_closed(shop):
    pool = GradingPool(1)
    pool.execute(shop, "SELECT 1").result()
    (pid,) = pool.worker_pids
    del pool
    wait_until(lambda: gone(pid))


OWNER = """
import sys, time
from jax_t2sql.grading import GradingPool
from jax_t2sql.sql import Limits
print("main runs", flush=True)
pool = GradingPool(1, limits=Limits(seconds=600))
assert pool.execute(sys.argv[1], "SELECT 1").result().ok
print(*pool.worker_pids, flush=True)
if sys.argv[2] == "hang":
    try:
        pool.execute(sys.argv[1], sys.argv[3]).result()
    except KeyboardInterrupt:
        pool.close()
"""


def start_owner(shop, what, *, as_script=None):
    """A program that uses a pool without a main guard: from standard input, or as a script."""
    command = [sys.executable, str(as_script) if as_script else "-", str(shop), what, ENDLESS]
    owner = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        process_group=0,
    )  # fmt: skip
    if not as_script:
        owner.stdin.write(OWNER)
    owner.stdin.close()
    owner.stdin = None
    assert owner.stdout.readline() == "main runs\n"
    return owner, int(owner.stdout.readline())


def test_the_owners_main_module_runs_once_and_its_end_is_theirs(shop, tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    for as_script in (None, script):
        owner, worker = start_owner(shop, "leave", as_script=as_script)
        out, err = owner.communicate(timeout=60)
        assert (owner.returncode, out, err) == (0, "", "")
        wait_until(lambda pid=worker: gone(pid))


def test_workers_end_when_their_owner_is_killed(shop):
    owner, worker = start_owner(shop, "hang")
    owner.kill()
    owner.communicate(timeout=60)
    wait_until(lambda: gone(worker))


def test_ctrl_c_ends_all_without_a_traceback_from_workers(shop):
    owner, worker = start_owner(shop, "hang")
    os.kill(worker, signal.SIGINT)  # ignored
    time.sleep(0.1)
    assert not gone(worker)
    os.killpg(owner.pid, signal.SIGINT)  # as a terminal would
    out, err = owner.communicate(timeout=60)
    assert (owner.returncode, err) == (0, "")
    wait_until(lambda: gone(worker))


def test_workers_and_owner_stay_free_of_jax():
    code = "import sys, jax_t2sql.grading.worker as w; print([m for m in sys.modules if m in %r])"
    heavy = ("jax", "jaxlib", "numpy", "sqlglot", "sqlite_utils", "torch")
    run = subprocess.run(
        [sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "[]\n", run.stderr
