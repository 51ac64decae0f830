"""How a version becomes lasting, and how a restart comes back to it."""

import shutil

from jax_t2sql.bus import collect_adapters, collect_groups
from jax_t2sql.rl.loop import Loop, Step
from jax_t2sql.rl.update import update
from jax_t2sql.rundir import restore_checkpoint


def restore(loop: Loop) -> None:
    """Brings the state to the log's version: newest checkpoint, then what was logged after it."""
    position = None
    if loop.checkpointer.latest() is not None:
        like = loop.learner.abstract_state(loop.base)
        loop.state, meta = restore_checkpoint(loop.checkpointer, like)
        position = (meta["log_index"], meta["log_sha256"])
        loop.version = meta["version"]
    applied = True
    for step in loop.bus.replay(position):
        metrics = update(loop, step.groups, step.batch.pack_seed)
        applied = metrics["skipped"] == 0.0
        loop.version += applied
        done = Step(
            version=loop.version,
            applied=applied,
            metrics=metrics,
            batch=step.batch,
            trained=step.groups,
            fresh=step.groups,
            replayed=True,
        )
        for hook in loop.hooks.after_step:
            hook(loop, done)
    loop.feed.restore(loop.bus)
    # Only the last batch can be open, and only that one's fate is still to be told.
    publish(loop, applied=applied or loop.bus.state.open_batch is None)
    loop.version = loop.bus.version
    loop.sampling.serve(loop)


def conclude(loop: Loop, *, applied: bool) -> None:
    """Ends a step: a checkpoint where one is due, and the publish entry."""
    config = loop.run.config
    due = loop.version % config.checkpoint.every == 0 or loop.version == config.rl.steps
    if applied and due:
        save_and_publish(loop)
    else:
        publish(loop, applied=applied)
    loop.sampling.serve(loop)


def publish(loop: Loop, *, applied: bool) -> None:
    """The publish entry, with files if the samplers need them."""
    if applied and loop.sampling.files_due(loop):
        _publish_files(loop)
    else:
        loop.bus.publish(applied=applied)


def save_and_publish(loop: Loop) -> None:
    """Writes a checkpoint that knows its place in the log, then publishes the weights as files.

    What no kept checkpoint can need again is then collected.
    """
    bus, keep = loop.bus, loop.run.config.checkpoint.keep
    index, sha256 = bus.position
    meta = {"version": loop.version, "log_index": index, "log_sha256": sha256}
    loop.checkpointer.save(loop.version, loop.state, meta)
    loop.positions.append(index)
    del loop.positions[:-keep]
    # Until as many checkpoints exist as are kept, one of an earlier process may be among them.
    full = len(loop.positions) == keep
    _publish_files(loop, floor=loop.positions[0] if full else None)
    collect_groups(bus.store, bus.state)
    collect_adapters(bus.store, bus.state, keep_newest=keep)


def _publish_files(loop: Loop, *, floor: int | None = None) -> None:
    # A fixed name: what a killed process left there is swept out, not kept for ever.
    directory = loop.run.workdir / "export.tmp"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    loop.export(loop.state, directory)
    loop.bus.publish(directory, floor=floor)
    shutil.rmtree(directory)
