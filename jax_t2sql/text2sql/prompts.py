"""What the model is asked, in three styles.

* tools: the whole protocol with a worked example, then schema, external knowledge, question;
* direct: schema, external knowledge, question; the answer is one SQL block, or a bare query;
* question: the question alone, for models trained from scratch on one world.
"""

from pathlib import Path

from jax_t2sql.text2sql.codec import Message, Style
from jax_t2sql.text2sql.problem import Problem
from jax_t2sql.text2sql.protocol import (
    CALL_CLOSE,
    CALL_OPEN,
    SOLUTION_CLOSE,
    SOLUTION_OPEN,
    TOOL_NAME,
)
from jax_t2sql.text2sql.schema_text import schema_text

# The block is asked for here and the question is a plain sentence: small models leave the block out
# where the question is the last comment of the SQL script, and invent columns under longer rules.
_DIRECT_SYSTEM = (
    "You are a helpful assistant. Answer with one SQLite query in a Markdown code block that starts"
    " with ```sql and ends with ```."
)
_DIRECT_QUESTION = "Using valid SQLite and the tables above, answer this question:"

_TOOLS_SYSTEM = f"""\
You answer a question about a SQLite database with one SQL query. You may look at the data first.

In each message do exactly one of two things:
1. Run a query with the tool {TOOL_NAME}:
{CALL_OPEN}
{{"name": "{TOOL_NAME}", "arguments": {{"query": "SELECT …"}}}}
{CALL_CLOSE}
You then get its result as a table. Long tables and long cells are cut, and the result says so.
2. Give the final query, whose result answers the question:
{SOLUTION_OPEN}
SELECT …
{SOLUTION_CLOSE}

Rules:
- You have at most {{max_turns}} tool turns. A message that cannot be read uses one.
- Never put a call and a solution, or two solutions, into one message.
- The database is read-only: one SELECT (or WITH … SELECT) statement each time.
- The solution must return the columns asked for and nothing else, in the order of the question.
- Look up how values are spelled before you compare with them.

Example. The schema has CREATE TABLE book (id INTEGER, title TEXT, language TEXT), and the question
is: How many books are in Dutch?
You send:
The language may be stored as a code, so I look at the values.
{CALL_OPEN}
{{"name": "{TOOL_NAME}", "arguments": {{"query": "SELECT DISTINCT language FROM book"}}}}
{CALL_CLOSE}
You receive:
<tool_response>
language
en
nl
(2 rows)
</tool_response>
Tool turns left: {{turns_left}}.
You send:
Dutch is stored as nl.
{SOLUTION_OPEN}
SELECT COUNT(*) FROM book WHERE language = 'nl'
{SOLUTION_CLOSE}"""


def build_messages(
    problem: Problem, schema: str | None, *, style: Style, max_turns: int = 5
) -> list[Message]:
    """The conversation that asks one question.

    Args:
      problem: the question.
      schema: text from `schema_text`; needed by tools and direct, ignored by question.
      style: how the model is to answer.
      max_turns: tool turns that the tools prompt promises.
    """
    if style == "question":
        return [{"role": "user", "content": problem.question}]
    if schema is None:
        raise ValueError(f"style {style!r} needs the schema: pass schema_text(database)")
    knowledge = [f"External knowledge: {problem.evidence}"] if problem.evidence.strip() else []
    if style == "tools":
        system = _tools_system(max_turns)
        schema, question = f"Database schema:\n{schema}", f"Question: {problem.question}"
    elif style == "direct":
        system = _DIRECT_SYSTEM
        question = f"{_DIRECT_QUESTION} {problem.question}"
    else:
        raise ValueError(f"style is {style!r}; it must be tools, direct or question")
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join([schema, *knowledge, question])},
    ]


def _tools_system(max_turns: int) -> str:
    text = _TOOLS_SYSTEM.replace("{max_turns}", str(max_turns))
    return text.replace("{turns_left}", str(max_turns - 1))


def prompt_schema(database: Path, *, style: Style) -> str | None:
    """The schema text that a style shows: values for tools, one row a table for direct."""
    if style == "question":
        return None
    if style == "direct":
        return schema_text(database, sample_values=0, sample_rows=1)
    return schema_text(database)
