"""What a run writes down and shows of its steps and evaluations, each of them once."""

from pathlib import Path

from jax_t2sql.assembly import Run
from jax_t2sql.grading import CacheCounts, GradingPool
from jax_t2sql.groups import solve_counts, traces
from jax_t2sql.progress import Progress
from jax_t2sql.rl.loop import Loop, Step
from jax_t2sql.rundir import Clock
from jax_t2sql.solves import Solves
from jax_t2sql.tracking import SOLVES_FILE, Tracker, iterate, read_metrics


class Recorder:
    """Keeps the record of a run; a step that an earlier process logged is not logged again."""

    def __init__(self, run: Run, tracker: Tracker, clock: Clock, progress: Progress):
        self._tracker, self._clock, self._progress = tracker, clock, progress
        self._logged = logged_steps(run.workdir)
        self._cache = _CacheShare(run.pool)
        self._solves = Solves(iterate(run.workdir / SOLVES_FILE))

    def has(self, phase: str, step: int) -> bool:
        """Whether that row is in the record."""
        return (phase, step) in self._logged

    def warmup(self, step: int, metrics: dict) -> None:
        """A step of the warm-up."""
        if not self.has("warmup", step):
            row = metrics | {"cpu_seconds": self._clock.cpu()}
            self._tracker.log(step, row, phase="warmup")
        self._clock.save()
        self._progress.step(step, metrics)

    def step(self, loop: Loop, step: Step) -> None:
        """A hook for `Hooks.after_step`, to come after those that add metrics."""
        if not step.applied:
            return
        metrics = step.metrics
        if not step.replayed:
            metrics |= self._cache.of_step()
        self._clock.save()
        if not self.has("rl", step.version):
            visits = solve_counts(step.fresh, step.version)
            self._tracker.log_solves(visits)
            metrics |= self._solves.observe(visits) if visits else {}
            self._tracker.log(step.version, metrics | {"cpu_seconds": self._clock.cpu()})
            self._tracker.log_samples(step.version, traces(step.fresh))
        self._progress.step(step.version, metrics, note="replayed" * step.replayed)

    def evaluation(self, version: int, metrics: dict) -> None:
        """Held-out accuracy of a version."""
        if not self.has("eval", version):
            self._tracker.log(version, metrics, phase="eval")
            self._logged.add(("eval", version))


def logged_steps(workdir: Path) -> set[tuple[str, int]]:
    """Phase and step of every row in the record."""
    return {(row["phase"], row["step"]) for row in read_metrics(workdir)}


class _CacheShare:
    """Share of a step's checks for equivalence whose verdict was known."""

    def __init__(self, pool: GradingPool):
        self._pool, self._before = pool, CacheCounts()

    def of_step(self) -> dict[str, float]:
        counts = self._pool.equivalence_cache
        asked, known = counts.asked - self._before.asked, counts.known - self._before.known
        self._before = counts
        return {"equivalence_cache_hits": known / asked} if asked else {}
