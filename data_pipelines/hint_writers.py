"""Who writes hints: a chat endpoint, a local model, or an outline of the gold query."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from data_pipelines.hint_outline import outline
from jax_t2sql.errors import UserError
from jax_t2sql.eval.chat_client import ChatClient, Failed, TooLong
from jax_t2sql.eval.specs import parse_policy
from jax_t2sql.hints import MAX_CHARACTERS, Strength
from jax_t2sql.text2sql import Problem
from jax_t2sql.text2sql.codec import Message
from jax_t2sql.text2sql.protocol import without_reasoning

_SYSTEM = (
    "You help a student who answers questions over a database with SQL and has failed at one. You"
    " see the correct query; the student must not. Write a hint. {strength} Never write SQL or a"
    " piece of it, and never state a value of the result. Answer with the hint alone, in plain"
    " sentences."
)
_STRENGTHS: dict[Strength, str] = {
    "light": "Only point at what may have been overlooked, in one sentence, without column names.",
    "medium": "Name the tables and columns that matter and the kind of steps, in two sentences.",
    "strong": (
        "Describe step by step how the query is built, with tables, columns and how values are"
        " stored, in at most five sentences."
    ),
}


@dataclass(frozen=True)
class HintRequest:
    """One hint to be written.

    Attributes:
      problem: the question.
      strength: how much to say.
      schema: the database, as text.
      refused: why the last attempt cannot be used; "" at first.
      seed: decides what is sampled.
    """

    problem: Problem
    strength: Strength
    schema: str
    refused: str = ""
    seed: int = 0


class HintWriter(Protocol):
    """Writes hints; several at a time, since servers and accelerators like batches."""

    def write(self, requests: Sequence[HintRequest]) -> list[str]:
        """One text a request; "" where there is none."""


def hint_messages(request: HintRequest) -> list[Message]:
    """The conversation that asks for a hint."""
    problem = request.problem
    knowledge = [f"External knowledge: {problem.evidence}"] if problem.evidence.strip() else []
    parts = [
        f"Database schema:\n{request.schema}",
        *knowledge,
        f"Question: {problem.question}",
        f"Correct query (hidden from the student):\n{problem.gold_sql}",
    ]
    if request.refused:
        parts.append(f"Your last hint cannot be used: {request.refused}. Write another one.")
    system = _SYSTEM.format(strength=_STRENGTHS[request.strength])
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def clean(text: str) -> str:
    """A model's answer as one line, without reasoning and trimmings; "" if it is too long."""
    said = " ".join(without_reasoning(text).split())
    said = said.strip("\"'*").removeprefix("Hint:").strip().strip("\"'*").strip()
    return said if len(said) <= MAX_CHARACTERS else ""


class OutlineWriter:
    """Says what the gold query is made of; no attempt differs from the first."""

    def write(self, requests: Sequence[HintRequest]) -> list[str]:
        return [
            "" if request.refused else outline(request.problem.gold_sql, request.strength)
            for request in requests
        ]


class ChatWriter:
    """Asks an endpoint that speaks OpenAI's chat completions.

    Args:
      url, key_variable, model: as for `jax_t2sql.eval.chat_client.ChatClient`.
      connections: requests at a time.
      temperature, max_tokens: of sampling.
      retries: how often a fault that may pass is met with another try.
      request_seconds: after which a request counts as not answered.

    Raises:
      UserError: the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None,
        key_variable: str,
        connections: int = 8,
        temperature: float = 0.7,
        max_tokens: int = 1024,
        retries: int = 3,
        request_seconds: float = 300.0,
    ):
        self._url, self._options = (
            url,
            {
                "model": model,
                "key_variable": key_variable,
                "concurrency": connections,
                "retries": retries,
                "request_seconds": request_seconds,
            },
        )
        self._sampling = {"temperature": temperature, "max_tokens": max_tokens}
        ChatClient(url, **self._options)  # refuses a URL that is none

    def write(self, requests: Sequence[HintRequest]) -> list[str]:
        """Raises UserError: the endpoint refuses, or does not answer."""
        return asyncio.run(self._write_all(requests))

    async def _write_all(self, requests: Sequence[HintRequest]) -> list[str]:
        client = ChatClient(self._url, **self._options)  # bound to the loop that uses it
        jobs: list[asyncio.Task[str]] = []
        try:
            self._options["model"] = await client.find_model()
            jobs = [asyncio.create_task(self._write(client, request)) for request in requests]
            return await asyncio.gather(*jobs)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await client.close()

    async def _write(self, client: ChatClient, request: HintRequest) -> str:
        try:
            reply = await client.reply(hint_messages(request), seed=request.seed, **self._sampling)
        except TooLong:
            return ""
        except Failed as error:
            raise UserError(
                f"{self._url} gives no hints: {error}. What is written so far stays"
            ) from None
        return "" if reply.cut_off else clean(reply.text)


class LocalWriter:
    """Samples from a model in this process.

    Args:
      policy: local:MODEL or local:MODEL+ADAPTER, as `jax_t2sql.eval` takes it.
      rows: hints written side by side.
      temperature, max_tokens: of sampling.

    Raises:
      UserError: the model or the adapter cannot be loaded.
    """

    def __init__(self, policy: str, *, rows: int, temperature: float, max_tokens: int):
        from jax_t2sql.models import load_adapter, load_model
        from jax_t2sql.sampling.chat import ChatCodec
        from jax_t2sql.sampling.engine import Engine

        spec = parse_policy(policy)
        model = load_model(spec.target)
        adapter = load_adapter(Path(spec.adapter), model.config) if spec.adapter else None
        self._codec = ChatCodec(model.tokenizer)
        self._room = model.config.max_position_embeddings
        self._temperature, self._max_tokens = temperature, max_tokens
        self._engine = Engine(
            model.config,
            model.params,
            adapter,
            stop_ids=self._codec.stop_ids,
            decode=self._codec.decode,
            max_rows=rows,
        )

    def write(self, requests: Sequence[HintRequest]) -> list[str]:
        from jax_t2sql.sampling.policy import SampleRequest

        prompts = [self._codec.encode_prompt(hint_messages(request)) for request in requests]
        fitting = [i for i, ids in enumerate(prompts) if len(ids) + self._max_tokens <= self._room]
        samples = [
            SampleRequest(
                prompt_ids=tuple(prompts[i]),
                seed=requests[i].seed,
                max_tokens=self._max_tokens,
                temperature=self._temperature,
            )
            for i in fitting
        ]
        texts = [""] * len(requests)
        for i, completion in zip(fitting, self._engine.generate(samples), strict=True):
            if completion.stop != "length":
                texts[i] = clean(self._codec.decode(completion.ids))
        return texts
