"""Reading a model's message: tool calls, solutions, SQL blocks and reasoning.

Tool calls have the form of the model's family (`tool_formats`), JSON between tags for most; a final
answer stands between solution tags:

    <tool_call>{"name": "execute_sql_query", "arguments": {"query": "SELECT 1"}}</tool_call>
    <solution>SELECT 1</solution>

What stands inside a reasoning block (<think>…</think>) never counts.
"""

import re
from dataclasses import dataclass

from jax_t2sql.text2sql.codec import Style
from jax_t2sql.text2sql.tool_formats import HERMES, BadCall, ToolFormat

SOLUTION_OPEN, SOLUTION_CLOSE = "<solution>", "</solution>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"

_THINK = re.compile(f"{THINK_OPEN}|{THINK_CLOSE}")
_SOLUTION = re.compile(f"{SOLUTION_OPEN}(.*?){SOLUTION_CLOSE}", re.DOTALL)
_FENCED = re.compile(r"```(.*?)```", re.DOTALL)
_FENCE_LINE = re.compile(r"[ \t]*(\w*)[ \t]*(?:\r?\n|\Z)")
_FENCE_WORD = re.compile(r"[ \t]*sql(?:ite)?\b", re.IGNORECASE)
_QUERY = re.compile(r"\s*(SELECT\b|WITH\s+(RECURSIVE\s+)?\S+\s+AS\s*\()", re.IGNORECASE)
_SQL_LANGUAGES = frozenset({"", "sql", "sqlite"})


@dataclass(frozen=True, slots=True)
class Call:
    """A well-formed request to run one query."""

    sql: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A final answer. The text may be empty or no SQL at all: that is for the grader to say."""

    sql: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """Neither a call nor an answer. `fault` is a sentence for the model; it may try again."""

    fault: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The message breaks the contract and ends the episode. `reason` is a fixed phrase."""

    reason: str


Parsed = Call | Answer | Malformed | Broken


def parse(
    text: str, style: Style, *, inside_reasoning: bool = False, tools: ToolFormat = HERMES
) -> Parsed:
    """Reads one complete message of the model.

    tools: one call or one solution; a solution may wrap its SQL in a code fence.
    direct: the last closed code fence marked sql, sqlite or nothing (models draft, then correct);
    a message without any fence that starts as a query does is taken whole.
    question: the last such fence if there is one, else the whole text; for models trained from
    scratch, which write bare SQL.

    Args:
      text: the message, special tokens at its end removed.
      style: the prompt style that the message answers.
      inside_reasoning: the prompt ended inside an open reasoning block.
      tools: how calls are written.
    """
    visible = without_reasoning(text, inside_reasoning=inside_reasoning)
    if style == "tools":
        return _parse_tools(text, visible, tools)
    sql = _last_fenced_sql(visible)
    bare = style == "question" or ("```" not in visible and _QUERY.match(visible))
    if sql is None and bare:
        sql = visible.strip()
    if not sql:
        return Broken("no SQL block" if style == "direct" else "empty answer")
    return Answer(sql)


def without_reasoning(text: str, *, inside_reasoning: bool = False) -> str:
    """Drops reasoning: closed blocks, an open block to the end, and what precedes a lone close.

    The lone close is what a template leaves that opens the block in its generation prompt.
    """
    if not inside_reasoning and THINK_OPEN not in text and THINK_CLOSE not in text:
        return text
    kept: list[str] = []
    inside, start = inside_reasoning, 0
    for tag in _THINK.finditer(text):
        if tag.group() == THINK_OPEN:
            if not inside:
                kept.append(text[start : tag.start()])
                inside = True
        else:
            if not inside:
                kept.clear()
            inside, start = False, tag.end()
    if not inside:
        kept.append(text[start:])
    return "".join(kept)


def _parse_tools(text: str, visible: str, tools: ToolFormat) -> Parsed:
    # Opening tags are counted, not closed pairs, so that half a tag cannot hide a second answer.
    calls, solutions = visible.count(tools.open), visible.count(SOLUTION_OPEN)
    if calls and solutions:
        return Broken("call and solution in one turn")
    if solutions > 1:
        return Broken("two solutions")
    if solutions:
        found = _SOLUTION.search(visible)
        if found is None:
            return Malformed(f"The solution has no {SOLUTION_CLOSE}.")
        fenced = _last_fenced_sql(found[1])
        return Answer(found[1].strip() if fenced is None else fenced)
    if calls > 1:
        return Malformed("There were several tool calls; only one is allowed in a message.")
    if calls:
        body, close, _ = visible.partition(tools.open)[2].partition(tools.close)
        query = tools.read(body) if close else BadCall(f"The call has no {tools.close}.")
        return Malformed(query.fault) if isinstance(query, BadCall) else Call(query)
    if tools.open in text or SOLUTION_OPEN in text:
        return Malformed("What stands inside the reasoning block does not count.")
    return Malformed("There was neither a tool call nor a solution.")


def _last_fenced_sql(text: str) -> str | None:
    """Contents of the last closed code fence that can be SQL; None without one."""
    if "```" not in text:
        return None
    sql = None
    for block in _FENCED.findall(text):
        line = _FENCE_LINE.match(block)
        if line:
            if line[1].lower() in _SQL_LANGUAGES:
                sql = block[line.end() :].strip()
        else:
            word = _FENCE_WORD.match(block)
            sql = block[word.end() if word else 0 :].strip()
    return sql
