"""A client for chat-completions endpoints, whoever runs them.

Endpoints differ in the optional fields that they take; what one refuses by name and is not needed
is left out from then on. The key is sent and never shown: an answer that quotes it is masked.
"""

import asyncio
import json
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from jax_t2sql.errors import UserError
from jax_t2sql.sampling.vllm_http import HttpClient, Unreachable, describe
from jax_t2sql.text2sql.codec import Message

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_TELL_EVERY = 30.0
_LONGEST_WISH = 600.0  # seconds of a Retry-After that are waited
_MAY_PASS = (408, 409, 425, 429)


class Failed(Exception):
    """This request gets no answer; others may."""


class TooLong(Exception):
    """The conversation is longer than the model's context."""


@dataclass(frozen=True)
class Reply:
    """One message of the model. cut_off: it met the token limit. Counts are None if not told."""

    text: str
    cut_off: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class ChatClient:
    """Asks one endpoint.

    Args:
      url: of the API: https://HOST/v1, with or without /chat/completions.
      key_variable: environment variable with the key.
      model: its name; None takes the only one that is served.
      retries: how often a fault that may pass is met with another try.
    """

    def __init__(
        self,
        url: str,
        *,
        key_variable: str,
        model: str | None,
        retries: int,
        request_seconds: float,
        concurrency: int,
    ):
        self._key = os.environ.get(key_variable, "").strip()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        base = url.rstrip("/").removesuffix("/chat/completions")
        if base.count("/") < 3:  # nothing after the host
            base += "/v1"
        self._http = HttpClient(
            base, max_connections=concurrency, timeout=request_seconds, headers=headers
        )
        self.url, self.model = base, model
        self._key_variable, self._retries = key_variable, retries
        self._told = -math.inf
        self._renamed: dict[str, str | None] = {}  # optional fields that the endpoint refuses

    async def find_model(self) -> str:
        """The model's name. Raises UserError if none was given and not exactly one is served."""
        if self.model is None:
            fault = ""
            try:
                status, body = await self._ask("GET", "/models", None)
                names = (
                    [str(item["id"]) for item in json.loads(body)["data"]] if status == 200 else []
                )
                if status != 200:
                    fault = f" It does not list its models ({self._mask(describe(status, body))})."
            except Failed as error:
                names, fault = [], f" It cannot be asked for it: {error}."
            except (KeyError, TypeError, ValueError):
                names = []
            if len(names) != 1:
                known = (
                    f" It has {', '.join(names[:8])}" + ", …" * (len(names) > 8) if names else ""
                )
                raise UserError(f"{self.url}: name the model with --model.{known}{fault}")
            self.model = names[0]
        return self.model

    async def reply(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Reply:
        """The next message.

        Raises:
          Failed: no answer, after all tries. TooLong: it can never be answered.
          UserError: no request can be answered: a wrong key, say.
        """
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": temperature,
            "top_p": 1,
            "seed": seed & (2**31 - 1),
            "max_tokens": max_tokens,
        }
        for _ in range(len(fields)):
            sent = {}
            for name, value in fields.items():
                other = self._renamed.get(name, name)
                if other is not None:
                    sent[other] = value
            status, body = await self._ask("POST", "/chat/completions", sent)
            if status == 200:
                return _reply(body, self._mask)
            told = self._mask(describe(status, body))
            if not self._adapt(status, told):
                self._refuse(status, told)
        raise UserError(f"{self.url} takes none of the usual fields: {told}")

    def _adapt(self, status: int, told: str) -> bool:
        """Leaves out, or names otherwise, an optional field that the answer complains of."""
        if status not in (400, 422):
            return False
        for name, other in (
            ("max_tokens", "max_completion_tokens"),
            ("seed", None),
            ("top_p", None),
        ):
            if name not in self._renamed and (f"'{name}'" in told or f"`{name}`" in told):
                self._renamed[name] = other
                return True
        return False

    def _refuse(self, status: int, told: str) -> None:
        if status in (401, 403):
            state = "is set" if self._key else "is not set"
            raise UserError(
                f"{self.url} refuses the key ({told}); {self._key_variable} {state}. Give the right"
                " one there, or another variable with --api-key-variable"
            )
        if status in (404, 405):
            raise UserError(
                f"{self.url} with model {self.model!r}: {told}; correct the one or other"
            )
        if status in (400, 413, 422) and any(w in told.lower() for w in ("context", "too long")):
            raise TooLong(told)
        raise Failed(told)

    async def _ask(self, method: str, path: str, value: Any) -> tuple[int, bytes]:
        """An answer that is no passing fault."""
        wish = 0.0
        for attempt in range(self._retries + 1):
            if attempt:
                pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
                # Those that were sent away together are not to come back together.
                await asyncio.sleep(wish + pause * random.uniform(0.5, 1.0))
            wish = 0.0
            try:
                status, headers, body = await self._http.ask_all(method, path, value)
                if status not in _MAY_PASS and status < 500:
                    return status, body
                fault = self._mask(describe(status, body))
                wish = retry_after(headers.get("retry-after", ""), time.time())
            except Unreachable as error:
                fault = str(error)
            self._tell(fault)
        raise Failed(f"no answer in {self._retries + 1} tries, the last: {fault}")

    def _tell(self, fault: str) -> None:
        """Says why it takes so long, now and then: many requests may meet the same fault."""
        now = time.monotonic()
        if self._retries and now - self._told >= _TELL_EVERY:
            self._told = now
            print(f"note: {fault}; asking again", file=sys.stderr, flush=True)

    def _mask(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text

    async def close(self) -> None:
        await self._http.close()


def retry_after(text: str, now: float) -> float:
    """Seconds that a Retry-After header asks to wait, at most ten minutes; 0 if it is none.

    Args:
      text: seconds or an HTTP date.
      now: seconds since 1970.

    Source: RFC 9110, 10.2.3.

    >>> retry_after("30", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 15.0)
    (30.0, 45.0)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_WISH) if seconds == seconds else 0.0


def _reply(body: bytes, mask) -> Reply:
    try:
        data = json.loads(body)
        choice = data["choices"][0]
        text, ended = choice["message"].get("content") or "", choice.get("finish_reason")
        usage = data.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        if not isinstance(text, str):
            raise TypeError("content is no text")
        text.encode()
        return Reply(
            text,
            ended == "length",
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            _count(details.get("cached_tokens")),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise Failed(f"an answer that is no completion ({mask(repr(error)[:100])})") from None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None
