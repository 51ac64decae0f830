"""Reading a run's log before leading it: is it ours to continue?"""

from jax_t2sql.bus.contract import Bounds, Contract
from jax_t2sql.bus.entries import Start
from jax_t2sql.bus.faults import ContractError, RunEnded
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store


def read_run(store: Store, *, run: str, contract: Contract, bounds: Bounds) -> tuple[Log, RunState]:
    """The log and its state; an empty log is any run's.

    Raises:
        ContractError, RunEnded, LogError: see `learner_side.start_or_takeover`.
    """
    log = Log.open(store)
    state = RunState()
    state.apply_all(log.entries)
    if state.start is not None:
        _check_same_run(store, state.start, run=run, contract=contract, bounds=bounds)
    if state.end is not None:
        raise RunEnded(
            f"the run in {store!r} has ended ({state.end.reason}); "
            "choose a new workdir to train again"
        )
    return log, state


def _check_same_run(
    store: Store, start: Start, *, run: str, contract: Contract, bounds: Bounds
) -> None:
    different = start.contract.differences(contract)
    if start.run != run:
        different.append(f"run name (run: {start.run}, now: {run})")
    for name in bounds.__struct_fields__:
        before, now = getattr(start.bounds, name), getattr(bounds, name)
        if before != now:
            different.append(f"{name} (run: {before}, now: {now})")
    if different:
        raise ContractError(
            f"the run in {store!r} was started with another contract; these differ: "
            f"{', '.join(different)}. Set them back to continue it, or go on from its weights "
            "in a new run that names it as its parent: --fork-from its workdir, with a new "
            "--workdir (and --bus)"
        )
