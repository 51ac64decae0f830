"""A new run that goes on from another one's weights, where the contract has changed."""

import dataclasses
from pathlib import Path

from jax_t2sql.assembly import Run
from jax_t2sql.errors import UserError
from jax_t2sql.learner import Checkpointer, Learner, LearnerState, LoraSpec, TrainableSpec
from jax_t2sql.models import load_adapter
from jax_t2sql.rundir import checkpoint_folder, restore_checkpoint

_ADAPTER_FILE = "adapter_config.json"


@dataclasses.dataclass(frozen=True)
class Parent:
    """Where a forked run comes from.

    Attributes:
      source: workdir of the other run, whose newest checkpoint is taken, or a folder with an
        adapter in PEFT format.
      name: for the start entry of the log.
    """

    source: Path
    name: str


def find_parent(source: Path) -> Parent:
    """Checks that there is something to fork from; nothing is loaded yet.

    Raises:
      UserError: there is neither a checkpoint nor an adapter.
    """
    if (source / _ADAPTER_FILE).is_file():
        return Parent(source, f"adapter {source.resolve()}")
    folder = checkpoint_folder(source)
    steps = [int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit()]
    if not steps:
        raise UserError(
            f"--fork-from {source}: neither a checkpoint of a run in {folder} nor"
            f" {_ADAPTER_FILE}; name the --workdir of a run, or a folder with an adapter"
        )
    return Parent(source, f"run {source.resolve()}, version {max(steps)}")


def forked_state(
    parent: Parent, run: Run, learner: Learner, spec: TrainableSpec, state: LearnerState
) -> LearnerState:
    """`state` with the parent's weights; the optimizer starts anew.

    Raises:
      UserError: they do not fit this model and configuration.
    """
    if (parent.source / _ADAPTER_FILE).is_file():
        if not isinstance(spec, LoraSpec):
            raise UserError(
                f"--fork-from {parent.source} is an adapter, but --adapter.kind full trains all"
                " weights; use --adapter.kind lora"
            )
        trainable = load_adapter(parent.source, run.model.config, spec=spec)
        return dataclasses.replace(state, trainable=trainable)
    with Checkpointer(checkpoint_folder(parent.source), keep=1_000_000) as checkpointer:
        found, _ = restore_checkpoint(checkpointer, learner.abstract_state(run.model.params))
    return dataclasses.replace(state, trainable=found.trainable)
