"""The folder of a run: whose it is, its clock, and the result that it ends with."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_t2sql.config import TrainConfig
from jax_t2sql.config_loading import to_dict
from jax_t2sql.errors import UserError

# What changes only how a run is watched, kept or placed: it may be resumed with other values.
# (Not the final questions: accuracy before and after RL is of the same ones.)
_FREE = {
    "eval": ("every", "questions", "patience", "min_gain"),
    "alarms": None,
    "hints": ("file",),  # what it holds is in the run's contract
    "checkpoint": None,
    "sampler": None,
    "mesh": None,
    "fleet": None,
    "grading": ("workers", "gold_folder"),
}

# All that a run leaves which was refused while its bus, model and questions were looked at.
_BEFORE_IT_BEGAN = frozenset(
    {
        *("bus", "config.json", "cut_schemas.jsonl", "excluded.jsonl", "gold_warnings.jsonl"),
        "refused_hints.jsonl",
    }
)


def identity(config: dict) -> dict:
    """The part of a configuration (as a dict) that a resumed run must share."""
    kept = {}
    for name, section in config.items():
        free = _FREE.get(name, ())
        if free is None:
            continue
        if isinstance(section, dict):
            section = {key: value for key, value in section.items() if key not in free}
        kept[name] = section
    return kept


def open_workdir(config: TrainConfig, workdir: Path) -> None:
    """Makes the run's folder, or checks that the run in it has this configuration.

    What may differ in a resumed run is written as it is now.

    Raises:
      UserError: as `check_workdir` does.
    """
    check_workdir(config, workdir)
    make_folder(workdir, "--workdir")
    write_json(workdir / "config.json", to_dict(config))


def checkpoint_folder(workdir: Path) -> Path:
    """Where the checkpoints of RL lie."""
    return workdir / "checkpoints" / "rl"


def make_folder(path: Path, option: str) -> None:
    """Makes a folder that the user named by an option; raises UserError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{option} {path} cannot be made ({error.strerror}); name another folder"
        ) from error


def check_workdir(config: TrainConfig, workdir: Path) -> None:
    """Checks that the folder is free, or holds a run of this configuration.

    Raises:
      UserError: it holds a run of another configuration, or something else.
    """
    if ":/" in str(workdir):  # of a URL, pathlib leaves one slash
        raise UserError(
            f"--workdir {workdir} is no folder; checkpoints and records need one, that all hosts"
            " see (a mounted bucket, say). The bus may be in a bucket: --bus gs://BUCKET/RUN"
        )
    path = workdir / "config.json"
    try:
        is_there = path.is_file()
    except OSError as error:  # a name too long, say
        raise UserError(
            f"--workdir {workdir} cannot be used ({error.strerror}); name another folder"
        ) from error
    if is_there:
        try:
            found = json.loads(path.read_text())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid JSON ({error}); use another --workdir") from error
        if not isinstance(found, dict) or not to_dict(config).keys() <= found.keys():
            raise UserError(
                f"{path} is not the configuration of a run of this version (a model's, perhaps, or"
                " of an older jax_t2sql); use another --workdir"
            )
        if {entry.name for entry in workdir.iterdir()} <= _BEFORE_IT_BEGAN:
            return  # refused then: a corrected command may use the folder
        different = _differences(identity(found), identity(json.loads(json.dumps(to_dict(config)))))
        if different:
            raise UserError(
                f"{workdir} holds a run of another configuration: {'; '.join(different[:6])}."
                f" Use the same options to resume it, or another --workdir (with --fork-from"
                f" {workdir} it goes on from these weights)"
            )
    elif workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
        raise UserError(
            f"{workdir} exists and holds no run (no config.json); choose another --workdir"
        )


def _differences(found: dict, wanted: dict) -> list[str]:
    different = []
    for name in sorted(found.keys() | wanted.keys()):
        old, new = found.get(name), wanted.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            different += [
                f"{name}.{key} was {old.get(key)!r}, now {new.get(key)!r}"
                for key in sorted(old.keys() | new.keys())
                if old.get(key) != new.get(key)
            ]
        elif old != new:
            different.append(f"{name} was {old!r}, now {new!r}")
    return different


def restore_checkpoint(checkpointer: Any, like: Any) -> tuple[Any, dict]:
    """The newest complete checkpoint's state and meta.

    Args:
      checkpointer: a `jax_t2sql.learner.Checkpointer` that holds one.
      like: the abstract state that is wanted.

    Raises:
      UserError: its arrays have other names, shapes or types.
    """
    try:
        return checkpointer.restore(like)
    except ValueError as error:
        raise UserError(str(error)) from error


def write_json(path: Path, value) -> None:
    """Writes a file that is there whole or not at all."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    draft.replace(path)


class Clock:
    """Wall and processor seconds of a run over all its processes, resumed ones included."""

    def __init__(self, path: Path):
        self._path = path
        self._earlier = json.loads(path.read_text()) if path.is_file() else {"wall": 0, "cpu": 0}
        self._started = time.monotonic()

    def wall(self) -> float:
        """Seconds that the run has taken so far."""
        return self._earlier["wall"] + time.monotonic() - self._started

    def cpu(self) -> float:
        """Processor seconds of the run's main process so far."""
        return self._earlier["cpu"] + time.process_time()

    def save(self) -> None:
        """Keeps the present readings for a process that resumes the run."""
        write_json(self._path, {"wall": self.wall(), "cpu": self.cpu()})


def print_result(result: dict, workdir: Path) -> None:
    """The figures that a user waits for."""

    def line(name: str, accuracy: float, interval: Sequence[float]) -> str:
        return f"  {name:<12}{accuracy:7.1%}   95 % interval {interval[0]:.1%} to {interval[1]:.1%}"

    print(f"\nheld-out execution accuracy, greedy, {result['n']} questions")
    print(line("before RL", result["before"], result["before_interval"]))
    print(line("after RL", result["after"], result["after_interval"]))
    for part, label in (("seen", "seen templates"), ("unseen", "templates never trained on")):
        if result["parts"]["after"].get(part, {}).get("n"):
            before, after = result["parts"]["before"][part], result["parts"]["after"][part]
            print(
                f"  {label} ({after['n']}): {before['accuracy']:.1%} before,"
                f" {after['accuracy']:.1%} after"
            )
    print(f"time     {result['minutes']:.1f} minutes (seed {result['seed']})")
    print(f"trained  {result['trained']}")
    print(f"report   {workdir / 'report.html'}")
