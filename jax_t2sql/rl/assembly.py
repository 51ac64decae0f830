"""The parts of a run's loop, put together for this host."""

import dataclasses
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax

from jax_t2sql.assembly import Run
from jax_t2sql.bus import (
    LearnerBus,
    Log,
    SamplerBus,
    Start,
    Store,
    Takeover,
    read_run,
    start_or_takeover,
)
from jax_t2sql.config_loading import to_dict
from jax_t2sql.contract import make_bounds, make_contract, run_name
from jax_t2sql.errors import UserError
from jax_t2sql.experts_record import recorded_experts
from jax_t2sql.history import History
from jax_t2sql.learner import Checkpointer, Learner, LearnerState, TrainableSpec
from jax_t2sql.models import export_adapter, save_hf
from jax_t2sql.policies import make_engine, make_rl_learner, trainable_spec
from jax_t2sql.progress import Progress
from jax_t2sql.rl.best import BestAdapter
from jax_t2sql.rl.draws import Draws
from jax_t2sql.rl.evaluations import Evaluations, FleetEvaluations, InlineEvaluations
from jax_t2sql.rl.fleet import FleetSampling
from jax_t2sql.rl.fork import Parent, forked_state
from jax_t2sql.rl.gate import LengthGate
from jax_t2sql.rl.hosts import Hosts
from jax_t2sql.rl.inline import InlineSampling
from jax_t2sql.rl.loop import Hooks, Loop
from jax_t2sql.rl.ratios import RatioWatch
from jax_t2sql.rl.recording import Recorder
from jax_t2sql.rl.tasks import Feed
from jax_t2sql.rl.validation import FleetValidation
from jax_t2sql.rl.watch import Watch
from jax_t2sql.warmup import warm_up


@dataclass(frozen=True)
class Session:
    """What this process was told beside the configuration.

    Attributes:
      location: of the bus.
      store: the bus, opened.
      parent: what the run is forked from.
    """

    location: str
    store: Store
    hosts: Hosts
    parent: Parent | None = None


def lead_bus(
    run: Run, session: Session, checkpointer: Checkpointer, *, say: Callable[[str], None]
) -> LearnerBus:
    """Begins the run in the log, or takes it over; host 0 only.

    Raises:
      UserError: see `start_or_takeover`; or a forked run lacks what it was forked from; or this
        workdir lacks the checkpoint without which the run cannot go on. Nothing is written then.
    """
    contract = make_contract(run)
    name = run_name(contract)
    bounds = make_bounds(
        run.config,
        vocab_size=run.model.config.vocab_size,
        experts=recorded_experts(run.config, run.model.config),
    )
    log, found = read_run(session.store, run=name, contract=contract, bounds=bounds)
    entries = log.entries
    lacking = checkpointer.latest() is None and session.parent is None
    if entries and entries[0].parent is not None and lacking:
        raise UserError(
            f"the run in {session.location} was forked from {entries[0].parent} and has no"
            " checkpoint of its own yet; give --fork-from again"
        )
    if entries and entries[0].parent is None and session.parent is not None:
        raise UserError(
            f"the run in {session.location} was begun without --fork-from; give a new --workdir"
        )
    if found.floor and checkpointer.latest() is None:
        raise UserError(
            f"the run in {session.location} is at step {found.version} and can only go on from a"
            f" checkpoint, since groups below entry {found.floor} are collected; {run.workdir} has"
            " none: give the --workdir that it was trained in, or start another run from its"
            " weights with --fork-from and a new --bus"
        )
    bus = start_or_takeover(
        session.store,
        run=name,
        contract=contract,
        bounds=bounds,
        learner=f"{socket.gethostname()}-{os.getpid()}",
        config=to_dict(run.config),
        parent=session.parent.name if session.parent else None,
    )
    if entries:
        before = next(e for e in reversed(entries) if isinstance(e, Start | Takeover)).learner
        line = f"taking over the run in {session.location} from learner {before}, which stops if it"
        line += " still lives"
        if bus.version and checkpointer.latest() is None:
            line += f"; all its {bus.version} steps are replayed: {run.workdir} has no checkpoint"
        say(line)
    elif session.parent is not None:
        say(f"forked from {session.parent.name}")
    return bus


