"""A run killed by SIGKILL at each of its boundaries: ``kill_run.py FOLDER``.

Each time the run is begun anew in a process of its own, on a bus in a directory, killed when it has
done so many acts (puts, deletions, updates, checkpoints), and taken over by another process, whose
replayed weights have noise in them. Prints as JSON what became of each.
"""

import itertools
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

from toy_run import Dying, Trainer

from jax_t2sql.bus import Log, RunState, open_store
from jax_t2sql.bus.audit import audit

FORK = multiprocessing.get_context("fork")  # each is up at once


class Shot(Dying):
    """Dies as a process does that nobody asks: nothing of it runs any more."""

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


def run(folder, acts):
    store = Shot(open_store(folder / "bus"), acts=acts, done=True)
    Trainer(store, folder, itertools.count()).run()
    (folder / "names").write_text(json.dumps(store.names))


def status_of(folder, acts):
    process = FORK.Process(target=run, args=(folder, acts))
    process.start()
    process.join()
    return process.exitcode


def state_of(store):
    state = RunState()
    state.apply_all(Log.open(store).entries)
    return state


def found(folder):
    """What the audit says, the fates, and whether the run has ended."""
    store = open_store(folder / "bus")
    state = state_of(store)
    fates = {seq: fate for seq, (fate, _) in sorted(state.fates.items())}
    return {"faults": audit(store).faults, "fates": fates, "ended": state.end is not None}


def main(root):
    (root / "calm").mkdir()
    assert status_of(root / "calm", None) == 0
    names = json.loads((root / "calm" / "names").read_text())
    told = {"calm": found(root / "calm"), "killed": []}
    for acts, name in enumerate(names):
        folder = root / str(acts)
        folder.mkdir()
        status = status_of(folder, acts)
        between = found(folder)
        again = 0 if between["ended"] else status_of(folder, None)
        told["killed"].append(
            {"act": name, "statuses": [status, again], "faults": between["faults"]}
            | {"after": found(folder)}
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
