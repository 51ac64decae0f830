"""Real processes: killed with SIGKILL in mid-run, and two that want to lead at once."""

import json
import subprocess
import sys
from pathlib import Path

from jax_t2sql.bus import Log, RunState, open_store

PROGRAM = Path(__file__).with_name("run_process.py")


def start(bus, work, steps):
    work.mkdir(exist_ok=True)
    command = [sys.executable, str(PROGRAM), str(bus), str(work), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_until(process, line, times=1):
    """Read output until `line` has come `times` times, then kill at once."""
    with process:
        for text in process.stdout:
            times -= text.strip() == line
            if times == 0:
                process.kill()
                break
    assert times == 0, f"the process ended ({process.returncode}) before {line!r}"


def finish(process):
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.split()


def test_sigkill_and_takeover_train_the_same(tmp_path):
    code, output = finish(start(tmp_path / "calm", tmp_path / "calm-work", 5))
    assert code == 0
    bus, work = tmp_path / "bus", tmp_path / "work"
    for line, times in (("group", 2), ("batch", 1), ("published", 2), ("replayed", 1)):
        run_until(start(bus, work, 5), line, times)
    code, killed = finish(start(bus, work, 5))
    assert code == 0
    assert killed[-1] == output[-1], "the weights are those of the run that nobody killed"
    log, state = Log.open(open_store(bus)), RunState()
    state.apply_all(log.entries)
    assert sum(type(entry).__name__ == "Takeover" for entry in log.entries) == 4
    assert [fate for fate, _ in state.fates.values()] == ["trained"] * 15


def test_of_two_learners_one_leads_and_the_other_stops(tmp_path):
    bus = tmp_path / "bus"
    racers = [start(bus, tmp_path / f"work{n}", 20) for n in range(2)]
    results = sorted((finish(racer) for racer in racers), key=lambda result: result[0])
    (code, winner), (lost_code, loser) = results
    # A racer that comes up after the other's end finds the run ended instead.
    assert code == 0 and lost_code != 0
    assert winner[-2] == "weights" and "weights" not in loser
    log, state = Log.open(open_store(bus)), RunState()
    state.apply_all(log.entries)
    trained = [g.seq for e in log.entries if type(e).__name__ == "Batch" for g in e.groups]
    assert state.version == 20
    assert len(trained) == len(set(trained)) == 60


def test_writers_that_race_for_every_slot_never_share_one(tmp_path):
    program = (
        "import sys\n"
        "from jax_t2sql.bus.keys import log_key\n"
        "from jax_t2sql.bus.store import open_store, put_once\n"
        "store = open_store(sys.argv[1])\n"
        "print('up', flush=True)\n"
        "sys.stdin.readline()\n"
        "me = sys.argv[2].encode()\n"
        "print([n for n in range(150) if put_once(store, log_key(n), me * 50)])\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for racer in racers:
        assert racer.stdout.readline() == "up\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [set(json.loads(racer.communicate(timeout=60)[0])) for racer in racers]
    assert won[0] | won[1] == set(range(150))
    assert not won[0] & won[1]
    store = open_store(tmp_path)
    for n in range(150):
        assert store.read(f"log/{n:08d}.json") == (b"a" if n in won[0] else b"b") * 50