def make_trainer_parts(
    run: Run,
    session: Session,
    checkpointer: Checkpointer,
    *,
    say: Callable[[str], None],
    on_warmup: Callable[[int, dict], None],
) -> dict:
    """Fields of a `Trainer`, on any host, once the run is in the log."""
    learner, spec = make_rl_learner(run.config, run.model), trainable_spec(run.config)
    log = Log.open(session.store)
    if log.entries[0].parent is None:
        state = learner.init(run.model.params, jax.random.key(run.config.seed))
        trainable = warm_up(run, on_step=on_warmup).trainable
        state = dataclasses.replace(state, trainable=trainable)
    else:
        state = _forked(run, session, learner, spec, checkpointer, start_sha=log.shas[0])
    return {
        "run": run,
        "learner": learner,
        "spec": spec,
        "state": state,
        "checkpointer": checkpointer,
        "export": lambda state, directory: export(run, state, directory),
        "say": say,
        "hosts": session.hosts,
    }


def _forked(
    run: Run,
    session: Session,
    learner: Learner,
    spec: TrainableSpec,
    checkpointer: Checkpointer,
    *,
    start_sha: str,
) -> LearnerState:
    """The weights that a forked run starts from, kept as its checkpoint 0."""
    state = learner.init(run.model.params, jax.random.key(run.config.seed))
    if checkpointer.latest() is not None:
        return state  # which is restored from there
    state = forked_state(session.parent, run, learner, spec, state)
    checkpointer.save(0, state, {"version": 0, "log_index": 0, "log_sha256": start_sha})
    return state


def make_loop(
    parts: dict, session: Session, bus: LearnerBus, recorder: Recorder, progress: Progress
) -> tuple[Loop, Evaluations, BestAdapter, Watch]:
    """The leading host's loop, its evaluations, and the hooks that find the best version and that
    may stop it early."""
    run: Run = parts["run"]
    best, history = BestAdapter(run.workdir), History()
    watch, ratios = Watch(run, history), RatioWatch()
    if run.config.fleet.workers:
        validation = FleetValidation(run.heldout_prompts)
        gate = LengthGate(run.config.fleet.length_gate, bus.log.entries)
        sampling = FleetSampling(location=session.location, gate=gate, validation=validation)
        evaluations = FleetEvaluations(run, recorder, progress, validation)
    else:
        engine = make_engine(run.config, run.model, run.prompts.codec)
        sampler = SamplerBus(
            session.store,
            sampler="inline",
            contract=bus.state.start.contract,
            learner_epoch=bus.epoch,
        )
        sampling, validation = InlineSampling(engine, sampler), None
        evaluations = InlineEvaluations(run, recorder, progress, engine)

    def keep() -> list[str]:
        judged = validation.adapters if validation else []
        return [name for name in (best.adapter, *judged) if name]

    loop = Loop(
        **parts,
        bus=bus,
        feed=Feed(Draws(run, bus, history)),
        sampling=sampling,
        keep=keep,
        hooks=Hooks(
            after_step=[ratios.step, watch.step, recorder.step],
            after_publish=[ratios.published, evaluations.after_publish],
            after_evaluation=[best, watch.evaluation],
        ),
    )
    return loop, evaluations, best, watch


def export(run: Run, state: LearnerState, directory: Path) -> None:
    """Writes what was trained as files that other programs load: a whole model or an adapter."""
    if run.config.adapter.kind == "full":
        save_hf(dataclasses.replace(run.model, params=state.trainable), directory)
    else:
        export_adapter(
            directory,
            run.model.config,
            state.trainable,
            trainable_spec(run.config),
            base_model=run.config.model,
        )


def check_shared(hosts: Hosts, workdir: Path) -> None:
    """Checks that all hosts see one workdir, where the checkpoints lie.

    Raises:
      UserError: one does not; it is named.
    """
    if hosts.count == 1:
        return
    path = workdir / f"shared-{secrets.token_hex(8)}"
    if hosts.leads:
        path.touch()
    name = hosts.share(path.name)

    def see() -> None:
        if not (workdir / name).exists():
            raise UserError(
                f"does not see what host 0 writes to --workdir {workdir}; checkpoints need a folder"
                " that all hosts share"
            )

    try:
        hosts.all_well(see)
    finally:
        if hosts.leads:
            path.unlink()
