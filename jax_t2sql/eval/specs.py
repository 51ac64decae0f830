"""What `--policy` names: who answers the questions."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from jax_t2sql.addresses import server_address
from jax_t2sql.errors import UserError

PolicyKind = Literal["local", "vllm", "openai", "file"]
_FORMS = "local:MODEL[+ADAPTER], vllm:URL[+ADAPTER], openai:URL or file:PREDICTIONS"


@dataclass(frozen=True)
class PolicySpec:
    """A policy by name.

    Attributes:
      kind: a model in this process, a vLLM server, a chat-completions endpoint, or a file.
      target: model, URL or path.
      adapter: LoRA adapter: a folder in PEFT format, or (vllm) a name that the server knows.
    """

    kind: PolicyKind
    target: str
    adapter: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.target}" + (f"+{self.adapter}" if self.adapter else "")


def parse_policy(text: str) -> PolicySpec:
    """Reads a --policy value.

    A + in a path that exists separates nothing.

    Raises:
      UserError: it is of none of the forms.

    >>> parse_policy("local:models/base+runs/x/adapter")
    PolicySpec(kind='local', target='models/base', adapter='runs/x/adapter')
    >>> parse_policy("vllm:http://127.0.0.1:8000").target
    'http://127.0.0.1:8000'
    """
    kind, _, target = text.partition(":")
    if kind not in get_args(PolicyKind) or not target:
        raise UserError(f"--policy is {text!r}; it must be {_FORMS}")
    if kind == "openai" and not re.match(r"https?://[^/]", target):
        raise UserError(f"--policy is {text!r}; give openai:http://HOST:PORT/v1, or https")
    if kind in ("openai", "file") or "+" not in target or Path(target).exists():
        return PolicySpec(kind, _served(target) if kind == "vllm" else target)
    model, _, adapter = target.rpartition("+")
    if not model or not adapter:
        raise UserError(
            f"--policy is {text!r}; give a model or server before and an adapter after the +"
        )
    return PolicySpec(kind, _served(model) if kind == "vllm" else model, adapter)


def _served(url: str) -> str:
    return server_address(url, option="--policy vllm:")
