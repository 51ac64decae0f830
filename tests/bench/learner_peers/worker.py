"""The loop of a contestant's process: one update for every line read, measured where it runs."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable


def serve(update: Callable[[], float]) -> None:
    """Answers each line on stdin with the seconds and CPU-seconds of one update and its loss."""
    real = os.dup(1)
    os.dup2(2, 1)  # libraries print; the answers must stay alone
    out = os.fdopen(real, "w")
    for _ in sys.stdin:
        start, used = time.perf_counter(), cpu_seconds()
        loss = update()
        answer = {
            "seconds": time.perf_counter() - start,
            "cpu": cpu_seconds() - used,
            "loss": loss,
            "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(json.dumps(answer), file=out, flush=True)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
