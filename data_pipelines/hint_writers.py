"""Who writes hints: a chat endpoint, a local model, or an outline of the gold query."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from data_pipelines.hint_outline import outline
from jax_t2sql.errors import UserError
from jax_t2sql.hints import MAX_CHARACTERS, Strength
from jax_t2sql.sampling.vllm_http import HttpClient, Unreachable, describe
from jax_t2sql.text2sql import Problem
from jax_t2sql.text2sql.protocol import without_reasoning

Message = dict[str, str]

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
      url: of the API, up to and with its version: https://HOST/v1.
      model: the endpoint's name of the model.
      key_variable: environment variable that holds the key; none is sent where it is not set.
      connections: requests at a time.
      temperature, max_tokens: of sampling.
      attempts: how often a request that gets no proper answer is sent.

    Raises:
      UserError: the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key_variable: str,
        connections: int = 8,
        temperature: float = 0.7,
        max_tokens: int = 1024,
        attempts: int = 4,
        timeout: float = 300.0,
        pause: float = 1.0,
    ):
        key = os.environ.get(key_variable, "").strip()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._options = {"max_connections": connections, "timeout": timeout, "headers": headers}
        HttpClient(url, **self._options)  # refuses a URL that is none
        self._url, self._model, self._key_variable = url, model, key_variable
        self._temperature, self._max_tokens = temperature, max_tokens
        self._attempts, self._pause = attempts, pause

    def write(self, requests: Sequence[HintRequest]) -> list[str]:
        """Raises UserError: the endpoint refuses, or does not answer."""
        return asyncio.run(self._write_all(requests))

    async def _write_all(self, requests: Sequence[HintRequest]) -> list[str]:
        client = HttpClient(self._url, **self._options)  # bound to the loop that uses it
        jobs = [asyncio.create_task(self._write(client, request)) for request in requests]
        try:
            return await asyncio.gather(*jobs)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await client.close()

    async def _write(self, client: HttpClient, request: HintRequest) -> str:
        body = {
            "model": self._model,
            "messages": hint_messages(request),
            "temperature": self._temperature,
            "max_tokens": self._max_tokens,
            "seed": request.seed,
        }
        fault = ""
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(self._pause * 2**attempt)
            try:
                status, answer = await client.ask("POST", "/chat/completions", body)
            except Unreachable as error:
                fault = str(error)
                continue
            if status == 200:
                return _content(answer)
            fault = describe(status, answer)
            if status not in (408, 409, 429) and status < 500:
                break
        raise UserError(
            f"{self._url} gives no hints: {fault}; check the address, --model {self._model} and"
            f" the key in {self._key_variable}. What is written so far stays"
        )


def _content(answer: bytes) -> str:
    """The text of a chat completion; a turn that was cut off gives none."""
    try:
        choice = json.loads(answer)["choices"][0]
        text = choice["message"].get("content")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        shown = answer[:200].decode("utf-8", "replace")
        raise UserError(f"the endpoint's answer is no chat completion: {shown}") from None
    if choice.get("finish_reason") == "length" or not isinstance(text, str):
        return ""
    return clean(text)


class LocalWriter:
    """Samples from a model in this process.

    Args:
      policy: MODEL or MODEL+ADAPTER, as `jax_t2sql.eval --policy local:` takes them.
      rows: hints written side by side.
      temperature, max_tokens: of sampling.

    Raises:
      UserError: the model or the adapter cannot be loaded.
    """

    def __init__(self, policy: str, *, rows: int, temperature: float, max_tokens: int):
        from jax_t2sql.eval import split_policy
        from jax_t2sql.models import load_adapter, load_model
        from jax_t2sql.sampling.chat import ChatCodec
        from jax_t2sql.sampling.engine import Engine

        name, adapter_name = split_policy(policy)
        model = load_model(name)
        adapter = load_adapter(adapter_name, model.config) if adapter_name else None
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
