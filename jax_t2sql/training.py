"""A whole training run: assembly, warm-up, evaluation before, RL, evaluation after, report."""

import dataclasses
import json
import logging
import os
import socket
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
from jax_t2sql.bus import (
    Bounds,
    SamplerBus,
    open_store,
    start_or_takeover,
)
from jax_t2sql.config import TrainConfig
from jax_t2sql.config_loading import to_dict
from jax_t2sql.contract import grader_name, make_contract, run_name
from jax_t2sql.heldout import evaluate_heldout, evaluation_metrics, final_evaluation, pick
from jax_t2sql.hints import open_hints
from jax_t2sql.history import History
from jax_t2sql.learner import Checkpointer, LearnerState
from jax_t2sql.models import export_adapter, save_hf
from jax_t2sql.policies import check_targets, make_engine, make_rl_learner, serve, trainable_spec
from jax_t2sql.preflight import check_training
from jax_t2sql.progress import Progress
from jax_t2sql.question_set import load_questions, write_reasons
from jax_t2sql.report import write_report
from jax_t2sql.rl import Draws, Feed, Hooks, InlineSampling, Loop, Watch, restore, train
from jax_t2sql.rl.recording import Recorder
from jax_t2sql.rundir import Clock, check_workdir, open_workdir, print_result, write_json
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.tracking import Tracker
from jax_t2sql.warmup import warm_up


def run_training(config: TrainConfig, workdir: Path) -> dict:
    """Trains as configured, or resumes; returns what result.json holds.

    Raises:
      UserError: bad input, or a workdir of another configuration.
    """
    check_workdir(config, workdir)
    result_path = workdir / "result.json"
    if result_path.is_file():
        result = json.loads(result_path.read_text())
        print("this run is complete:")
        if not (workdir / "report.html").is_file():  # the run was killed before its last line
            write_report(workdir)
        print_result(result, workdir)
        return result
    check_training(config, workdir)
    open_workdir(config, workdir)
    enable_compilation_cache()
    _quiet_failed_saves()
    with make_pool(config) as pool, Progress(config.rl.steps) as progress:
        run = assemble(config, workdir, pool, progress)
        return _train(run, progress)


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


def assemble(config: TrainConfig, workdir: Path, pool, progress: Progress) -> Run:
    """Loads and checks everything that a run needs."""
    model, data = load_base(config, workdir)
    check_targets(config, model)
    codec, episode = ChatCodec(model.tokenizer), episode_config(config.prompt, model)
    questions = load_questions(
        data, pool=pool, need_warmup=config.warmup.steps > 0, say=progress.message
    )
    questions, prompts, heldout_prompts = build_prompts(questions, codec, episode, config.prompt)
    cut = prompts.cut_schemas + heldout_prompts.cut_schemas
    if cut:
        write_reasons(workdir / "cut_schemas.jsonl", cut)
        progress.message(
            f"{len(cut)} prompts do not show their schema whole (see cut_schemas.jsonl)"
        )
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
    run = Run(config, workdir, model, questions, prompts, heldout_prompts, pool)
    if config.hints.file is not None:
        asked = questions.train + (questions.warmup if config.warmup.hint_share else [])
        hints, refused = open_hints(config.hints, asked, prompts, pool, say=progress.message)
        write_reasons(workdir / "refused_hints.jsonl", refused)
        run = dataclasses.replace(run, hints=hints)
    return run


def _train(run: Run, progress: Progress) -> dict:
    config, workdir = run.config, run.workdir
    clock = Clock(workdir / "clock.json")
    learner, spec = make_rl_learner(config, run.model), trainable_spec(config)
    engine = make_engine(config, run.model, run.prompts.codec)
    store = open_store(workdir / "bus")
    contract = make_contract(run)
    bounds = Bounds(
        vocab_size=run.model.config.vocab_size,
        groups_per_batch=config.rl.groups,
        max_staleness=config.rl.max_staleness,
    )
    learner_bus = start_or_takeover(
        store,
        run=run_name(contract),
        contract=contract,
        bounds=bounds,
        learner=f"{socket.gethostname()}-{os.getpid()}",
        config=to_dict(config),
    )
    resumed = learner_bus.version
    with (
        Tracker(workdir, first_step=resumed + 1) as tracker,
        Checkpointer(workdir / "checkpoints" / "rl", keep=config.checkpoint.keep) as checkpointer,
    ):
        recorder = Recorder(run, tracker, clock, progress)
        progress.phase("warmup", config.warmup.steps)
        warm = warm_up(run, on_step=recorder.warmup)
        state = dataclasses.replace(
            learner.init(run.model.params, jax.random.key(config.seed)), trainable=warm.trainable
        )
        serve(engine, spec, run.model.params, state, 0)
        final_set = pick(run.questions.heldout, config.eval.final_questions)
        before = final_evaluation(run, engine, "before", final_set, progress)
        recorder.evaluation(0, before["metrics"])
        watched = pick(run.questions.heldout, config.eval.questions)

        def evaluate_version(loop: Loop) -> None:
            every, version = config.eval.every, loop.version
            due = every and version % every == 0 and 0 < version < config.rl.steps
            if due and not recorder.has("eval", version):
                metrics = evaluation_metrics(evaluate_heldout(run, engine, watched), run.questions)
                recorder.evaluation(version, metrics)
                progress.step(version, metrics)
                for hook in loop.hooks.after_evaluation:
                    hook(loop, version, metrics)

        history = History()
        watch = Watch(run, history)
        loop = Loop(
            run=run,
            learner=learner,
            spec=spec,
            state=state,
            bus=learner_bus,
            feed=Feed(Draws(run, learner_bus, history)),
            sampling=InlineSampling(
                engine,
                SamplerBus(
                    store, sampler="inline", contract=contract, learner_epoch=learner_bus.epoch
                ),
            ),
            checkpointer=checkpointer,
            export=lambda state, directory: _export(run, state, directory),
            say=progress.message,
            hooks=Hooks(
                after_step=[watch.step, recorder.step],
                after_publish=[evaluate_version],
                after_evaluation=[watch.evaluation],
            ),
        )
        progress.phase("rl", config.rl.steps)
        if resumed:
            progress.message(f"resuming at step {resumed}: what the checkpoint lacks is replayed")
        restore(loop)
        if loop.version:
            evaluate_version(loop)  # one that a kill cut short is made up for
        watch.resume(loop)
        train(loop)
        after = final_evaluation(run, engine, "after", final_set, progress)
        recorder.evaluation(loop.version, after["metrics"])
        trained = workdir / ("model" if config.adapter.kind == "full" else "adapter")
        _export(run, loop.state, trained)
        result = {
            "before": before["score"],
            "after": after["score"],
            "n": len(final_set),
            "minutes": round(clock.wall() / 60, 2),
            "seed": config.seed,
            "before_interval": before["interval"],
            "after_interval": after["interval"],
            "parts": {"before": before["parts"], "after": after["parts"]},
            "cpu_seconds": round(clock.cpu(), 1),
            "grader": grader_name(config),
            "contract": contract.sha256,
            "trained": str(trained),
        }
        write_json(workdir / "result.json", result)
        published = learner_bus.state.last_publish.adapter
        learner_bus.end(
            reason=f"{loop.version} updates applied{f': {loop.stopped}' if loop.stopped else ''}",
            final=published.name if published else None,
        )
    report = write_report(workdir)
    progress.message(f"report written to {report}")
    print_result(result, workdir)
    return result


def _export(run: Run, state: LearnerState, directory: Path) -> None:
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
