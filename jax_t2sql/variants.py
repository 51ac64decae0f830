"""How a task puts its question: as it is, with a hint, or with other evidence."""

from collections.abc import Sequence
from dataclasses import replace

from jax_t2sql.bus import Task
from jax_t2sql.config import RobustnessConfig
from jax_t2sql.errors import UserError
from jax_t2sql.hints import HintBook
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.robustness import evidence_of_task, wrong_evidence
from jax_t2sql.text2sql import Problem


class Variants:
    """Puts questions as their tasks ask for; the same for every sampler of a run.

    Args:
      problems: the training questions, whose evidence may be given to others.
      prompts: of training questions: what does not fit the context is put as it is.
      hints: None where the run has none.
      robustness: shares of prompts with other evidence.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        prompts: PromptBuilder,
        hints: HintBook | None,
        robustness: RobustnessConfig,
    ):
        self._prompts, self._hints, self._robustness = prompts, hints, robustness
        self._evidence: dict[str, dict[str, str]] = {}  # by database, then question id
        for problem in problems:
            if problem.evidence.strip():
                of_database = self._evidence.setdefault(problem.db_id, {})
                of_database[problem.question_id] = problem.evidence

    def put(self, problem: Problem, task: Task) -> Problem:
        """The question as this task puts it.

        Raises:
          UserError: the task wants a hint that there is not.
        """
        if task.kind == "hinted":
            hint = self._hints.find(problem) if self._hints else ""
            if not hint:
                raise UserError(
                    f"there is no hint for question {problem.question_id!r}; give the hints of the"
                    " run (--hints)"
                )
            return replace(problem, hint=hint)
        if task.kind != "train" or not problem.evidence.strip():
            return problem
        given = evidence_of_task(task.seed, self._robustness)
        if given == "withheld":
            return replace(problem, evidence="", given=given)
        if given == "wrong":
            return self._misled(problem, task.seed)
        return problem

    def _misled(self, problem: Problem, seed: int) -> Problem:
        own = self._evidence.get(problem.db_id, {})
        others = [text for name, text in own.items() if name != problem.question_id]
        wrong = wrong_evidence(problem.evidence, others, seed)
        if wrong is None:
            return problem
        changed = replace(problem, evidence=wrong, given="wrong")
        return changed if len(self._prompts.ids(changed)) <= self._prompts.room else problem
