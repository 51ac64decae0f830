"""How model families write a tool call: the tags around it, and what stands between them.

A model calls tools best in the form that it was taught. The prompt shows that form, the parser
reads it, and its closing tag ends a turn. Tags that are special tokens of a family arrive as text,
since sampled ids are decoded with special tokens kept. No form can hold its own closing tag, for
that ends the turn.

Results come back in a user's turn between <tool_response> tags for every family: chat templates
disagree on who says them, and the prompt's example shows it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

TOOL_NAME = "execute_sql_query"

ToolFormatName = Literal["hermes", "qwen3_coder", "glm", "llama", "kimi", "deepseek", "plain"]

# JSON can spell characters that no SQL text can hold: zero, and halves of surrogate pairs.
_UNSPEAKABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class BadCall:
    """Why the text of a call cannot be read, as a sentence for the model."""

    fault: str


@dataclass(frozen=True)
class ToolFormat:
    """One family's way to call a tool.

    Attributes:
      name: for configurations and records.
      open, close: text that begins and ends a call; `close` completes a turn.
      write: a query to the whole text of a call.
      read: what stands between `open` and `close` to a query, or why there is none.
      marks: what a chat template of such a model holds; of the first format that matches.
    """

    name: ToolFormatName
    open: str
    close: str
    write: Callable[[str], str]
    read: Callable[[str], str | BadCall]
    marks: tuple[str, ...] = ()


def _arguments(query: str) -> str:
    return json.dumps({"query": query}, ensure_ascii=False)


def _named(query: str) -> str:
    return json.dumps({"name": TOOL_NAME, "arguments": {"query": query}}, ensure_ascii=False)


def _load(text: str) -> object | BadCall:
    try:
        # strict=False: models write line breaks of their SQL as they are, and that is harmless.
        return json.loads(text, strict=False)
    except ValueError as error:
        return BadCall(f"The tool call is not JSON ({error}).")
    except RecursionError:
        return BadCall("The tool call is not JSON (nested too deeply).")


def _query(value: object) -> str | BadCall:
    if not isinstance(value, str) or not value.strip():
        return BadCall('"query" must be a text with SQL in it.')
    if _UNSPEAKABLE.search(value):
        return BadCall('"query" holds a zero character or half of a surrogate pair.')
    return value.strip()


def _query_of(arguments: object) -> str | BadCall:
    if isinstance(arguments, BadCall):
        return arguments
    if not isinstance(arguments, dict) or set(arguments) != {"query"}:
        return BadCall('"arguments" must be an object with the one field "query".')
    return _query(arguments["query"])


def _read_hermes(body: str) -> str | BadCall:
    call = _load(body)
    if isinstance(call, BadCall):
        return call
    if not isinstance(call, dict) or call.get("name") != TOOL_NAME:
        return BadCall(f'The call must be an object with "name": "{TOOL_NAME}".')
    return _query_of(call.get("arguments"))


_XML_CALL = re.compile(
    r"\s*<function=([^>\n]*)>\s*<parameter=([^>\n]*)>(.*)</parameter>\s*</function>\s*", re.DOTALL
)


def _read_xml(body: str) -> str | BadCall:
    found = _XML_CALL.fullmatch(body)
    if found is None:
        return BadCall("The call must hold one <function=…> with one <parameter=query> in it.")
    if found[1].strip() != TOOL_NAME:
        return BadCall(f"The function must be {TOOL_NAME}.")
    if found[2].strip() != "query" or re.search(r"</parameter>\s*<parameter=", found[3]):
        return BadCall('The function has the one parameter "query".')
    return _query(found[3])


# GLM 4.5 and 4.6 break lines between the parts, 4.7 does not.
_GLM_CALL = re.compile(
    r"\s*([\w.-]+)\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*)</arg_value>\s*", re.DOTALL
)


def _read_glm(body: str) -> str | BadCall:
    found = _GLM_CALL.fullmatch(body)
    if found is None:
        return BadCall("The call must hold a name, one <arg_key> and one <arg_value>.")
    if found[1] != TOOL_NAME:
        return BadCall(f"The function must be {TOOL_NAME}.")
    if found[2].strip() != "query" or re.search(r"</arg_value>\s*<arg_key>", found[3]):
        return BadCall('The function has the one argument "query".')
    return _query(found[3])


_KIMI_CALL = re.compile(r"\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>")


def _read_kimi(body: str) -> str | BadCall:
    head = _KIMI_CALL.match(body)
    if head is None or head[1] != TOOL_NAME:
        return BadCall(f"The call must begin with functions.{TOOL_NAME}:0 and its argument token.")
    return _query_of(_load(body[head.end() :]))


# Up to V3: a type, the separator, the name and a fenced object; from V3.1 on: name and object.
_DEEPSEEK_CALL = re.compile(
    r"\s*(?:function<｜tool▁sep｜>(?P<old>[\w.-]+)\s*```json(?P<fenced>.*)```"
    r"|(?P<new>[\w.-]+)\s*<｜tool▁sep｜>(?P<plain>.*))\s*",
    re.DOTALL,
)


def _read_deepseek(body: str) -> str | BadCall:
    found = _DEEPSEEK_CALL.fullmatch(body)
    if found is None or (found["old"] or found["new"]) != TOOL_NAME:
        return BadCall(f"The call must be {TOOL_NAME}, the separator token and its arguments.")
    return _query_of(_load(found["fenced"] if found["old"] else found["plain"]))


_FORMATS = (
    ToolFormat(
        "qwen3_coder",
        "<tool_call>",
        "</tool_call>",
        lambda query: (
            f"<tool_call>\n<function={TOOL_NAME}>\n<parameter=query>\n{query}\n</parameter>\n"
            "</function>\n</tool_call>"
        ),
        _read_xml,
        ("<function=", "<tool_call>"),
    ),
    ToolFormat(
        "glm",
        "<tool_call>",
        "</tool_call>",
        lambda query: (
            f"<tool_call>{TOOL_NAME}\n<arg_key>query</arg_key>\n<arg_value>{query}</arg_value>\n"
            "</tool_call>"
        ),
        _read_glm,
        ("<arg_key>", "<tool_call>"),
    ),
    ToolFormat(
        "kimi",
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        lambda query: (
            f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{TOOL_NAME}:0"
            f"<|tool_call_argument_begin|>{_arguments(query)}<|tool_call_end|>"
        ),
        _read_kimi,
        ("<|tool_call_begin|>",),
    ),
    ToolFormat(
        "deepseek",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        lambda query: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{TOOL_NAME}<｜tool▁sep｜>{_arguments(query)}"
            "<｜tool▁call▁end｜>"
        ),
        _read_deepseek,
        ("<｜tool▁call▁begin｜>",),
    ),
    ToolFormat(
        "llama",
        f"<function={TOOL_NAME}>",
        "</function>",
        lambda query: f"<function={TOOL_NAME}>{_arguments(query)}</function>",
        lambda body: _query_of(_load(body)),
        ("<|start_header_id|>",),
    ),
    # The shortest, for models that were taught no form at all.
    ToolFormat("plain", "<sql>", "</sql>", lambda query: f"<sql>\n{query}\n</sql>", _query),
    # Taught to the Hermes and Qwen families; the one to spell out to any other model.
    ToolFormat(
        "hermes",
        "<tool_call>",
        "</tool_call>",
        lambda query: f"<tool_call>\n{_named(query)}\n</tool_call>",
        _read_hermes,
    ),
)
TOOL_FORMATS = {form.name: form for form in _FORMATS}
HERMES = TOOL_FORMATS["hermes"]
assert set(TOOL_FORMATS) == set(get_args(ToolFormatName))

_CALLS = re.compile(
    "|".join(rf"{re.escape(form.open)}.*?(?:{re.escape(form.close)}|\Z)" for form in _FORMATS),
    re.DOTALL,
)


def tool_format_of(chat_template: str | None) -> ToolFormat:
    """The format that a model was taught, by the marks in its chat template; else hermes."""
    template = chat_template or ""
    matching = (f for f in _FORMATS if f.marks and all(mark in template for mark in f.marks))
    return next(matching, HERMES)


def without_calls(text: str) -> str:
    """The text without tool calls of any family; an open one takes the rest."""
    return _CALLS.sub("\n", text)
