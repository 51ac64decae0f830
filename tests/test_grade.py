"""The program that grades files of pairs: real databases, real workers, real exit statuses."""

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from itertools import islice, repeat
from pathlib import Path

import pytest

from jax_t2sql.errors import UserError
from jax_t2sql.grade import main
from jax_t2sql.grading import GradingPool
from jax_t2sql.pairs import Pair
from jax_t2sql.sql import Limits, Mode, resolve_database
from jax_t2sql.verdicts import grade_pairs

ROOT = Path(__file__).resolve().parent.parent
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
IDS = "SELECT id FROM item"
NOTHING = "SELECT id FROM item WHERE id > 9"


@pytest.fixture
def folder(tmp_path):
    """Two databases, in the two places where one may lie."""
    (tmp_path / "db" / "shop").mkdir(parents=True)
    for name in ("shop/shop", "kiosk"):
        connection = sqlite3.connect(tmp_path / "db" / f"{name}.sqlite")
        connection.executescript("CREATE TABLE item (id); INSERT INTO item VALUES (1), (2), (NULL)")
        connection.close()
    return tmp_path


def pair(pred=IDS, gold=IDS, db_id="shop", **fields):
    return {"db_id": db_id, "gold": gold, "pred": pred, **fields}


def command(folder, rows, *options, mode="set"):
    """Options of the program for a file of these rows."""
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--pairs", path, "--databases", folder / "db", "--mode", mode, *options]
    return [str(word) for word in words]


def grade(folder, rows, *options, mode="set"):
    """Verdict lines, read back, and the exit status."""
    out = folder / "verdicts.jsonl"
    status = main(command(folder, rows, "--out", out, "--timeout", "0.5", *options, mode=mode))
    return [json.loads(line) for line in out.read_text().splitlines()], status


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "jax_t2sql.grade", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


def test_every_verdict(folder, capsys):
    cases = [
        (pair("SELECT id FROM item ORDER BY id DESC"), "match"),
        (pair("SELECT id FROM item LIMIT 1"), "mismatch"),
        (pair("SELECT nope FROM item"), "error"),
        (pair(ENDLESS), "timeout"),
        (pair("SELECT zeroblob(900000000)"), "too_large"),
        (pair("DROP TABLE item"), "refused"),
        (pair(""), "no_query"),
        (pair(" \n-- none"), "no_query"),
        (pair(None), "no_query"),
        (pair("\ud800"), "error"),
        (pair(gold="SELECT nope FROM item"), "gold_error"),
        (pair(db_id="kiosk"), "match"),
        (pair(db_id="gone"), "infrastructure"),
        (pair(db_id="../db/shop"), "infrastructure"),
    ]
    lines, status = grade(folder, [case | {"id": f"q{i}"} for i, (case, _) in enumerate(cases)])
    assert [line["verdict"] for line in lines] == [verdict for _, verdict in cases]
    assert [line["id"] for line in lines] == [f"q{i}" for i in range(len(cases))]
    assert [line["db_id"] for line in lines] == [case["db_id"] for case, _ in cases]
    assert all(line["detail"] and line["seconds"] >= 0 for line in lines)
    assert not any("gold_empty" in line for line in lines)
    assert status == 3
    out, err = capsys.readouterr()
    assert "mode set, 0.5 s a query" in out and "not graded: 3" in out
    assert err.startswith("note: 2 of 4 databases cannot be used")


def test_an_empty_gold_is_told_whatever_the_prediction(folder, capsys):
    preds = {NOTHING: "match", IDS: "mismatch", "SELECT nope": "error", "": "no_query"}
    preds[ENDLESS] = "timeout"
    lines, status = grade(folder, [pair(pred, NOTHING) for pred in preds] + [pair(), pair(NOTHING)])
    assert [line["verdict"] for line in lines] == [*preds.values(), "match", "mismatch"]
    assert [line.get("gold_empty") for line in lines] == [True] * len(preds) + [None] * 2
    assert status == 0
    assert "gold result empty: 5" in capsys.readouterr().out


