"""Do samplers and learner mean the same weights? Tokens of the learner's own version must tell."""

from jax_t2sql.bus import read_heartbeats
from jax_t2sql.errors import UserError
from jax_t2sql.rl.agreement import Agreement, describe, tolerance_of
from jax_t2sql.rl.loop import Loop, Step


class RatioWatch:
    """Hooks that have a deviant sampler quarantined, and stop a run in which there are several.

    A lost adapter, another base or log-probs of another temperature show here, while loss and
    reward look healthy. What is found, the learner learns from the update itself: that one is made
    with the deviant sampler's groups, and none after it, be it of a run that was stopped for them
    and goes on. The sampler inside the learner is never quarantined: it has one name for ever.

    What is decided stands in the publish entry of the batch. A replay decides nothing, but for a
    batch that has no such entry yet.
    """

    def __init__(self):
        self._diagnosis = ""

    def step(self, loop: Loop, step: Step) -> None:
        """For `Hooks.after_step`, before the step is recorded."""
        if not step.applied or not step.agreement:
            return
        sampler, judged = loop.run.config.sampler, step.agreement
        tokens = sum(found.tokens for found in judged.values())
        total = sum(found.ratio * found.tokens for found in judged.values())
        step.metrics["ratio_on_policy"] = total / tokens
        judged = {n: found for n, found in judged.items() if found.tokens >= sampler.ratio_tokens}
        if judged:
            step.metrics["ratio_deviation"] = max(found.deviation for found in judged.values())
        opened = loop.bus.state.open_batch
        if step.replayed and (opened is None or opened.index != step.batch.index):
            return
        tolerance = tolerance_of(loop.run.config)
        deviant = {n: found for n, found in judged.items() if not found.within(tolerance)}
        if deviant:
            self._judge(loop, step, deviant, tolerance)

    def published(self, loop: Loop) -> None:
        """For `Hooks.after_publish`: first of all.

        Raises:
          UserError: too many samplers deviate, or no other is left.
        """
        if self._diagnosis:
            raise UserError(self._diagnosis)

    def _judge(
        self, loop: Loop, step: Step, deviant: dict[str, Agreement], tolerance: float
    ) -> None:
        found = {name: describe(agreement, tolerance) for name, agreement in deviant.items()}
        quarantined, limit = loop.bus.state.quarantined, loop.run.config.sampler.quarantine
        beats = read_heartbeats(loop.bus.store)
        others = {group.sampler for group in step.trained}
        others |= {name for name, beat in beats.items() if not beat.left}
        others -= deviant.keys() | quarantined.keys()
        if loop.run.config.fleet.workers:
            for name, reason in found.items():
                loop.bus.quarantine(name, reason=f"at step {step.version} {reason}")
        if others and len(quarantined) + len(deviant) <= limit:
            for name, reason in found.items():
                seqs = [group.seq for group in step.trained if group.sampler == name]
                loop.say(
                    f"warning at step {step.version}: sampler {name} is quarantined: {reason}. The"
                    f" update of this step was made with its groups ({_some(seqs)}); no other of"
                    " its groups is trained on. Mend it, then start it under another --name"
                )
            return
        if others:
            who = (
                f"{len(deviant)} deviating and {len(quarantined)} quarantined before are more than"
                f" --sampler.quarantine {limit}"
            )
        else:
            who = "no sampler is at work that does not deviate"
        lines = "; ".join(f"{name}: {reason}" for name, reason in list(found.items())[:3])
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        self._diagnosis = (
            f"stopped after step {step.version}, since samplers and learner do not compute the"
            f" same: {who}. {lines}{more}. That step's update was made with their groups and is"
            " published, no other group of theirs is trained on; evaluations that they answered are"
            " as doubtful. Mend the samplers and start them under another --name, then run the same"
            " command to go on from that step, or begin anew in another --workdir"
        )


def _some(names: list) -> str:
    shown = ", ".join(str(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
