"""Supervised warm-up: a few steps on gold SQL, so that sampling finds right answers at all."""

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jax_t2sql.assembly import Run, answer_text
from jax_t2sql.batching import BatchLimits, make_batch
from jax_t2sql.errors import UserError
from jax_t2sql.learner import Checkpointer, LearnerState, Trajectory
from jax_t2sql.policies import make_sft_learner, warmup_schedule
from jax_t2sql.prompt_builder import PromptBuilder
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.rundir import restore_checkpoint
from jax_t2sql.text2sql import Problem


def with_hints(run: Run) -> list[Problem]:
    """The warm-up's questions; a share of those that have a hint show it."""
    share, hints = run.config.warmup.hint_share, run.hints
    found = []
    for problem in run.questions.warmup:
        hint = hints.find(problem) if hints and share else ""
        drawn = rollout_seed(run.config.seed, "hint", problem.question_id) / 2**32
        found.append(dataclasses.replace(problem, hint=hint) if drawn < share else problem)
    return found


def demonstrations(problems: Sequence[Problem], prompts: PromptBuilder, tokenizer) -> list:
    """One supervised trajectory a question: its prompt, then the gold answer and the end token."""
    end = tokenizer.stop_ids[0]
    found = []
    for problem in problems:
        prompt = list(prompts.ids(problem))
        answer = tokenizer.encode(answer_text(problem, prompts.episode.style)) + [end]
        mask = [False] * len(prompt) + [True] * len(answer)
        found.append(Trajectory.supervised(np.array(prompt + answer), np.array(mask)))
    return found


def warm_up(
    run: Run,
    *,
    on_step: Callable[[int, dict], None],
) -> LearnerState:
    """Trains on gold answers and returns the state; resumes from its checkpoint if there is one.

    The pairs of a step follow from the seed and the step, so an interrupted warm-up ends with the
    same weights as one that ran through.

    Args:
      on_step: called with the number of steps done and the metrics of the last.
    """
    config, base = run.config, run.model.params
    learner = make_sft_learner(config, run.model)
    state = learner.init(base, jax.random.key(config.seed))
    steps = config.warmup.steps
    if steps == 0:
        return state
    examples = demonstrations(with_hints(run), run.prompts, run.model.tokenizer)
    limits = dataclasses.replace(
        BatchLimits.of(examples, shards=run.model.layout.batch_shards),
        prompts=config.warmup.batch,
        group_size=1,
    )
    with Checkpointer(run.workdir / "checkpoints" / "warmup", keep=1) as checkpointer:
        first = 0
        if checkpointer.latest() is not None:
            state, meta = restore_checkpoint(checkpointer, learner.abstract_state(base))
            first = meta["step"]
        for step in range(first, steps):
            picked = [
                examples[i] for i in _pairs(len(examples), config.warmup.batch, config.seed, step)
            ]
            batch = make_batch(picked, config.learner, limits)
            state, metrics = learner.update(base, state, batch)
            if (step + 1) % config.checkpoint.every == 0 or step + 1 == steps:
                checkpointer.save(step + 1, state, {"step": step + 1})
            metrics = {name: float(value) for name, value in metrics.items()}
            if metrics["skipped"]:
                raise UserError(
                    f"the gradient of warm-up step {step + 1} is not finite; lower --warmup.lr, or"
                    " use --learner.dtype float32, in another --workdir"
                )
            on_step(
                step + 1,
                {
                    "loss": metrics["loss"],
                    "grad_norm": metrics["grad_norm"],
                    "lr": warmup_schedule(config)(step),
                },
            )
    return state


def _pairs(count: int, batch: int, seed: int, step: int) -> list[int]:
    """Indices of a step's pairs: the stream goes through all pairs, reshuffled each pass."""
    chosen = []
    for position in range(step * batch, (step + 1) * batch):
        epoch, offset = divmod(position, count)
        chosen.append(_shuffled(count, seed, epoch)[offset])
    return chosen


@functools.lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    random.Random(f"warmup/{seed}/{epoch}").shuffle(order)
    return order
