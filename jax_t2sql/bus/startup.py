"""Taking the lead of a run: it is begun, or its log is read and continued."""

from typing import Any

from jax_t2sql.bus.contract import Bounds, Contract
from jax_t2sql.bus.entries import Start, Takeover
from jax_t2sql.bus.faults import ContractError, RunEnded
from jax_t2sql.bus.keys import check_name
from jax_t2sql.bus.learner_side import LearnerBus
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.offers import holders, orphans, undelivered
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store


def start_or_takeover(
    store: Store,
    *,
    run: str,
    contract: Contract,
    bounds: Bounds,
    learner: str,
    config: dict[str, Any] | None = None,
    parent: str | None = None,
) -> LearnerBus:
    """Begin the run if the log is empty, else take it over.

    learner: who this is, for people reading the log (host and process id).
    config, parent: for the start entry; see there.

    Raises:
        ContractError: the log was started with another contract, bounds or run name.
        RunEnded: the log has an end entry.
        LogError: the log is damaged.
        LostLeadership: another learner started or took over at the same moment.
    """
    check_name(run)
    log, state = read_run(store, run=run, contract=contract, bounds=bounds)
    bus = LearnerBus(log, state)
    if state.start is None:
        bus.append_entry(
            Start,
            epoch=0,
            run=run,
            learner=learner,
            contract=contract,
            bounds=bounds,
            config=config or {},
            parent=parent,
        )
    else:
        bus.append_entry(Takeover, epoch=log.head + 1, learner=learner)
        claims = holders(store, undelivered(store, state))
        bus.offer_again(orphans(claims, epoch=bus.epoch))
    return bus


def read_run(store: Store, *, run: str, contract: Contract, bounds: Bounds) -> tuple[Log, RunState]:
    """The log and its state; an empty log is any run's.

    Raises:
        ContractError, RunEnded, LogError: see `start_or_takeover`.
    """
    log = Log.open(store)
    state = RunState()
    state.apply_all(log.entries)
    if state.start is not None:
        _check_same_run(store, state.start, run=run, contract=contract, bounds=bounds)
    if state.end is not None:
        raise RunEnded(
            f"the run in {store} has ended ({state.end.reason}); "
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
            f"the run in {store} was started with another contract; these differ: "
            f"{', '.join(different)}. Set them back to continue it, or go on from its weights "
            "in a new run that names it as its parent: --fork-from its workdir, with a new "
            "--workdir (and --bus)"
        )
