"""A language model behind an OpenAI-compatible endpoint: one question, one JSON answer."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass

from jax_t2sql.errors import UserError

_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers.

    Attributes:
      url: up to and without /chat/completions, such as http://localhost:8000/v1.
      model: its name there.
      seconds: time limit of one answer.
      key_variable: environment variable that holds the API key, if one is needed.
    """

    url: str
    model: str
    seconds: float = 60.0
    key_variable: str = "OPENAI_API_KEY"

    def ask(self, system: str, user: str, *, temperature: float = 0.0, seed: int = 0) -> str:
        """The model's answer as text.

        Raises:
          UserError: the endpoint cannot be reached, refuses, or answers with something else.
        """
        body = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ],
            "temperature": temperature,
            "seed": seed,
        }
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self.key_variable)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=self.seconds) as reply:
                answer = json.loads(reply.read(4_000_000))
            return str(answer["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            raise UserError(f"{self.url} answers {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{self.url} cannot be asked ({error})") from None
        except (KeyError, IndexError, TypeError):
            raise UserError(f"{self.url} gives no chat completion; check the URL") from None


def parse_endpoint(text: str) -> Endpoint:
    """MODEL@URL.

    Raises:
      UserError: it is something else.

    >>> parse_endpoint("small@http://localhost:8000/v1").model
    'small'
    """
    model, separator, url = text.partition("@")
    if not separator or not model or not url.startswith(("http://", "https://")):
        raise UserError(f"endpoint {text!r}: give MODEL@URL, as small@http://localhost:8000/v1")
    return Endpoint(url, model)


def json_of(text: str) -> dict | None:
    """The JSON object in an answer, fenced or bare; None if there is none."""
    fenced = _FENCE.search(text)
    candidate = fenced[1] if fenced else text[text.find("{") : text.rfind("}") + 1]
    try:
        found = json.loads(candidate)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
