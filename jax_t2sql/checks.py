"""Checks that are all made before the first fault of a program's input is reported."""

from collections.abc import Callable, Sequence

from jax_t2sql.errors import UserError


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
