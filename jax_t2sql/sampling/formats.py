"""How model families write a tool call, told to the one protocol that reads answers.

A family that was trained to call tools keeps its own way of writing calls, whatever the prompt
asks for. Each format finds such calls in a message and writes them as the protocol has them, JSON
between tags; what is not a call of the family stays as it is, so the prompt's own form is always
understood. Only the reading changes: sampled ids are never touched.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from jax_t2sql.text2sql.protocol import (
    CALL_CLOSE,
    CALL_OPEN,
    SOLUTION_CLOSE,
    THINK_CLOSE,
    TOOL_NAME,
)


@dataclass(frozen=True)
class ToolFormat:
    """One family's way.

    Attributes:
      rewrite: a message with the family's calls in the protocol's form.
      stop_strings: what closes a call or an answer.
      marks: pieces of a chat template that give the family away.
    """

    name: str
    rewrite: Callable[[str], str]
    stop_strings: tuple[str, ...]
    marks: tuple[str, ...] = ()


def _call(name: str, arguments: str) -> str:
    """A call in the protocol's form; arguments that are no JSON stay so, for it to say."""
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return f'{CALL_OPEN}{{"name": {json.dumps(name)}, "arguments": {arguments}}}{CALL_CLOSE}'
    return _call_with(name, value)


def _call_with(name: str, value) -> str:
    # No tag inside the query may close the call early.
    body = json.dumps({"name": name, "arguments": value}).replace("<", "\\u003c")
    return f"{CALL_OPEN}{body}{CALL_CLOSE}"


def _as_it_is(text: str) -> str:
    return text


_LLAMA_CALL = re.compile(r"<\|python_tag\|>\s*(\w+)\.call\(\s*query\s*=\s*(\".*\")\s*\)", re.DOTALL)
_LLAMA_TAG = "<|python_tag|>"


def _llama3(text: str) -> str:
    """A message that is nothing but JSON with a name and parameters, perhaps after a tag."""
    head, think, visible = text.rpartition(THINK_CLOSE)
    if match := _LLAMA_CALL.fullmatch(visible.strip()):
        return head + think + _call(match[1], f'{{"query": {match[2]}}}')
    body = visible.strip().removeprefix(_LLAMA_TAG).strip()
    if not body.startswith("{"):
        return text
    try:
        value = json.loads(body, strict=False)
    except (ValueError, RecursionError):
        # Cut off or badly quoted, but surely meant as a call.
        meant = f'"{TOOL_NAME}"' in body and '"parameters"' in body
        return head + think + f"{CALL_OPEN}{body}{CALL_CLOSE}" if meant else text
    if not isinstance(value, dict) or not {"name", "parameters"} <= value.keys():
        return text
    return head + think + _call_with(value["name"], value["parameters"])


_KIMI_CALL = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?([\w-]+)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>",
    re.DOTALL,
)
_KIMI_SECTION = re.compile(r"<\|tool_calls_section_(?:begin|end)\|>")


def _kimi(text: str) -> str:
    return _KIMI_CALL.sub(lambda m: _call(m[1], m[2].strip()), _KIMI_SECTION.sub("", text))


# The version of R1 and V3 names a kind and fences the arguments; V3.1 writes them plainly.
_DEEPSEEK_CALL = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>([\w-]+)\s*```json\s*(.*?)\s*```"
    r"|([\w-]+)<｜tool▁sep｜>(.*?))\s*<｜tool▁call▁end｜>",
    re.DOTALL,
)
_DEEPSEEK_SECTION = re.compile(r"<｜tool▁calls▁(?:begin|end)｜>")


def _deepseek(text: str) -> str:
    text = _DEEPSEEK_SECTION.sub("", text)
    return _DEEPSEEK_CALL.sub(lambda m: _call(m[1] or m[3], m[2] or m[4] or ""), text)


_GLM_CALL = re.compile(
    rf"{CALL_OPEN}\s*([\w-]+)\s*((?:<arg_key>.*?</arg_key>\s*<arg_value>.*?</arg_value>\s*)+)"
    rf"{CALL_CLOSE}",
    re.DOTALL,
)
_GLM_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)


def _glm(text: str) -> str:
    """Values are plain text, not JSON."""

    def rewrite(match: re.Match) -> str:
        found = {key.strip(): value for key, value in _GLM_ARGUMENT.findall(match[2])}
        return _call_with(match[1], found)

    return _GLM_CALL.sub(rewrite, text)


_PLAIN_CALL = re.compile(r"<sql>(.*?)</sql>", re.DOTALL)


def _plain(text: str) -> str:
    return _PLAIN_CALL.sub(lambda m: _call_with(TOOL_NAME, {"query": m[1].strip()}), text)


HERMES = ToolFormat("hermes", _as_it_is, (CALL_CLOSE, SOLUTION_CLOSE))
LLAMA3 = ToolFormat(
    "llama3", _llama3, (CALL_CLOSE, SOLUTION_CLOSE), ("<|python_tag|>", "<|start_header_id|>")
)
KIMI_K2 = ToolFormat(
    "kimi-k2",
    _kimi,
    ("<|tool_call_end|>", CALL_CLOSE, SOLUTION_CLOSE),
    ("<|tool_calls_section_begin|>", "<|im_middle|>"),
)
DEEPSEEK = ToolFormat(
    "deepseek",
    _deepseek,
    ("<｜tool▁call▁end｜>", CALL_CLOSE, SOLUTION_CLOSE),
    ("<｜tool▁calls▁begin｜>", "<｜Assistant｜>"),
)
GLM = ToolFormat("glm", _glm, (CALL_CLOSE, SOLUTION_CLOSE), ("<arg_key>", "[gMASK]"))
PLAIN = ToolFormat("plain", _plain, ("</sql>", CALL_CLOSE, SOLUTION_CLOSE))
"""For models without a way of their own: SQL between <sql> tags."""

FORMATS = {f.name: f for f in (HERMES, LLAMA3, KIMI_K2, DEEPSEEK, GLM, PLAIN)}


def detect_format(rendered: str) -> ToolFormat:
    """The family of a conversation as its own template printed it; Hermes' where none is known."""
    for candidate in FORMATS.values():
        if any(mark in rendered for mark in candidate.marks):
            return candidate
    return HERMES
