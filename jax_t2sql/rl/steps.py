"""The loop itself: issue, take, update, conclude."""

from jax_t2sql.errors import UserError
from jax_t2sql.groups import group_metrics
from jax_t2sql.rl.checkpoints import conclude, preserve
from jax_t2sql.rl.loop import Loop, Step
from jax_t2sql.rl.preemption import Preempted
from jax_t2sql.rl.take import BARREN_STEPS, Taken, example, take, why_barren
from jax_t2sql.rl.update import batch_metrics, update

# Updates in a row with a gradient that is not finite, after which the run stops.
_SKIPPED_STEPS = 10


def train(loop: Loop) -> None:
    """Runs until the configured number of updates is applied, `loop.stop` was called, or a host
    was told to end: then after the present step, with a checkpoint of it.

    Raises:
      UserError: many steps' worth of groups had nothing to learn from, or many updates in a row a
        gradient that is not finite.
    """
    groups, steps = loop.run.config.rl.groups, loop.run.config.rl.steps
    fresh, barren, skipped = [], 0, 0
    while loop.version < steps and not loop.stopped:
        loop.announce("wait")
        if loop.interrupted:
            preserve(loop)
            return
        loop.feed.issue(loop)
        try:
            taken = take(loop)
        except Preempted:
            continue
        fresh += taken.fresh
        if taken.signals:
            barren = 0
        else:
            barren += len(taken.fresh)
        if taken.batch:
            done = _step(loop, taken, fresh)
            fresh, skipped = [], 0 if done.applied else skipped + 1
            if skipped >= _SKIPPED_STEPS:
                raise UserError(
                    f"{skipped} updates in a row were skipped, since their gradients were not"
                    " finite; lower --optimizer.lr, or use --learner.dtype float32, in another"
                    " --workdir"
                )
        elif barren >= BARREN_STEPS * groups:
            why = why_barren(fresh[-groups:])
            if loop.version == 0:
                raise UserError(why)
            # What was learned so far is kept: the run goes on to its last evaluation.
            loop.say(f"stopped at step {loop.version}: {why}")
            loop.stop("nothing left to learn from")
    if loop.stopped:
        preserve(loop)


def _step(loop: Loop, taken: Taken, fresh: list) -> Step:
    """One update on what was taken, from its entry in the log to its publication."""
    trained = [ready.group for ready in taken.batch]
    with loop.timed("bus"):
        batch = loop.bus.append_batch(taken.batch, pack_seed=loop.version)
    loop.announce("update", entry=batch.index, pack_seed=batch.pack_seed)
    metrics, agreement = update(loop, lambda: trained, batch.pack_seed)
    applied = metrics["skipped"] == 0.0
    loop.version += applied
    metrics |= group_metrics(fresh or trained)
    metrics |= batch_metrics(loop, batch, trained)
    metrics |= {
        **loop.sampling.metrics(loop, batch),
        **{f"seconds_{name}": value for name, value in loop.seconds.items()},
    }
    loop.seconds = {}
    if loop.version == 1 and applied:
        _warn_of_format(loop, metrics, taken.sampled)
    done = Step(
        version=loop.version,
        applied=applied,
        metrics=metrics,
        batch=batch,
        trained=trained,
        fresh=fresh or trained,
        agreement=agreement,
    )
    for hook in loop.hooks.after_step:
        hook(loop, done)
    if not applied:
        loop.say(f"an update after step {loop.version} was skipped: its gradient is not finite")
    conclude(loop, applied=applied)
    if applied:
        for hook in loop.hooks.after_publish:
            hook(loop)
    return done


def _warn_of_format(loop: Loop, metrics: dict[str, float], groups: list) -> None:
    """Says so at once if most first answers are not in the form that the prompt asks for."""
    failed = metrics["cut_off_share"] + metrics["contract_broken_share"]
    if failed > 0.5:
        loop.say(
            f"warning: {failed:.0%} of the first answers are cut off or not in the form asked for;"
            f" training goes on.{example(groups)}"
        )
