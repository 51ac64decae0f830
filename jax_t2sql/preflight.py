"""Every fault of a program's input at once, before anything slow starts or any file is written."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jax_t2sql.config import TrainConfig
from jax_t2sql.errors import UserError
from jax_t2sql.models import check_model
from jax_t2sql.rundir import check_workdir
from jax_t2sql.sql import resolve_database
from jax_t2sql.text2sql import load_problems


def check_all(checks: Sequence[Callable[[], object]]) -> None:
    """Makes every check, then reports all that failed.

    Raises:
      UserError: one message; with several faults a numbered list of them.
    """
    faults = []
    for check in checks:
        try:
            check()
        except UserError as error:
            faults.append(str(error))
    if len(faults) == 1:
        raise UserError(faults[0])
    if faults:
        lines = [f"  {number}. {fault}" for number, fault in enumerate(faults, start=1)]
        raise UserError("\n".join([f"{len(faults)} faults of the input:", *lines]))


def check_questions(questions: str | Path, databases: str | Path) -> None:
    """Checks that a question file can be read and, in a folder, that one of its databases is there.

    Some missing databases only set their questions aside; with none the folder is wrong.

    Raises:
      UserError: see `load_problems` and `resolve_database`.
    """
    first = None
    for db_id in dict.fromkeys(problem.db_id for problem in load_problems(questions)):
        try:
            resolve_database(databases, db_id)
            return
        except UserError as error:
            first = first or error
    if first and Path(databases).exists():  # else that is the fault: see `check_folder`
        raise first


def check_folder(databases: str | Path) -> None:
    """Checks that there is such a folder, or file, of databases; raises UserError if not."""
    if not Path(databases).exists():
        raise UserError(f"{databases}: no such directory or file; pass the folder of the databases")


def check_training(config: TrainConfig, workdir: Path) -> None:
    """Checks a resolved configuration's workdir, model, question files and databases.

    Raises:
      UserError: names every fault.
    """
    checks = [lambda: check_workdir(config, workdir)]
    data = config.data
    if config.model != "tiny":  # which makes its own questions
        checks.append(lambda: check_model(config.model))
        folders = {
            data.train: data.databases,
            data.eval: data.eval_databases or data.databases,
            data.warmup: data.databases,
        }
        for folder in dict.fromkeys(folders[path] for path in folders if path is not None):
            checks.append(lambda folder=folder: check_folder(folder))
        for path, folder in folders.items():
            if path is not None:
                checks.append(lambda path=path, folder=folder: check_questions(path, folder))
    check_all(checks)
