"""The record of a run: metrics, TensorBoard events and sampled episodes in its directory.

``metrics.jsonl``, ``samples.jsonl`` and ``solves.jsonl`` hold one JSON object a line. They are the
run's truth and survive crashes: a line torn by one is dropped when the record is opened again, and
lines of steps that a resumed run will do again are cut, so that every step of a phase appears once.
TensorBoard events are a copy for those who like them: one sub-directory (a "run" there) a phase.
"""

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError

METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"
SOLVES_FILE = "solves.jsonl"
TENSORBOARD_DIRECTORY = "tensorboard"

Scalar = float | int | str | None

_log = logging.getLogger(__name__)


class Tracker:
    """Appends to a run's record; a context manager.

    Args:
      run_dir: the run's directory, made if missing.
      first_step: the first step of RL that this process is going to log. Lines of an earlier
        process from there on are cut, but for the warm-up's, which lies before: they will be
        written again. ``None`` keeps all.
      samples_per_step: at most this many episodes a step are kept, evenly spread over those given.
      tensorboard: whether to write TensorBoard events too (needs tensorboardX).

    Raises:
      UserError: ``run_dir`` cannot be made or written.
    """

    def __init__(
        self,
        run_dir: str | Path,
        *,
        first_step: int | None = None,
        samples_per_step: int = 8,
        tensorboard: bool = True,
    ):
        self.run_dir = Path(run_dir)
        self._samples_per_step = samples_per_step
        self._start = first_step
        self._tensorboard = tensorboard
        self._writers: dict[str, Any] = {}
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            for name in (METRICS_FILE, SAMPLES_FILE, SOLVES_FILE):
                _repair(self.run_dir / name, self._start)
            self._metrics = open(self.run_dir / METRICS_FILE, "ab")  # noqa: SIM115
            self._samples = open(self.run_dir / SAMPLES_FILE, "ab")  # noqa: SIM115
            self._solves = open(self.run_dir / SOLVES_FILE, "ab")  # noqa: SIM115
        except OSError as error:
            raise UserError(
                f"cannot keep the run's record in {self.run_dir}: {error.strerror or error}. "
                "Give a --workdir that can be written."
            ) from error

    def log(self, step: int, metrics: Mapping[str, Any], *, phase: str = "rl") -> dict[str, Scalar]:
        """Appends one row and returns it as written.

        Values are numbers (also numpy's or JAX's, of one element), strings, booleans or None.
        A number that is not finite is written as null, named under ``nonfinite`` in the same row,
        and reported as a warning of the ``logging`` module.
        """
        row: dict[str, Any] = {"step": int(step), "phase": phase}
        row |= {name: _scalar(name, value) for name, value in metrics.items() if name not in row}
        nonfinite = {
            name: str(value)
            for name, value in row.items()
            if isinstance(value, float) and not math.isfinite(value)
        }
        if nonfinite:
            row |= dict.fromkeys(nonfinite)
            row["nonfinite"] = nonfinite
            _log.warning("%s step %d: not finite: %s", phase, step, nonfinite)
        _append(self._metrics, row)
        self._write_events(phase, row)
        return row

    def log_samples(
        self, step: int, records: Sequence[Mapping[str, Any]], *, phase: str = "rl"
    ) -> None:
        """Appends up to ``samples_per_step`` episodes of a step.

        A record holds ``question_id, db_id, question, gold_sql, predicted_sql, reward, terms,
        verdict, ending, version, turns``, where ``turns`` is a list of ``{"role", "text"}``.
        """
        for index in spread(len(records), self._samples_per_step):
            record = {"step": int(step), "phase": phase} | dict(records[index])
            _append(self._samples, _finite(record))

    def log_solves(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends how often questions were solved, as `jax_t2sql.solves` reads it."""
        for row in rows:
            _append(self._solves, row)

    def close(self) -> None:
        """Closes all files; harmless when repeated."""
        for writer in (self._metrics, self._samples, self._solves, *self._writers.values()):
            writer.close()
        self._writers.clear()

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write_events(self, phase: str, row: Mapping[str, Any]) -> None:
        if not self._tensorboard:
            return
        if phase not in self._writers:
            try:
                from tensorboardX import SummaryWriter
            except ImportError:
                _log.warning("no TensorBoard events: tensorboardX is not installed")
                self._tensorboard = False
                return
            self._writers[phase] = SummaryWriter(
                logdir=str(self.run_dir / TENSORBOARD_DIRECTORY / phase),
                purge_step=self._purge_step(phase),
            )
        for name, value in row.items():
            if name != "step" and isinstance(value, (int, float)):
                self._writers[phase].add_scalar(name, value, row["step"])

    def _purge_step(self, phase: str) -> int | None:
        """From which step TensorBoard must forget what an earlier process wrote in ``phase``."""
        return None if phase == "warmup" else self._start


def read_metrics(run_dir: str | Path) -> list[dict[str, Any]]:
    """The rows of ``metrics.jsonl`` in order; empty when there are none yet."""
    return list(iterate(Path(run_dir) / METRICS_FILE))


def iterate(path: Path) -> Iterator[dict[str, Any]]:
    """The readable rows of a record file one by one; a torn or foreign line is passed over."""
    if path.is_file():
        with open(path, "rb") as file:
            yield from (row for row in map(_parse, file) if row is not None)


def spread(n: int, k: int) -> list[int]:
    """At most ``k`` of the indices 0..n-1, evenly spaced, the first and the last among them.

    >>> spread(3, 8), spread(9, 3), spread(9, 1), spread(9, 0)
    ([0, 1, 2], [0, 4, 8], [8], [])
    """
    if n <= k:
        return list(range(n))
    if k <= 1:
        return [n - 1] * k
    return [round(i * (n - 1) / (k - 1)) for i in range(k)]


def _parse(line: bytes) -> dict[str, Any] | None:
    """A line's object, or None when it is torn (no newline) or not a row of ours."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int else None


def _repair(path: Path, start: int | None) -> None:
    """Drops unreadable lines and those at or after ``start``; replaces the file atomically."""

    def stays(line: bytes) -> bool:
        row = _parse(line)
        if row is None:
            return False
        return start is None or row.get("phase") == "warmup" or row["step"] < start

    if not path.exists():
        return
    with open(path, "rb") as file:
        dropped = sum(not stays(line) for line in file)
        if not dropped:
            return
        # A crash in mid-write must leave either the old file or the new one.
        draft = path.with_name(path.name + ".tmp")
        file.seek(0)
        with open(draft, "wb") as new:
            new.writelines(line for line in file if stays(line))
            new.flush()
            os.fsync(new.fileno())
    os.replace(draft, path)
    _log.info("%s: dropped %d lines that were torn or will be written again", path, dropped)


def _append(file: Any, row: Mapping[str, Any]) -> None:
    # ASCII escapes keep lone surrogates (undecodable database text) writable and readable.
    file.write(json.dumps(row, allow_nan=False, default=_plain).encode() + b"\n")
    file.flush()


def _plain(value: Any) -> Any:
    """JSON's view of numpy and JAX scalars and arrays."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _scalar(name: str, value: Any) -> Any:
    if hasattr(value, "tolist"):
        if getattr(value, "size", 1) != 1:
            raise ValueError(f"metric {name!r} has shape {value.shape}: log one number instead")
        value = value.reshape(()).tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"metric {name!r} is a {type(value).__name__}: log a number or a string")


def _finite(value: Any) -> Any:
    """The value with every non-finite float in it replaced by None."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
