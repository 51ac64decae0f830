"""How long a learner idles, asynchronous against synchronous: ``python tests/bench/fleet_idle.py``.

The fleet of `fleet_simulation` in virtual time: 64 workers with one group each, rollouts of 90 s on
average with a long tail (lognormal, sigma 1), 30 % of groups without signal. Both loops train the
same seconds a group; the synchronous one waits for all 64 that it issued. Prints, for updates of
several lengths: idle shares, throughput as a ratio, stale fates, and used/all mean lengths by the
log (mean over batches) and over the whole run.
"""

import numpy as np
from fleet_simulation import simulate

from jax_t2sql.bus import Batch
from jax_t2sql.bus.audit import audit

FLEET = {"workers": 64, "in_flight": 1}
BATCH, K, STEPS, SEEDS = 16, 4, 60, (0, 1)


def figures(result):
    """Groups trained a second, idle share, stale share, used/all by the log and over the run."""
    batches = [entry for entry in result.bus.log.entries if isinstance(entry, Batch)]
    used = [length for batch in batches for group in batch.groups for length in group.lengths]
    assert audit(result.store.inner).sound
    return np.array(
        [
            len(used) / result.seconds,
            result.idle / result.seconds,
            result.stale / len(result.bus.state.fates),
            np.mean([batch.length_ratio for batch in batches]),
            np.mean(used) / np.mean(result.lengths),
        ]
    )


def mean_figures(**plan):
    return np.mean([figures(simulate(seed=seed, **FLEET, **plan)) for seed in SEEDS], axis=0)


def main():
    print("update  gate   idle sync  idle async  throughput  stale  used/all log  used/all run")
    for seconds in (200.0, 150.0, 100.0, 50.0):
        slow = mean_figures(
            batch=4 * BATCH, k=0, steps=10, train_seconds=4 * seconds, synchronous=True
        )
        for gate in (0.0, 0.95):
            fast = mean_figures(
                batch=BATCH, k=K, steps=STEPS, train_seconds=seconds, length_gate=gate
            )
            print(
                f"{seconds:5.0f} s  {gate:4.2f}  {slow[1]:9.0%}  {fast[1]:10.0%}"
                f"  {fast[0] / slow[0]:9.2f}x  {fast[2]:5.1%}  {fast[3]:12.2f}  {fast[4]:12.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
