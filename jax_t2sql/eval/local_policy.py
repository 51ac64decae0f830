"""A policy in this process: a model of ours, decoded many answers side by side."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_t2sql.assembly import enable_compilation_cache, episode_config
from jax_t2sql.eval.episodes import answer_row, unanswered
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.prompting import make_prompts, problems_of, prompt_config, prompts_digest
from jax_t2sql.eval.questions import Asked
from jax_t2sql.eval.specs import PolicySpec
from jax_t2sql.eval.tasks import Task
from jax_t2sql.grading import GradingPool
from jax_t2sql.models import load_adapter, load_model
from jax_t2sql.models.files import digest_files
from jax_t2sql.rollouts import run_episodes
from jax_t2sql.sampling.chat import ChatCodec
from jax_t2sql.sampling.engine import Engine
from jax_t2sql.scores.records import AnswerRow


class LocalPolicy:
    """Loads the model when made.

    Raises:
      UserError: model or adapter cannot be loaded.
    """

    def __init__(
        self,
        spec: PolicySpec,
        args: EvalArgs,
        asked: Asked,
        tasks: Sequence[Task],
        pool: GradingPool,
    ):
        enable_compilation_cache()
        model = load_model(spec.target, dtype=args.dtype)
        adapter = load_adapter(Path(spec.adapter), model.config) if spec.adapter else None
        codec = ChatCodec(model.tokenizer)
        episode = episode_config(prompt_config(args), model, default_context=8192, options="--")
        self._prompts = make_prompts(asked, codec, episode, args)
        self._engine = Engine(
            model.config,
            model.params,
            adapter,
            stop_ids=codec.stop_ids,
            decode=codec.decode,
            max_rows=args.rows,
        )
        self._args, self._pool = args, pool
        self.facts = {
            "model": {"sha256": model.sha256, "dtype": args.dtype},
            "adapter_sha256": adapter_digest(spec.adapter),
            "prompt_sha256": prompts_digest(self._prompts, tasks),
            "tool_format": episode.options.tool_format,
            "max_context": episode.max_context,
            "schemas_cut": len(self._prompts.cut_schemas),
        }

    def answer(self, tasks: Sequence[Task]) -> Iterator[list[AnswerRow]]:
        """One row a task, in bursts of as many as are decoded together."""
        for greedy, kind in itertools.groupby(tasks, key=lambda task: task.greedy):
            kind = list(kind)
            for first in range(0, len(kind), self._args.rows):
                yield self._burst(kind[first : first + self._args.rows], greedy=greedy)

    def _burst(self, tasks: Sequence[Task], *, greedy: bool) -> list[AnswerRow]:
        problems = problems_of(tasks)
        _, too_long = self._prompts.split_by_length(list(dict.fromkeys(problems)))
        reasons = dict(too_long)
        due = [i for i, problem in enumerate(problems) if problem not in reasons]
        started = time.monotonic()
        states = run_episodes(
            [problems[i] for i in due],
            [tasks[i].seed for i in due],
            policy=self._engine,
            prompts=self._prompts,
            pool=self._pool,
            temperature=0.0 if greedy else self._args.temperature,
        )
        # Decoded together, each took its share.
        seconds = (time.monotonic() - started) / max(1, len(due))
        found = {
            i: answer_row(tasks[i], state, seconds=seconds)
            for i, state in zip(due, states, strict=True)
        }
        return [
            found.get(i) or unanswered(task, "prompt_too_long", reasons[problems[i]])
            for i, task in enumerate(tasks)
        ]


def adapter_digest(folder: str | None) -> str | None:
    """SHA-256 of an adapter's files; None without one."""
    if folder is None:
        return None
    return digest_files(path for path in Path(folder).iterdir() if path.name.startswith("adapter_"))
