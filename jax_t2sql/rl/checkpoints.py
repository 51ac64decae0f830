"""How a version becomes lasting, and how a restart comes back to it."""

import shutil

from jax_t2sql.bus import collect_adapters, collect_groups
from jax_t2sql.groups import group_metrics
from jax_t2sql.rl.loop import Loop, Step
from jax_t2sql.rl.trainer import Trainer
from jax_t2sql.rl.update import batch_metrics, update
from jax_t2sql.rundir import restore_checkpoint


def restore(loop: Loop) -> None:
    """Brings the state to the log's version: newest checkpoint, then what was logged after it."""
    loop.announce("restore")
    position = restore_state(loop)
    applied = True
    for step in loop.bus.replay(position):
        loop.announce("update", entry=step.batch.index, pack_seed=step.batch.pack_seed)
        metrics, agreement = update(loop, lambda step=step: step.groups, step.batch.pack_seed)
        applied = metrics["skipped"] == 0.0
        loop.version += applied
        # For the row of a step that was killed before it was recorded: what the log still tells.
        metrics |= group_metrics(step.groups) | batch_metrics(loop, step.batch, step.groups)
        done = Step(
            version=loop.version,
            applied=applied,
            metrics=metrics,
            batch=step.batch,
            trained=step.groups,
            fresh=step.groups,
            replayed=True,
            agreement=agreement,
        )
        for hook in loop.hooks.after_step:
            hook(loop, done)
    loop.feed.restore(loop.bus)
    # Only the last batch can be open, and only that one's fate is still to be told.
    publish(loop, applied=applied or loop.bus.state.open_batch is None)
    loop.version = loop.bus.version
    loop.sampling.serve(loop)


def restore_state(trainer: Trainer) -> tuple[int, str] | None:
    """The newest checkpoint's state, and its place in the log; None if there is none."""
    if trainer.checkpointer.latest() is None:
        return None
    like = trainer.learner.abstract_state(trainer.base)
    trainer.state, meta = restore_checkpoint(trainer.checkpointer, like)
    trainer.version = meta["version"]
    return meta["log_index"], meta["log_sha256"]


def conclude(loop: Loop, *, applied: bool) -> None:
    """Ends a step: a checkpoint where one is due, and the publish entry."""
    config = loop.run.config
    due = loop.version % config.checkpoint.every == 0 or loop.version == config.rl.steps
    if applied and due:
        save_and_publish(loop)
    else:
        publish(loop, applied=applied)
    loop.sampling.serve(loop)


def preserve(loop: Loop) -> None:
    """Before the process ends: a checkpoint of what is trained, if the last one is older."""
    if loop.version > (loop.checkpointer.latest() or 0):
        save_and_publish(loop)


def publish(loop: Loop, *, applied: bool) -> None:
    """The publish entry, with files if the samplers need them."""
    if loop.sampling.files_due(loop):
        publish_files(loop, applied=applied)
    else:
        with loop.timed("bus"):
            loop.bus.publish(applied=applied, keep=loop.keep())


def save_and_publish(loop: Loop) -> None:
    """Writes a checkpoint that knows its place in the log, then publishes the weights as files.

    What no kept checkpoint can need again is then collected.
    """
    bus, keep = loop.bus, loop.run.config.checkpoint.keep
    index, sha256 = bus.position
    meta = {"version": loop.version, "log_index": index, "log_sha256": sha256}
    loop.announce("save", meta=meta)
    with loop.timed("checkpoint"):
        loop.checkpointer.save(loop.version, loop.state, meta)
    loop.positions.append(index)
    del loop.positions[:-keep]
    # Until as many checkpoints exist as are kept, one of an earlier process may be among them.
    full = len(loop.positions) == keep
    publish_files(loop, floor=loop.positions[0] if full else None)
    collect_groups(bus.store, bus.state)
    # A sampler may be about to serve any version that is not too old.
    newest = max(keep, bus.state.start.bounds.max_staleness + 1)
    collect_adapters(bus.store, bus.state, keep_newest=newest)


def publish_files(loop: Loop, *, applied: bool = True, floor: int | None = None) -> None:
    """Publishes the weights as they are now, with their files."""
    # A fixed name: what a killed process left there is swept out, not kept for ever.
    directory = loop.run.workdir / "export.tmp"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    with loop.timed("publish"), loop.timed("export"):
        loop.export(loop.whole_state(), directory)
    with loop.timed("publish"), loop.timed("bus"):
        loop.bus.publish(directory, applied=applied, floor=floor, keep=loop.keep())
    shutil.rmtree(directory)
