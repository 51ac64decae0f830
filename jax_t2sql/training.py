"""A whole training run: assembly, warm-up, evaluation before, RL, evaluation after, report."""

import dataclasses
import io
import json
import logging
import signal
import sys
from pathlib import Path

import jax

from jax_t2sql.assembly import (
    Run,
    build_prompts,
    enable_compilation_cache,
    episode_config,
    load_base,
    make_pool,
)
from jax_t2sql.bus import open_store
from jax_t2sql.config import TrainConfig
from jax_t2sql.contract import grader_name
from jax_t2sql.errors import UserError
from jax_t2sql.hints import open_hints
from jax_t2sql.learner import Checkpointer
from jax_t2sql.policies import check_targets
from jax_t2sql.preflight import check_run_bus, check_training
from jax_t2sql.programs import Ended
from jax_t2sql.progress import Progress
from jax_t2sql.question_set import load_questions, write_reasons
from jax_t2sql.report import write_report
from jax_t2sql.rl import Hosts, Loop, Trainer, follow, restore, train
from jax_t2sql.rl.assembly import Session, check_shared, lead_bus, make_loop, make_trainer_parts
from jax_t2sql.rl.best import BestAdapter
from jax_t2sql.rl.fork import find_parent
from jax_t2sql.rl.recording import Recorder
from jax_t2sql.rl.update import HostFault
from jax_t2sql.rundir import (
    Clock,
    check_workdir,
    checkpoint_folder,
    open_workdir,
    print_result,
    write_json,
)
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.tracking import Tracker


def run_training(
    config: TrainConfig,
    workdir: Path,
    *,
    bus: str | None = None,
    fork_from: Path | None = None,
    hosts: Hosts | None = None,
) -> dict | None:
    """Trains as configured, or resumes; returns what result.json holds, None if this host only
    follows host 0.

    Args:
      bus: directory or URL of the run's bus; by default WORKDIR/bus.
      fork_from: start from the weights of another run, or an adapter; see `rl.fork`.
      hosts: this host among those of the run, which JAX has joined.

    Raises:
      UserError: bad input, or a workdir of another configuration.
      Ended: told to end by SIGTERM; what was trained is saved.
    """
    hosts, location = hosts or Hosts(), bus or str(workdir / "bus")
    hosts.all_well(lambda: check_workdir(config, workdir))
    result_path = workdir / "result.json"
    if result_path.is_file():
        return _show_again(workdir) if hosts.leads else None
    hosts.all_well(lambda: check_training(config, workdir, hosts=hosts.count))
    # Its own checkpoints take over from what the run was forked from, which may be gone by then.
    begun = any(checkpoint_folder(workdir).glob("[0-9]*"))
    forks = fork_from is not None and not begun
    parent = hosts.all_well(lambda: find_parent(fork_from) if forks else None)
    hosts.all_well(lambda: open_workdir(config, workdir) if hosts.leads else None)
    check_shared(hosts, workdir)
    warnings = hosts.all_well(lambda: check_run_bus(config, location, hosts=hosts.count))
    enable_compilation_cache()
    _quiet_failed_saves()
    quiet = None if hosts.leads else io.StringIO()
    with make_pool(config) as pool, Progress(config.rl.steps, stream=quiet) as progress:
        for warning in warnings:
            progress.message(f"warning: {warning}")
        if config.model == "tiny":  # whose files host 0 makes for all
            hosts.all_well(lambda: load_base(config, workdir) if hosts.leads else None)
        run = hosts.all_well(lambda: assemble(config, workdir, pool, progress, hosts=hosts))
        session = Session(location, open_store(location), hosts, parent)
        if hosts.leads:
            return _lead(run, session, progress)
        return _attend(run, session, progress)


def _show_again(workdir: Path) -> dict:
    """The result of a run that is complete."""
    result = json.loads((workdir / "result.json").read_text())
    print("this run is complete:")
    if not (workdir / "report.html").is_file():  # the run was killed before its last line
        write_report(workdir)
    print_result(result, workdir)
    return result


def _quiet_failed_saves() -> None:
    """Lets a failed checkpoint end in the one message that it raises.

    Orbax logs a traceback of its own first, and TensorStore's threads print one each when they
    report to an event loop that the failure has closed.
    """
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    show = sys.excepthook

    def hook(kind, error, trace):
        if not (kind is RuntimeError and str(error) == "Event loop is closed"):
            show(kind, error, trace)

    sys.excepthook = hook


