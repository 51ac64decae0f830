"""Watches over a run as it goes: alarms after steps, patience after evaluations."""

from jax_t2sql.alarms import Alarm, find_alarms
from jax_t2sql.assembly import Run
from jax_t2sql.history import History
from jax_t2sql.rl.loop import Loop, Step
from jax_t2sql.stopping import Validation, out_of_patience
from jax_t2sql.tracking import read_metrics


class Watch:
    """Hooks that warn, or stop the loop.

    What they decide follows from the log and the record of evaluations, so a run that is killed
    before it stops comes to the same end when it is resumed.
    """

    def __init__(self, run: Run, history: History):
        self._config, self._history = run.config, history
        self._workdir = run.workdir
        self._found: list[Validation] = []
        self._said: dict[str, int] = {}  # step of the last alarm of each kind

    def resume(self, loop: Loop) -> None:
        """To be called once, when the state is restored and before the loop runs."""
        rows = [row for row in read_metrics(self._workdir) if row["phase"] == "eval"]
        # Version 0 was scored on other questions.
        self._found = [_validation(row["step"], row) for row in rows if row["step"] > 0]
        self._check_patience(loop)
        self._history.follow(loop.bus.log.entries)
        for alarm in find_alarms(self._history.steps, self._config.alarms):
            self._raise(loop, alarm)

    def step(self, loop: Loop, step: Step) -> None:
        """For `Hooks.after_step`, before the step is recorded."""
        if step.replayed or not step.applied:
            return
        self._history.follow(loop.bus.log.entries)
        for alarm in find_alarms(self._history.steps, self._config.alarms):
            step.metrics[f"alarm_{alarm.kind}"] = 1.0
            self._raise(loop, alarm)

    def evaluation(self, loop: Loop, version: int, metrics: dict) -> None:
        """For `Hooks.after_evaluation`."""
        self._found = [v for v in self._found if v.step != version]
        self._found.append(_validation(version, metrics))
        self._check_patience(loop)

    def _check_patience(self, loop: Loop) -> None:
        config = self._config.eval
        found = sorted(self._found, key=lambda validation: validation.step)
        why = out_of_patience(found, patience=config.patience, min_gain=config.min_gain)
        ends_anyway = loop.version >= self._config.rl.steps or loop.stopped
        if why and not ends_anyway:
            loop.say(f"stopped at step {loop.version}: {why}")
            loop.stop(why)

    def _raise(self, loop: Loop, alarm: Alarm) -> None:
        if self._config.alarms.action == "stop":
            if not loop.stopped:
                loop.say(f"stopped at step {loop.version} by an alarm: {alarm.text}")
                loop.stop(alarm.text)
            return
        # An alarm goes on for as long as its cause does; it is repeated now and then.
        last = self._said.get(alarm.kind)
        if last is None or alarm.step - last >= self._config.alarms.window:
            self._said[alarm.kind] = alarm.step
            loop.say(f"alarm at step {alarm.step}: {alarm.text}")


def _validation(step: int, metrics: dict) -> Validation:
    return Validation(step, metrics["eval_accuracy"], metrics["eval_n"])
