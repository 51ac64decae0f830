"""When held-out questions are asked: before, during and after, by this process or by the fleet."""

import json
from collections.abc import Sequence
from typing import Protocol

from jax_t2sql.assembly import Run
from jax_t2sql.errors import UserError
from jax_t2sql.evaluation import Answer, unanswered
from jax_t2sql.heldout import (
    evaluate_heldout,
    evaluation_metrics,
    final_evaluation,
    final_path,
    keep_final,
    kept_metrics,
    pick,
)
from jax_t2sql.progress import Progress
from jax_t2sql.rl.loop import Loop
from jax_t2sql.rl.preemption import Preempted
from jax_t2sql.rl.recording import Recorder
from jax_t2sql.rl.validation import FleetValidation
from jax_t2sql.sampling.engine import Engine
from jax_t2sql.text2sql import Problem


class Evaluations(Protocol):
    """Held-out accuracy of a run."""

    def start(self, loop: Loop) -> None:
        """The untrained weights are in place; nothing is restored or published yet."""

    def resume(self, loop: Loop) -> None:
        """The weights that the log names are in place and published."""

    def after_publish(self, loop: Loop) -> None:
        """A hook for `Hooks.after_publish`."""

    def finish(self, loop: Loop) -> dict[str, dict] | None:
        """What is kept of the evaluations "before" and "after"; None: stopped before that."""


class _Watch:
    """What both kinds share: which questions, when, and what follows from an answer."""

    def __init__(self, run: Run, recorder: Recorder, progress: Progress):
        self.run, self.recorder, self.progress = run, recorder, progress
        config, heldout = run.config.eval, run.questions.heldout
        self.final = pick(heldout, config.final_questions)
        self.watched = pick(heldout, config.questions)

    def due(self, version: int) -> bool:
        every = self.run.config.eval.every
        inside = 0 < version < self.run.config.rl.steps
        due = bool(every) and inside and version % every == 0
        return due and not self.recorder.has("eval", version)

    def found(self, loop: Loop, version: int, answers: Sequence[Answer]) -> None:
        metrics = evaluation_metrics(answers, self.run.questions)
        self.recorder.evaluation(version, metrics)
        self.progress.step(loop.version, metrics)
        self.judge(loop, version, metrics)

    def judge(self, loop: Loop, version: int, metrics: dict) -> None:
        for hook in loop.hooks.after_evaluation:
            hook(loop, version, metrics)

    def judge_last(self, loop: Loop) -> None:
        """The last version is judged by the same questions as those before it."""
        if metrics := kept_metrics(self.run, "after", self.watched):
            self.judge(loop, loop.version, metrics)


class InlineEvaluations(_Watch):
    """Everything stands still while the engine answers."""

    def __init__(self, run: Run, recorder: Recorder, progress: Progress, engine: Engine):
        super().__init__(run, recorder, progress)
        self._engine = engine

    def start(self, loop: Loop) -> None:
        loop.sampling.serve(loop)
        before = final_evaluation(self.run, self._engine, "before", self.final, self.progress)
        self.recorder.evaluation(0, before["metrics"])

    def resume(self, loop: Loop) -> None:
        self.after_publish(loop)  # one that a kill cut short is made up for

    def after_publish(self, loop: Loop) -> None:
        if not self.due(loop.version):
            return
        try:
            with loop.preemption.abortable():
                answers = evaluate_heldout(self.run, self._engine, self.watched)
        except Preempted:  # it is made up for after the restart
            return
        self.found(loop, loop.version, answers)

    def finish(self, loop: Loop) -> dict[str, dict] | None:
        try:
            with loop.preemption.abortable():
                after = final_evaluation(self.run, self._engine, "after", self.final, self.progress)
        except Preempted:
            return None
        self.recorder.evaluation(loop.version, after["metrics"])
        self.judge_last(loop)
        before = json.loads(final_path(self.run, "before").read_text())
        return {"before": before, "after": after}


class FleetEvaluations(_Watch):
    """The fleet answers while training goes on; only the last evaluation is waited for."""

    def __init__(
        self, run: Run, recorder: Recorder, progress: Progress, validation: FleetValidation
    ):
        super().__init__(run, recorder, progress)
        self._validation = validation

    def start(self, loop: Loop) -> None:
        """Nothing is published yet."""

    def resume(self, loop: Loop) -> None:
        if not final_path(self.run, "before").is_file():
            self._final(loop, "before", 0)
        every = self.run.config.eval.every
        if every and self.due(last := loop.version - loop.version % every):
            self._begin(loop, last)

    def after_publish(self, loop: Loop) -> None:
        if self.due(loop.version):
            self._begin(loop, loop.version)

    def finish(self, loop: Loop) -> dict[str, dict] | None:
        if not final_path(self.run, "after").is_file():
            self._final(loop, "after", loop.version)
        while self._validation.left and not loop.interrupted:
            loop.announce("wait")
            loop.sampling.work(loop)
        if loop.interrupted:
            return None
        return {
            name: json.loads(final_path(self.run, name).read_text()) for name in ("before", "after")
        }

    def _begin(self, loop: Loop, version: int) -> None:
        every = self.run.config.eval.every

        def done(answers: list[Answer]) -> None:
            missing = len(self.watched) - len(answers)
            if missing:
                loop.say(
                    f"the evaluation of version {version} lacks {missing} of {len(self.watched)}"
                    " answers and judges nothing: the fleet is too small for --eval.questions"
                    " every --eval.every updates"
                )
            elif not self.recorder.has("eval", version):
                self.found(loop, version, answers)

        self._validation.begin(loop, version, self.watched, done, deadline=version + every)

    def _final(self, loop: Loop, name: str, version: int) -> None:
        def done(answers: list[Answer]) -> None:
            answered = {answer.problem.question_id: answer for answer in answers}
            kept = keep_final(self.run, name, self._whole(answered), self.progress)
            self.recorder.evaluation(version, kept["metrics"])
            if name == "after":
                self.judge_last(loop)

        if not self._validation.begin(loop, version, self.final, done):
            raise UserError(
                f"version {version} cannot be evaluated {name} RL, since its files are not on the"
                " bus; resume with --fleet.workers 0, or start anew in another --workdir"
            )

    def _whole(self, answered: dict[str, Answer]) -> list[Answer]:
        """An answer to every final question; one that no sampler could give is wrong."""

        def answer(problem: Problem) -> Answer:
            reason = "no sampler gave an answer"
            return answered.get(problem.question_id) or unanswered(problem, reason)

        return [answer(problem) for problem in self.final]
