"""Checkpoints of a training state, written by Orbax: complete or not there at all."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from .arrays import Tree


class Checkpointer:
    """The last `keep` states of a run, in numbered directories under one root.

    A save writes into a temporary directory and renames it when all is on disk, so a process that
    dies or a disk that fills up in the middle leaves the earlier checkpoints as they were and
    nothing that could be restored by mistake. On several hosts every host makes the same calls.

    Use as a context manager, or call `close`.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int = 3):
        """Creates the directory if need be and clears what interrupted saves have left there.

        Raises:
          ValueError: keep is below 1.
          OSError: the directory cannot be made or read.
        """
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must be kept")
        # Orbax takes as long to import as JAX itself; those who never save should not wait for it.
        import orbax.checkpoint as ocp

        self.directory = Path(directory).absolute()
        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            self.directory,
            item_handlers={  # lets a fresh process read metadata before it restores
                "state": ocp.StandardCheckpointHandler(),
                "meta": ocp.JsonCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            ),
        )

    def latest(self) -> int | None:
        """The step of the newest complete checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: Tree, meta: dict[str, Any]) -> None:
        """Writes a checkpoint and returns when it is complete; then deletes the oldest.

        Args:
          step: its number, higher than that of every checkpoint there is.
          state: a pytree of arrays.
          meta: JSON values to restore with it, such as a data cursor.

        Raises:
          ValueError: the step is not above `latest()`.
          OSError: the disk is full or fails.
        """
        latest = self.latest()
        if latest is not None and step <= latest:
            raise ValueError(
                f"cannot save step {step} to {self.directory}, which already holds step {latest}: "
                "restore that one, or use another directory"
            )
        args = self._ocp.args
        flat = {name: _saveable(leaf) for name, leaf in _flatten(state).items()}
        items = args.Composite(state=args.StandardSave(flat), meta=args.JsonSave(meta))
        try:
            # A write that fails half-way makes TensorStore's threads print tracebacks of their
            # own, so that a full disk is better found before the first byte.
            _reserve(self.directory, sum(leaf.nbytes for leaf in flat.values()))
        except OSError as error:
            raise self._not_written(step, error.errno) from error
        try:
            self._manager.save(step, args=items)
        except ValueError as error:
            # TensorStore reports a failed write as ValueError, with the system's code in its text.
            code = re.search(r"os_error_code='(\d+)'", str(error))
            if code is None:
                raise
            raise self._not_written(step, int(code[1])) from error

    def _not_written(self, step: int, number: int) -> OSError:
        return OSError(
            number,
            f"{os.strerror(number)}: checkpoint {step} was not written to {self.directory}; "
            "the earlier ones are intact, so free some space and save or resume from there",
        )

    def restore(self, like: Tree, step: int | None = None) -> tuple[Tree, dict[str, Any]]:
        """Reads a checkpoint back, bit by bit what was saved.

        Args:
          like: a tree with the structure, shapes, dtypes and, on a mesh, shardings that are wanted:
            `learner.abstract_state(base)` or a state.
          step: default is the latest.

        Returns:
          The state and the meta values that were saved with it.

        Raises:
          FileNotFoundError: there is no such checkpoint.
          ValueError: an array is missing, left over, or of another shape or dtype; the message
            names its path and both shapes.
        """
        step = self.latest() if step is None else step
        if step is None or step not in self._manager.all_steps():
            name = "checkpoint" if step is None else f"checkpoint of step {step}"
            raise FileNotFoundError(f"no complete {name} in {self.directory}")
        wanted = _flatten(like)
        saved = self._manager.item_metadata(step)["state"].tree
        _check_same(wanted, saved, where=f"checkpoint {self.directory}/{step}")
        args = self._ocp.args
        restored = self._manager.restore(
            step,
            args=args.Composite(
                state=args.StandardRestore({name: _target(leaf) for name, leaf in wanted.items()}),
                meta=args.JsonRestore(),
            ),
        )
        # Values that come back as numpy go to the default device, uncommitted like fresh ones.
        leaves = [jnp.asarray(restored["state"][name]) for name in wanted]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), dict(restored["meta"])

    def close(self) -> None:
        self._manager.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _reserve(directory: Path, size: int) -> None:
    """Raises OSError if a file of `size` bytes cannot be had in `directory` now."""
    if not hasattr(os, "posix_fallocate"):
        return
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            # Some file systems cannot reserve: that says nothing of the room there is.
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise


def _flatten(tree: Tree) -> dict[str, Any]:
    """Leaves by path. Checkpoints hold this flat form, free of Python types that may change."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    flat = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    if len(flat) != len(leaves):
        raise ValueError("two arrays of the state have the same path: rename a key that holds '/'")
    return flat


def _saveable(leaf: Any) -> Any:
    """Of several hosts, only host 0 writes what each of them has whole for itself."""
    alone = jax.process_count() > 1 and getattr(leaf, "is_fully_addressable", False)
    return np.asarray(leaf) if alone else leaf


def _target(leaf: Any) -> Any:
    """What tells Orbax where an array goes: its sharding on a mesh, else host memory."""
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    return np.empty(leaf.shape, leaf.dtype)


def _check_same(wanted: dict[str, Any], saved: dict[str, Any], *, where: str) -> None:
    """Orbax would cast a dtype silently and names no path when shapes differ."""
    faults = [f"{name} is missing" for name in wanted if name not in saved]
    faults += [f"{name} is not part of this state" for name in saved if name not in wanted]
    for name in [name for name in wanted if name in saved]:
        have, want = saved[name], wanted[name]
        if tuple(have.shape) != tuple(want.shape):
            faults.append(f"{name} has shape {tuple(have.shape)}, expected {tuple(want.shape)}")
        elif np.dtype(have.dtype) != np.dtype(want.dtype):
            faults.append(f"{name} has dtype {have.dtype}, expected {want.dtype}")
    if faults:
        shown = "; ".join(faults[:8])
        more = f"; and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise ValueError(
            f"{where} does not fit this model and configuration: {shown}{more}. "
            "Use the configuration it was saved with, or another directory"
        )
