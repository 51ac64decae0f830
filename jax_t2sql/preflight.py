"""Every fault of a program's input at once, before anything slow starts or any file is written."""

from pathlib import Path

from data_pipelines.mixture import parse_mixture
from jax_t2sql.bus.preflight import check_bus, window_fault
from jax_t2sql.checks import check_all
from jax_t2sql.config import TrainConfig
from jax_t2sql.contract import make_bounds
from jax_t2sql.datasets import heldout_split, open_data
from jax_t2sql.errors import UserError
from jax_t2sql.hints import read_hints
from jax_t2sql.models import check_model
from jax_t2sql.rundir import check_workdir
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql.notes import read_notes


def check_questions(
    questions: str | Path, databases: str | Path | None, *, split: str = "train"
) -> None:
    """Checks that questions can be read and, in a folder, that one of their databases is there.

    Some missing databases only set their questions aside; with none the folder is wrong.

    Args:
      questions: a file, or a dataset.
      databases: their folder; a dataset knows its own.
      split: of a dataset that names none.

    Raises:
      UserError: see `open_data` and `resolve_database`.
    """
    data = open_data(str(questions), databases, split=split)
    first = None
    for db_id in dict.fromkeys(problem.db_id for problem in data.problems):
        try:
            resolve_database(data.databases, db_id)
            return
        except UserError as error:
            first = first or error
    if first and data.databases.exists():  # else that is the fault: see `check_folder`
        raise first


def check_folder(databases: str | Path) -> None:
    """Checks that there is such a folder, or file, of databases; raises UserError if not."""
    if not Path(databases).exists():
        raise UserError(f"{databases}: no such directory or file; pass the folder of the databases")


def check_run_bus(config: TrainConfig, location: str, *, hosts: int = 1) -> list[str]:
    """Checks that the bus of a run keeps its promises; returns what is only doubtful.

    Args:
      location: directory or URL.
      hosts: processes of the learner.

    Raises:
      UserError: names every fault.
    """
    return check_bus(
        location,
        bounds=make_bounds(config, vocab_size=1),
        workers=config.fleet.workers or hosts - 1,
        groups_in_flight=config.fleet.groups_in_flight if config.fleet.workers else 0,
    )


def check_training(config: TrainConfig, workdir: Path, *, hosts: int = 1) -> None:
    """Checks a resolved configuration's workdir, model, question files and databases.

    Args:
      hosts: processes of the learner.

    Raises:
      UserError: names every fault.
    """
    checks = [lambda: check_workdir(config, workdir)]
    if config.hints.file is not None:
        checks.append(lambda: read_hints(config.hints.file, config.hints.strength))
    data = config.data
    if config.model != "tiny":  # which makes its own questions
        checks.append(lambda: check_model(config.model))
        folders = {
            data.train: data.databases,
            data.eval: data.eval_databases or data.databases,
            data.warmup: data.databases,
            **{ingredient.spec: None for ingredient in parse_mixture(data.mix)},
        }
        named = dict.fromkeys(folder for folder in folders.values() if folder is not None)
        for folder in named:
            checks.append(lambda folder=folder: check_folder(folder))
        for path, folder in folders.items():
            if path is not None:
                split = (heldout_split(path) or "val") if path == data.eval else "train"
                checks.append(
                    lambda path=path, folder=folder, split=split: check_questions(
                        path, folder, split=split
                    )
                )
    if config.fleet.workers:
        checks.append(lambda: _check_window(config))
    elif hosts > 1:
        checks.append(lambda: _refuse_inline(hosts))
    checks.append(lambda: read_notes(config.prompt.notes))
    check_all(checks)


def _refuse_inline(hosts: int) -> None:
    raise UserError(
        f"--fleet.workers is 0, but {hosts} hosts train together and cannot sample by themselves;"
        " give the number of sampler processes that are going to be started"
    )


def _check_window(config: TrainConfig) -> None:
    bounds, fleet = make_bounds(config, vocab_size=1), config.fleet
    if fault := window_fault(bounds, fleet.workers, fleet.groups_in_flight):
        raise UserError(
            f"{fault} (--fleet.workers, --fleet.groups-in-flight, --rl.groups, --rl.max-staleness)"
        )
