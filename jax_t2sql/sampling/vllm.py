"""A vLLM server as a sampler: token ids out, token ids and their log-probs in.

What is asked for is always said in full, since a server fills gaps with the defaults that its model
came with (a repetition penalty, say), and what comes back is checked before it is believed. A
request names its adapter; if the server does not know that name it is an error here, never an
answer by the base.
"""

import asyncio
import dataclasses
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax_t2sql.sampling.policy import SampleRequest
from jax_t2sql.sampling.vllm_experts import ExpertShape, read_experts
from jax_t2sql.sampling.vllm_http import CutOff, HttpClient, Unreachable, describe
from jax_t2sql.text2sql.completion import Completion

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LOGPROB_NOISE = 1e-4
# Failures of a server at one completion (500, or cut off) after which that is taken for the cause.
_MAX_FAILURES = 10
_QUICK = 30.0  # seconds for what the server answers without the model


class AdapterGone(Exception):
    """The server does not know the adapter: it was restarted, or unloaded it. Load it again."""


class Refused(Exception):
    """The server will never answer this as asked, or its answer cannot be believed."""


@dataclass(frozen=True)
class ServedModel:
    """One line of the server's list. parent: the base's name for an adapter, None for a base."""

    name: str
    root: str | None
    parent: str | None
    max_model_len: int | None


