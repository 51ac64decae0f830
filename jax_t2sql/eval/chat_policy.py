"""A policy behind a chat-completions endpoint."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from jax_t2sql.eval.chat_client import ChatClient, Failed, Reply, TooLong
from jax_t2sql.eval.concurrent import answered_in_bursts
from jax_t2sql.eval.episodes import answer_row, unanswered
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.prompting import digest, make_prompts, problems_of
from jax_t2sql.eval.questions import Asked, problem_of
from jax_t2sql.eval.specs import PolicySpec
from jax_t2sql.eval.tasks import Task
from jax_t2sql.eval.text_codec import TextCodec, completion_of
from jax_t2sql.grading import GradingPool
from jax_t2sql.rollouts import rollout_seed
from jax_t2sql.scores.records import AnswerRow
from jax_t2sql.text2sql import (
    EpisodeConfig,
    EpisodeState,
    Generate,
    Problem,
    PromptOptions,
    after_completion,
    after_sql,
    start,
)
from jax_t2sql.text2sql.codec import Message

_CONTEXT = 32_768  # tokens, about, where nobody says


class ChatPolicy:
    """Finds out the model's name.

    Raises:
      UserError: the endpoint serves several and none was named.
    """

    def __init__(
        self,
        spec: PolicySpec,
        args: EvalArgs,
        asked: Asked,
        tasks: Sequence[Task],
        pool: GradingPool,
    ):
        self._args, self._pool = args, pool
        self._runner = asyncio.Runner()
        self._client = ChatClient(
            spec.target,
            key_variable=args.api_key_variable,
            model=args.model,
            retries=args.retries,
            request_seconds=args.request_seconds,
            concurrency=args.concurrency,
        )
        name = self._runner.run(self._client.find_model())
        tool_format = "hermes" if args.tool_format == "auto" else args.tool_format
        episode = EpisodeConfig(
            style=args.style,
            max_turns=args.max_turns,
            max_tokens_per_turn=args.max_tokens,
            max_context=args.max_context or _CONTEXT,
            options=PromptOptions(
                evidence=args.evidence,
                tool_format=tool_format,
                worked_example=args.worked_example,
                reasoning_effort=args.reasoning_effort,
            ),
        )
        self._prompts = make_prompts(asked, TextCodec(), episode, args)
        problems = list(dict.fromkeys(problems_of(tasks)))
        self._too_long = dict(self._prompts.split_by_length(problems)[1])
        self.facts = {
            "model": {"endpoint": self._client.url, "name": name},
            "prompt_sha256": digest(self._prompts.messages(problem) for problem in problems),
            "tool_format": tool_format,
            "max_context": episode.max_context,
            "schemas_cut": len(self._prompts.cut_schemas),
        }

    def answer(self, tasks: Sequence[Task]) -> Iterator[list[AnswerRow]]:
        """One row a task, as they are finished."""
        return answered_in_bursts(
            tasks, self._play, runner=self._runner, concurrency=self._args.concurrency
        )

    def close(self) -> None:
        """Ends what is under way, and the connections."""
        with self._runner:
            self._runner.run(self._client.close())

    async def _play(self, task: Task) -> AnswerRow:
        problem = problem_of(task.row, evidence=task.evidence)
        if problem in self._too_long:
            return unanswered(task, "prompt_too_long", self._too_long[problem])
        started, replies = time.monotonic(), []
        try:
            state = await self._episode(task, problem, replies)
        except TooLong as error:
            return _billed(unanswered(task, "prompt_too_long", str(error)), replies)
        except Failed as error:
            return _billed(unanswered(task, "error", str(error)), replies)
        row = answer_row(task, state, seconds=time.monotonic() - started)
        return _billed(row, replies)

    async def _episode(self, task: Task, problem: Problem, replies: list[Reply]) -> EpisodeState:
        codec, prompt = self._prompts.codec, self._prompts.messages(problem)
        stops = codec.stop_strings(self._args.style, self._prompts.episode.options.tools)
        state = start(problem, self._prompts.ids(problem), self._prompts.episode)
        while state.pending is not None:
            if not isinstance(state.pending, Generate):
                path = self._prompts.path(problem)
                outcome = await self._pool.execute_async(path, state.pending.sql)
                state = after_sql(state, outcome, codec)
                continue
            reply = await self._client.reply(
                [*prompt, *_conversation(state)],
                temperature=0.0 if task.greedy else self._args.temperature,
                max_tokens=state.pending.max_tokens,
                seed=rollout_seed(task.seed, len(state.turns)),
            )
            replies.append(reply)
            completion = completion_of(
                reply.text,
                cut_off=reply.cut_off,
                stops=stops,
                max_tokens=state.pending.max_tokens,
            )
            state = after_completion(state, completion, codec)
        return state


def _conversation(state: EpisodeState) -> list[Message]:
    """The turns so far; what a query gave comes as the user's message, as for models of ours."""
    messages: list[Message] = []
    for turn in state.turns:
        messages.append({"role": "assistant", "content": turn.text})
        messages.append({"role": "user", "content": turn.observation or ""})
    return messages


def _billed(row: AnswerRow, replies: Sequence[Reply]) -> AnswerRow:
    """The row with the tokens that the endpoint counted; None where it does not tell."""
    import msgspec

    def total(name: str) -> int | None:
        counts = [getattr(reply, name) for reply in replies]
        return sum(counts) if counts and None not in counts else None

    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return msgspec.structs.replace(row, **{name: total(name) for name in names})
