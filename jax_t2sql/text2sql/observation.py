"""What the model is told after a turn: a result table, an error, or how to repeat a message."""

from collections.abc import Sequence

from jax_t2sql.sql import Outcome
from jax_t2sql.text2sql.protocol import SOLUTION_CLOSE, SOLUTION_OPEN
from jax_t2sql.text2sql.tool_formats import HERMES, ToolFormat
from jax_t2sql.text2sql.values import displayable, show_value

_MAX_MESSAGE_CHARS = 1000  # an error message may quote the query
_HOW_TO_ANSWER = f"{SOLUTION_OPEN}SELECT …{SOLUTION_CLOSE}"

_FAILURES = {
    "error": "The query failed",
    "timeout": "The query was stopped for running too long",
    "too_large": "The query was stopped for returning too much",
    "refused": "The query was refused",
    "no_query": "There was no query to run",
}


def describe_outcome(
    outcome: Outcome, *, turns_left: int, max_rows: int = 50, max_cell_chars: int = 200
) -> str:
    """The observation after a query: table or failure, warnings, turns left.

    Args:
      outcome: what the sandbox returned.
      turns_left: tool turns that remain.
      max_rows: rows shown of a longer table; the text says how many there were.
      max_cell_chars: characters shown of a longer cell; the cell says how many there were.
    """
    if outcome.status == "ok":
        lines = _table(outcome.columns, outcome.rows, max_rows, max_cell_chars)
    else:
        failure = _FAILURES.get(outcome.status, f"The query gave no result ({outcome.status})")
        message = _short(outcome.message)
        lines = [f"{failure}: {message}" if message else f"{failure}."]
    lines += [f"Warning: {_short(warning)}" for warning in outcome.warnings]
    return _respond(lines, turns_left)


def describe_fault(fault: str, *, turns_left: int, tools: ToolFormat = HERMES) -> str:
    """The observation after a message that was neither a call nor an answer."""
    how_to_call = tools.write("SELECT …").replace("\n", "")
    lines = [_short(fault), f"Nothing was run. Send {how_to_call} or {_HOW_TO_ANSWER}."]
    return _respond(lines, turns_left)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], max_rows: int, max_cell_chars: int
) -> list[str]:
    """Lines of a text table: header, rows, and a line that counts."""
    if not columns:
        return ["The query returned no table."]
    header = [displayable(name[:max_cell_chars]) for name in columns]
    lines = [" | ".join(header)]
    any_cut = False
    for row in rows[:max_rows]:
        cells = [show_value(value, max_chars=max_cell_chars) for value in row]
        any_cut = any_cut or any(cut for _, cut in cells)
        lines.append(" | ".join(text for text, _ in cells))
    count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    if len(rows) > max_rows:
        count += f"; only the first {max_rows} are shown"
    if any_cut:
        count += f"; cells are cut at {max_cell_chars} characters"
    return [*lines, f"({count})"]


def _short(message: str) -> str:
    text = displayable(message[:_MAX_MESSAGE_CHARS])
    return text if len(message) <= _MAX_MESSAGE_CHARS else text + "…"


def _respond(lines: Sequence[str], turns_left: int) -> str:
    # The tags are those that Hermes and Qwen models were taught tool results with.
    body = "\n".join(lines)
    left = (
        f"Tool turns left: {turns_left}."
        if turns_left
        else f"No tool turns left: answer now with {_HOW_TO_ANSWER}."
    )
    return f"<tool_response>\n{body}\n</tool_response>\n{left}"