class VllmClient:
    """Asks a vLLM server, as often as it takes.

    A server that cannot be reached, 408, 425, 429 and 5xx are asked again for ever, with jittered
    pauses that double up to some seconds: the server may be restarting, and a group that waits is
    not lost. Only a completion at which the server fails again and again (500, or no answer to what
    it was sent) is refused in the end: its prompt may be what the server dies of.

    Args:
      url: of the server, http://HOST:PORT.
      vocab_size: ids lie below it.
      stop_ids: ids that end a turn.
      on_trouble: told what went wrong, in a line, each time; with "" when an answer came again.
      request_seconds: for one completion; a turn that takes longer counts as no answer.
      experts: read the experts of every token from the answers, of a model of this shape.
    """

    def __init__(
        self,
        url: str,
        *,
        vocab_size: int,
        stop_ids: Sequence[int],
        on_trouble: Callable[[str], None] = lambda line: None,
        request_seconds: float = 600.0,
        max_connections: int = 512,
        experts: ExpertShape | None = None,
    ):
        self.http = HttpClient(url, max_connections=max_connections, timeout=request_seconds)
        self.vocab_size = vocab_size
        self.stop_ids = sorted(int(i) for i in stop_ids)
        self.on_trouble = on_trouble
        self.experts = experts
        self._troubled = False

    async def sample(
        self,
        request: SampleRequest,
        *,
        adapter: str,
        version: int,
        stop_strings: Sequence[str] = (),
    ) -> Completion:
        """One turn by a named adapter, whose weights are those of `version`.

        Raises:
          AdapterGone: the server does not have the adapter (any more).
          Refused: it does not take the request (too long, say), or its answer contradicts it.
        """
        data = await self._complete(
            adapter,
            prompt=list(request.prompt_ids),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed & (2**63 - 1),
            stop=list(stop_strings),
            include_stop_str_in_output=True,
            stop_token_ids=self.stop_ids,
            logprobs=0,
        )
        completion = _completion(
            data,
            limit=request.max_tokens,
            vocab_size=self.vocab_size,
            stop_ids=self.stop_ids,
            version=version,
        )
        if self.experts is None:
            return completion
        tokens = len(request.prompt_ids) + len(completion.ids)
        try:
            record = read_experts(data.get("routed_experts"), self.experts, tokens=tokens)
        except ValueError as error:
            raise Refused(str(error)) from error
        return dataclasses.replace(completion, experts=record)

    async def top_logprob(self, ids: Sequence[int], *, adapter: str, temperature: float) -> float:
        """The greatest log-prob of the token after `ids`, as reported at a temperature."""
        data = await self._complete(
            adapter, prompt=list(ids), max_tokens=1, temperature=temperature, seed=0, logprobs=5
        )
        try:
            return max(float(x) for x in data["logprobs"]["top_logprobs"][0].values())
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Refused(f"no top log-probs in the answer ({error!r})") from error

    async def models(self) -> dict[str, ServedModel]:
        """What is served, by name."""
        status, body = await self._persist("GET", "/v1/models", timeout=_QUICK)
        if status != 200:
            raise Refused(f"/v1/models: {describe(status, body)}")
        try:
            return {
                item["id"]: ServedModel(
                    item["id"], item.get("root"), item.get("parent"), item.get("max_model_len")
                )
                for item in json.loads(body)["data"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"/v1/models gave no list of models ({error!r})") from error

    async def load_adapter(self, name: str, path: str) -> None:
        """Loads an adapter under its own, never used name.

        Raises:
          Refused: the server cannot, or has other files under that name.
        """
        for attempt in range(3):
            status, body = await self._persist(
                "POST",
                "/v1/load_lora_adapter",
                {"lora_name": name, "lora_path": path},
                timeout=_QUICK * 10,
                patient=False,
            )
            if status == 200:
                return
            if status in (404, 405) and b"detail" in body:  # the web framework's: no such route
                raise Refused(
                    "the server cannot load adapters: start vLLM with --enable-lora and "
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
                )
            if status == 404:
                raise Refused(
                    f"the server sees no adapter in {path}: give --adapter-cache, a folder that "
                    "this process and the server share"
                )
            if status == 400:  # perhaps the answer to an earlier try was lost
                served = (await self.models()).get(name)
                if served is not None and served.root == path:
                    return
                break
            await asyncio.sleep(_pause(attempt))
        raise Refused(f"adapter {name} cannot be loaded from {path}: {describe(status, body)}")

    async def unload_adapter(self, name: str) -> None:
        """Unloads an adapter; one that is not there is no fault."""
        status, body = await self._persist(
            "POST", "/v1/unload_lora_adapter", {"lora_name": name}, timeout=_QUICK
        )
        if status not in (200, 400, 404):
            raise Refused(f"adapter {name} cannot be unloaded: {describe(status, body)}")

    async def close(self) -> None:
        await self.http.close()

    async def _complete(self, model: str, **fields: Any) -> dict[str, Any]:
        payload = {
            "model": model,
            "n": 1,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "skip_special_tokens": False,
            "add_special_tokens": False,
            "return_token_ids": True,
            **fields,
        }
        for attempt in range(4):
            status, body = await self._persist(
                "POST", "/v1/completions", payload, max_failures=_MAX_FAILURES
            )
            if status == 404:
                raise AdapterGone(f"{model}: {describe(status, body)}")
            if status != 200:
                raise Refused(describe(status, body))
            try:
                data = json.loads(body)
                choice = data["choices"][0]
                served, ended = data["model"], choice["finish_reason"]
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise Refused(f"an answer that is no completion ({error!r})") from error
            if served != model:
                raise Refused(f"asked for {model}, answered by {served}: nothing may stand in")
            if ended in ("stop", "length"):
                return choice
            # "abort", "error" or nothing: the engine stopped in the middle.
            self._trouble(f"a completion ended with {ended!r}")
            await asyncio.sleep(_pause(attempt))
        raise Refused(f"four completions in a row ended with {ended!r}")

    async def _persist(
        self,
        method: str,
        path: str,
        value: Any = None,
        *,
        timeout: float | None = None,
        patient: bool = True,
        max_failures: float = math.inf,
    ) -> tuple[int, bytes]:
        """An answer that is no passing trouble; `patient`: nor any 5xx.

        Raises:
          Refused: the server failed `max_failures` times at this very request.
        """
        attempt = failures = 0
        while failures < max_failures:
            try:
                status, body = await self.http.ask(method, path, value, timeout=timeout)
                passing = status in (408, 425, 429) or (status >= 500 and patient)
                if not passing:
                    self._trouble("")
                    return status, body
                trouble = f"{path}: {describe(status, body)}"
                failures += status == 500
            except Unreachable as error:
                trouble = str(error)
                failures += isinstance(error, CutOff)
            self._trouble(trouble)
            await asyncio.sleep(_pause(attempt))
            attempt += 1
        raise Refused(f"the server failed {failures} times at one request, at last: {trouble}")

    def _trouble(self, line: str) -> None:
        if line or self._troubled:
            self.on_trouble(line)
        self._troubled = bool(line)


def _pause(attempt: int) -> float:
    return min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def _completion(
    choice: dict[str, Any], *, limit: int, vocab_size: int, stop_ids: Sequence[int], version: int
) -> Completion:
    try:
        ids = [int(i) for i in choice["token_ids"]]
        logprobs = [float(x) for x in choice["logprobs"]["token_logprobs"]]
        ended, cause = choice["finish_reason"], choice.get("stop_reason")
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(
            f"an answer without token ids and log-probs ({error!r}); vLLM 0.10 or newer is needed"
        ) from error
    if not ids or len(ids) != len(logprobs) or len(ids) > limit:
        raise Refused(
            f"{len(ids)} ids and {len(logprobs)} log-probs, {limit} tokens were asked for"
        )
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise Refused(f"ids in {min(ids)}..{max(ids)}, the vocabulary has 0..{vocab_size - 1}")
    if not all(math.isfinite(x) and x <= _LOGPROB_NOISE for x in logprobs):
        raise Refused(f"log-probs that are none: {[x for x in logprobs if not x <= 0][:3]}")
    if ended == "length":
        stop = "length"
    else:
        stop = "stop_string" if isinstance(cause, str) else "stop_token"
    if stop == "stop_token" and ids[-1] not in stop_ids:
        raise Refused(
            f"a turn that ended by itself with id {ids[-1]}, which is no end token of the run's "
            "tokenizer: the server has another tokenizer, or drops the end token"
        )
    return Completion(
        ids=tuple(ids),
        logprobs=tuple(min(x, 0.0) for x in logprobs),
        stop=stop,
        version=version,
    )