def test_modes(folder):
    preds = [IDS, "SELECT id FROM item ORDER BY id", "SELECT id FROM item UNION ALL SELECT 1"]
    methods = [None, "list", "multiset"]
    rows = [pair(pred, grading_method=m) for pred in preds for m in methods]
    expected = {
        "row": "match match match match mismatch match match mismatch mismatch",
        "set": " ".join(["match"] * 9),
        "list": " ".join(["match"] * 3 + ["mismatch"] * 6),
        "subset, =, 3": " ".join(["match"] * 9),
    }
    for mode, verdicts in expected.items():
        lines, _ = grade(folder, rows, mode=mode)
        assert [line["verdict"] for line in lines] == verdicts.split(), mode


def test_one_file_serves_every_id(folder, capsys):
    arguments = command(folder, [pair(db_id="any"), pair(db_id="other")])
    arguments[arguments.index("--databases") + 1] = str(folder / "db" / "kiosk.sqlite")
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["match", "match"]
    assert "any" in err and "100.0%" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"--mode": "bag"}, "--mode: grading mode 'bag' is unknown"),
        ({"--mode": "subset,=,0"}, "--mode: grading mode 'subset,=,0' is unknown"),
        ({"--mode": "row"}, "pairs.jsonl:2: field 'grading_method'"),
        ({"--pairs": "none.jsonl"}, "none.jsonl: cannot be read"),
        ({"--databases": "none"}, "none: no such directory or file"),
        ({"--databases": "pairs.jsonl"}, "which is no SQLite database"),
        ({"--workers": "0"}, "--workers is 0; it must be from 1"),
        ({"--timeout": "nan"}, "--timeout is nan; it must be from 0.05"),
        ({"--out": "none/verdicts.jsonl"}, "verdicts.jsonl cannot be written"),
        ({"--out": "db"}, "db lies among the databases"),
        ({"--out": "db/kiosk.sqlite"}, "kiosk.sqlite lies among the databases"),
        ({"--out": "pairs.jsonl"}, "--out pairs.jsonl would write over --pairs"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(folder, options, says, monkeypatch, capsys):
    arguments = command(folder, [pair(), pair(grading_method="bag")])
    before = sorted(folder.rglob("*"))
    monkeypatch.chdir(folder)
    with pytest.raises(UserError) as caught:
        main([*arguments, *(word for option in options.items() for word in option)])
    assert says in str(caught.value)
    assert sorted(folder.rglob("*")) == before and capsys.readouterr().out == ""


@pytest.mark.parametrize("given", ["pairs", "databases"])
def test_what_is_given_is_not_written_over(folder, given):
    words = command(folder, [pair()], "--out", folder / "verdicts")
    paths = {"pairs": folder / "pairs.jsonl", "databases": folder / "db" / "kiosk.sqlite"}
    moved = paths[given].rename(folder / "verdicts.part")  # where the verdicts would be at first
    before = moved.read_bytes()
    with pytest.raises(UserError, match=f"would write over --{given}"):
        main([*words, f"--{given}", str(moved)])
    assert moved.read_bytes() == before


def test_out_is_replaced_as_a_whole(folder):
    link, out = folder / "link.jsonl", folder / "verdicts.jsonl"
    out.write_text("old\n")
    link.symlink_to(out)
    assert main(command(folder, [pair()], "--out", link)) == 0
    assert link.is_symlink() and json.loads(out.read_text())["verdict"] == "match"
    assert not list(folder.glob("*.part"))


def test_a_device_is_written_to_and_not_replaced(folder):
    assert main(command(folder, [pair()], "--out", os.devnull)) == 0
    assert not Path(os.devnull).is_file()


def test_exit_statuses(folder):
    done = {}
    for name, rows in {
        "wrong": [pair("SELECT 7"), pair("SELEC")],
        "bad": [pair(), {}],
        "gone": [pair(db_id="gone"), pair()],
    }.items():
        process = start(command(folder, rows))
        done[name] = (*process.communicate(timeout=60), process.returncode)
    out, err, status = done["wrong"]
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["mismatch", "error"]
    assert "match rate" in err and status == 0
    out, err, status = done["bad"]
    assert (out, err.count("\n"), status) == ("", 1, 2) and err.startswith("error: ")
    out, err, status = done["gone"]
    verdicts = [json.loads(line)["verdict"] for line in out.splitlines()]
    assert (verdicts, status) == (["infrastructure", "match"], 3)


def test_lines_come_while_others_run_and_an_interrupt_ends_in_one(folder):
    process = start(command(folder, [pair(), pair(ENDLESS), pair()], "--timeout", "30"))
    assert json.loads(process.stdout.readline())["verdict"] == "match"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (
        "",
        "interrupted; the same command grades anew\n",
        130,
    )


@pytest.mark.parametrize(
    ("sign", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_a_run_that_was_ended_leaves_the_old_file(folder, sign, status):
    out = folder / "verdicts.jsonl"
    out.write_text("old\n")
    # Enough of them that some are written out: by then the run is well inside the file.
    rows = [pair()] * 500 + [pair(ENDLESS)] * 3
    process = start(command(folder, rows, "--out", out, "--timeout", "600"))
    while not any(part.stat().st_size for part in folder.glob("*.part")):
        assert process.poll() is None
    process.send_signal(sign)
    process.communicate(timeout=60)
    assert process.returncode == status and out.read_text() == "old\n"
    left = list(folder.glob("*.part"))
    assert len(left) == (sign == signal.SIGKILL)
    # What only a killed run leaves, the next one takes over.
    assert main(command(folder, [pair()], "--out", out)) == 0
    assert len(out.read_text().splitlines()) == 1 and not list(folder.glob("*.part"))


def test_two_runs_do_not_write_into_each_others_file(folder):
    out = folder / "verdicts.jsonl"
    process = start(command(folder, [pair(ENDLESS)], "--out", out, "--timeout", "600"))
    while not list(folder.glob("*.part")):
        assert process.poll() is None
    with pytest.raises(UserError, match="is being written by another run"):
        main(command(folder, [pair()], "--out", out))
    assert list(folder.glob("*.part"))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[1] == "interrupted; the same command grades anew\n"
    assert not list(folder.glob("verdicts*"))


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("named", [True, False])
def test_a_closed_standard_stream_takes_no_verdict(folder, closed, named):
    options = ["--out", folder / "verdicts.jsonl"] if named else []
    words = [sys.executable, "-m", "jax_t2sql.grade", *command(folder, [pair("SELEC")], *options)]
    done = subprocess.run(
        f"{shlex.join(map(str, words))} {closed}",
        shell=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    if named:
        assert done.returncode == 0
        (line,) = (folder / "verdicts.jsonl").read_text().splitlines()
        assert json.loads(line)["verdict"] == "error"
    elif closed == ">&-":
        assert done.returncode == 2
        assert done.stderr.startswith("error: standard output is closed")
        assert done.stderr.count("\n") == 1
    elif closed == "2>&-":
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 1
    else:
        assert done.returncode == 2


def test_a_reader_that_has_enough_is_no_fault(folder):
    process = start(command(folder, [pair(db_id="gone")] * 5000))
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_no_jax_is_loaded(folder):
    code = "import sys, jax_t2sql.grade; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "jax_t2sql" in done.stdout.split()
    assert {"jax", "numpy", "torch", "grain"}.isdisjoint(done.stdout.split())


def asked(pred=IDS, db_id="shop", id=0):
    return Pair(id, db_id, IDS, pred, Mode("set"))


def test_pairs_are_taken_only_as_they_are_graded(folder):
    taken = yielded = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield asked(f"SELECT {taken}", id=taken)

    with GradingPool(1) as pool:
        bursts = grade_pairs(
            endless(), find=partial(resolve_database, folder / "db"), pool=pool, workers=1
        )
        while yielded < 500:
            burst = next(bursts)
            assert [graded.id for graded in burst] == [
                *range(yielded + 1, yielded + 1 + len(burst))
            ]
            assert taken - yielded <= 200
            yielded += len(burst)


def test_pairs_without_a_database_are_taken_so_too():
    with GradingPool(1) as pool:
        endless = repeat(asked(db_id="gone"))
        bursts = grade_pairs(
            endless, find=lambda db_id: UserError("it is gone"), pool=pool, workers=1
        )
        assert {graded.detail for b in islice(bursts, 99) for graded in b} == {"it is gone"}


def test_a_killed_worker_loses_no_pair_and_no_order(folder):
    preds = [f"SELECT id FROM item WHERE {i} % 2" for i in range(300)]
    expected = ["match" if i % 2 else "mismatch" for i in range(300)]
    for i in range(7, 300, 50):
        preds[i], expected[i] = f"{ENDLESS} WHERE n <> {i}", "timeout"
    pairs = [asked(pred, id=i) for i, pred in enumerate(preds)]
    found = []
    with GradingPool(2, limits=Limits(seconds=0.3)) as pool:
        victims = None
        for burst in grade_pairs(
            pairs, find=partial(resolve_database, folder / "db"), pool=pool, workers=2
        ):
            found += burst
            if victims is None and len(found) > 20:
                victims = pool.worker_pids
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
        assert set(pool.worker_pids).isdisjoint(victims)
    assert [graded.id for graded in found] == list(range(300))
    assert [graded.verdict for graded in found] == expected


def test_a_slow_source_holds_nothing_back(folder):
    events = []

    def pairs():
        yield asked(id=0)
        pool.grade(folder / "db" / "kiosk.sqlite", IDS, IDS).result()  # the first is graded, too
        yield asked("SELECT 1", id=1)
        events.append("third")
        yield asked("SELECT 2", id=2)

    find = partial(resolve_database, folder / "db")
    with GradingPool(1) as pool:
        for burst in grade_pairs(pairs(), find=find, pool=pool, workers=1):
            events += [graded.id for graded in burst]
    assert events.index(0) < events.index("third")
    assert sorted(events, key=str) == [0, 1, 2, "third"]


class CountingPool(GradingPool):
    """A pool that knows what it was asked."""

    def grade(self, db_path, gold_sql, pred_sql, mode=None):
        self.__dict__.setdefault("asked", []).append(pred_sql)
        return super().grade(db_path, gold_sql, pred_sql, mode)


def test_twins_in_flight_are_asked_once(folder):
    """While the one worker is at an endless query, those behind it wait together."""
    preds = [ENDLESS] + [IDS, "SELECT 1"] * 25
    with CountingPool(1, limits=Limits(seconds=0.5)) as pool:
        bursts = grade_pairs(
            [asked(pred, id=i) for i, pred in enumerate(preds)],
            find=partial(resolve_database, folder / "db"),
            pool=pool,
            workers=1,
        )
        graded = [graded for burst in bursts for graded in burst]
    assert [g.verdict for g in graded] == ["timeout"] + ["match", "mismatch"] * 25
    assert [g.id for g in graded] == list(range(51))
    # The last asks whether the gold of the prediction that failed is empty.
    assert pool.asked[:3] == [ENDLESS, IDS, "SELECT 1"] and len(pool.asked) == 4


def test_a_fault_of_the_machine_is_not_remembered(folder):
    there, away = folder / "db" / "kiosk.sqlite", folder / "away.sqlite"

    def pairs():
        there.rename(away)
        yield asked()
        pool.grade(away, IDS, IDS).result()  # the only worker is through with the first pair
        away.rename(there)
        yield asked()

    with GradingPool(1) as pool:
        bursts = grade_pairs(pairs(), find=lambda db_id: there, pool=pool, workers=1)
        verdicts = [graded.verdict for burst in bursts for graded in burst]
    assert verdicts == ["infrastructure", "match"]
