"""A simulated fleet in virtual time on a real bus: ``python tests/bench/fleet.py [WORKERS]``.

Prints, for a whole fleet of WORKERS (default 1000: 2 CPU-minutes and 3 GB) with long-tailed
rollouts, what a group costs in operations of the object store once the window is full (a listing
counts one for each 1,000 names), and how evenly work is shared. For idle time: `fleet_idle.py`.
"""

import functools
import sys
import time

import numpy as np
from fleet_simulation import simulate

from jax_t2sql.bus import free_offers, log
from jax_t2sql.bus.audit import audit

IN_FLIGHT = 16


def report(name, result):
    entries = [e for e in result.bus.log.entries if type(e).__name__ == "Batch"]
    trained = sum(len(e.groups) for e in entries)
    ratio = float(np.mean([e.length_ratio for e in entries]))
    decided = len(result.bus.state.fates)
    print(
        f"{name}: {trained / result.seconds:.2f} groups/s, learner idle "
        f"{result.idle / result.seconds:.0%}, stale {result.stale / max(decided, 1):.1%} of "
        f"{decided}, used/all length {ratio:.2f}, "
        f"audit {'sound' if audit(result.store.inner).sound else 'FAULTS'}",
        flush=True,
    )
    return trained / result.seconds


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    # So many samplers in one process read the same entries: for memory's sake each is decoded once,
    # and names are kept once.
    log.decode_entry = functools.lru_cache(64)(log.decode_entry)
    free_offers.claim_key = functools.lru_cache(1 << 18)(free_offers.claim_key)
    started = time.process_time()
    batch = workers * IN_FLIGHT // 4
    result = simulate(
        workers=workers, in_flight=IN_FLIGHT, batch=batch, k=4, steps=4, train_seconds=60.0
    )
    report(f"{workers} workers with {IN_FLIGHT} groups in flight each", result)
    kinds = ", ".join(f"{n / result.groups:.2f} {name}" for name, n in result.operations.items())
    fewest, most = min(result.delivered), max(result.delivered)
    print(
        f"{result.operations_per_group:.2f} operations a group ({result.groups} groups: {kinds}); "
        f"{fewest} to {most} groups by each worker, {time.process_time() - started:.0f} CPU-s"
    )


if __name__ == "__main__":
    main()