def assemble(
    config: TrainConfig, workdir: Path, pool, progress: Progress, *, hosts: Hosts | None = None
) -> Run:
    """Loads and checks everything that a run needs."""
    model, data = load_base(config, workdir)
    check_targets(config, model)
    codec, episode = ChatCodec(model.tokenizer), episode_config(config.prompt, model)
    questions = load_questions(
        data, pool=pool, need_warmup=config.warmup.steps > 0, say=progress.message
    )
    questions, prompts, heldout_prompts = build_prompts(questions, codec, episode, config.prompt)
    run = Run(config, workdir, model, questions, prompts, heldout_prompts, pool)
    if config.hints.file is not None:
        asked = questions.train + (questions.warmup if config.warmup.hint_share else [])
        hints, refused = open_hints(config.hints, asked, prompts, pool, say=progress.message)
        run = dataclasses.replace(run, hints=hints)
    if hosts is not None and not hosts.leads:
        return run  # what there is to say, host 0 says
    cut = prompts.cut_schemas + heldout_prompts.cut_schemas
    if cut:
        write_reasons(workdir / "cut_schemas.jsonl", cut)
        progress.message(
            f"{len(cut)} prompts do not show their schema whole (see cut_schemas.jsonl)"
        )
    if config.hints.file is not None:
        write_reasons(workdir / "refused_hints.jsonl", refused)
    write_reasons(workdir / "excluded.jsonl", questions.excluded)
    write_reasons(workdir / "gold_warnings.jsonl", questions.doubts)
    if questions.doubts:
        progress.message(
            f"{len(questions.doubts)} gold queries leave part of their answer to chance, or are"
            " slow (see gold_warnings.jsonl)"
        )
    progress.message(
        f"{len(questions.train)} training and {len(questions.heldout)} held-out questions,"
        f" {len(questions.excluded)} set aside; {config.model} with"
        f" {sum(x.size for x in jax.tree.leaves(model.params)) / 1e6:.2f} M parameters,"
        f" training {config.adapter.kind}"
    )
    return run


def _lead(run: Run, session: Session, progress: Progress) -> dict:
    """Host 0's part: everything that is decided and written."""
    config, workdir, hosts = run.config, run.workdir, session.hosts
    clock = Clock(workdir / "clock.json")
    try:
        with Checkpointer(checkpoint_folder(workdir), keep=config.checkpoint.keep) as checkpointer:
            bus = lead_bus(run, session, checkpointer, say=progress.message)
            hosts.announce("go", stop=False, details={})
            resumed = bus.version
            with Tracker(workdir, first_step=resumed + 1) as tracker:
                recorder = Recorder(run, tracker, clock, progress)
                progress.phase("warmup", config.warmup.steps)
                parts = make_trainer_parts(
                    run, session, checkpointer, say=progress.message, on_warmup=recorder.warmup
                )
                loop, evaluations, best, watch = make_loop(parts, session, bus, recorder, progress)
                evaluations.start(loop)
                progress.phase("rl", config.rl.steps)
                if resumed:
                    progress.message(
                        f"resuming at step {resumed}: what the checkpoint lacks is replayed"
                    )
                with loop.preemption:
                    restore(loop)
                    evaluations.resume(loop)
                    watch.resume(loop)
                    train(loop)
                    found = None if loop.interrupted else evaluations.finish(loop)
                    if found is None:
                        loop.announce("end")
                        raise _ended(loop)
                    result = _conclude(loop, found, best, clock, workdir)
    except HostFault:
        raise  # all hosts know
    except BaseException as error:
        if not isinstance(error, Ended):
            hosts.announce("fail", stop=False, details={"reason": str(error)[:500]})
        raise
    report = write_report(workdir)
    progress.message(f"report written to {report}")
    print_result(result, workdir)
    return result


def _attend(run: Run, session: Session, progress: Progress) -> None:
    """Another host's part: the same updates, announced by host 0."""
    folder, keep = checkpoint_folder(run.workdir), run.config.checkpoint.keep
    with Checkpointer(folder, keep=keep) as checkpointer:
        order = session.hosts.next_order(stop=False)
        if order.kind == "fail":
            raise UserError(f"host 0 has stopped: {order.details['reason']}")
        parts = make_trainer_parts(
            run, session, checkpointer, say=progress.message, on_warmup=lambda step, metrics: None
        )
        trainer = Trainer(**parts)
        with trainer.preemption:
            follow(trainer, session.store)
        if trainer.interrupted:
            raise _ended(trainer)


def _ended(trainer: Trainer) -> Ended:
    return Ended(
        signal.SIGTERM,
        f"stopped by SIGTERM after step {trainer.version}: its checkpoint and weights are saved;"
        " the same command goes on",
    )


def _conclude(
    loop: Loop, found: dict[str, dict], best: BestAdapter, clock: Clock, workdir: Path
) -> dict:
    """Writes the result, exports what was trained, and ends the run in the log."""
    config, bus, before, after = loop.run.config, loop.bus, found["before"], found["after"]
    trained = workdir / ("model" if config.adapter.kind == "full" else "adapter")
    loop.export(loop.whole_state(), trained)
    best.export(bus, workdir / "best")
    result = {
        "before": before["score"],
        "after": after["score"],
        "n": after["metrics"]["eval_n"],
        "minutes": round(clock.wall() / 60, 2),
        "seed": config.seed,
        "before_interval": before["interval"],
        "after_interval": after["interval"],
        "parts": {"before": before["parts"], "after": after["parts"]},
        "cpu_seconds": round(clock.cpu(), 1),
        "grader": grader_name(config),
        "contract": bus.state.start.contract.sha256,
        "trained": str(trained),
        "best": dataclasses.asdict(best.best) if best.best else None,
        "stopped": loop.stopped or None,
    }
    write_json(workdir / "result.json", result)
    published = bus.state.last_publish.adapter
    why = f": {loop.stopped}" if loop.stopped else ""
    bus.end(
        reason=f"{loop.version} updates applied{why}",
        final=published.name if published else None,
        best=best.adapter,
    )
    loop.announce("end")
    return result
