"""What the model is asked, in three styles.

* tools: the whole protocol, perhaps a worked example, then schema, external knowledge, question;
* direct: schema, external knowledge, question; the answer is one SQL block, or a bare query;
* question: the question alone, for models trained from scratch on one world.

`PromptOptions` adds evidence blocks, another dialect, the tool format of a model's family. The hint
that training may give a problem is a line of its own.
"""

from pathlib import Path

from jax_t2sql.sql import Outcome
from jax_t2sql.text2sql.codec import Message, Style
from jax_t2sql.text2sql.evidence import entry, evidence_pieces
from jax_t2sql.text2sql.observation import describe_outcome
from jax_t2sql.text2sql.problem import Problem
from jax_t2sql.text2sql.prompt_options import PLAIN, Dialect, Effort, PromptOptions
from jax_t2sql.text2sql.protocol import SOLUTION_CLOSE, SOLUTION_OPEN
from jax_t2sql.text2sql.schema_doc import SchemaDoc, read_doc
from jax_t2sql.text2sql.schema_text import print_schema
from jax_t2sql.text2sql.tool_formats import TOOL_NAME

_DIALECTS: dict[Dialect, str] = {"sqlite": "SQLite", "snowflake": "Snowflake"}

# The block is asked for here and the question is a plain sentence: small models leave the block out
# where the question is the last comment of the SQL script, and invent columns under longer rules.
_DIRECT_SYSTEM = (
    "You are a helpful assistant. Answer with one {dialect} query in a Markdown code block that"
    " starts with ```sql and ends with ```."
)
_DIRECT_QUESTION = "Using valid {dialect} and the tables above, answer this question:"

_TOOLS_SYSTEM = f"""\
You answer a question about a {{dialect}} database with one SQL query. You may look at the data
first.

In each message do exactly one of two things:
1. Run a query with the tool {TOOL_NAME}:
{{call}}
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
- Look up how values are spelled before you compare with them."""

_SNOWFLAKE_RULES = """\
- Name each table with its database and schema, as the schema below does.
- Names without double quotes are read as upper case: quote those with lower-case letters.
- Read fields of VARIANT columns as column:field::TYPE, and arrays with LATERAL FLATTEN."""

_EFFORTS: dict[Effort, str] = {
    "low": "Think briefly: a sentence or two before you act.",
    "medium": "Think step by step, and keep it short.",
    "high": "Think carefully, and check your reasoning before you act.",
}

_REQUIRED = entry("Requirement", "{number}", "{text of the piece}", "what it asks of the query")
_VERIFIED = entry("Verification", "{number}", "{text of the piece}", "how the query meets it")
_TOOLS_EVIDENCE = f"""\
The external knowledge has numbered pieces. For each piece write one line of either kind, with its
number and exactly its text in brackets, outside of calls, solutions and code:
- by your second message: {_REQUIRED}
- in the message with the solution, before it: {_VERIFIED}
If your first message has the solution, it needs the lines of both kinds."""
_DIRECT_EVIDENCE = f"""\
The external knowledge has numbered pieces. Before the code block write two lines for each piece,
with its number and exactly its text in brackets:
{_REQUIRED}
{_VERIFIED}"""

# The example's knowledge, and what its two lines say.
_EXAMPLE_PIECE = "long refers to pages > 500"
_EXAMPLE_QUERY = "SELECT DISTINCT language FROM book"


def build_messages(
    problem: Problem,
    schema: str | None,
    *,
    style: Style,
    max_turns: int = 5,
    options: PromptOptions = PLAIN,
) -> list[Message]:
    """The conversation that asks one question.

    Args:
      problem: the question.
      schema: text from `schema_text`; needed by tools and direct, ignored by question.
      style: how the model is to answer.
      max_turns: tool turns that the tools prompt promises.
      options: what else the prompt says.
    """
    if style == "question":
        return [{"role": "user", "content": "\n".join([problem.question, *_hint(problem)])}]
    if schema is None:
        raise ValueError(f"style {style!r} needs the schema: pass schema_text(database)")
    pieces = evidence_pieces(problem.evidence) if options.evidence == "structured" else ()
    if style == "tools":
        system = _tools_system(max_turns, options, structured=bool(pieces))
        schema, question = f"Database schema:\n{schema}", f"Question: {problem.question}"
    elif style == "direct":
        system = _direct_system(options, structured=bool(pieces))
        lead = _DIRECT_QUESTION.format(dialect=_DIALECTS[options.dialect])
        question = f"{lead} {problem.question}"
    else:
        raise ValueError(f"style is {style!r}; it must be tools, direct or question")
    knowledge = _knowledge(problem.evidence, pieces)
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join([schema, *knowledge, *_hint(problem), question])},
    ]


def _hint(problem: Problem) -> list[str]:
    return [f"Hint: {problem.hint}"] if problem.hint else []


def _knowledge(evidence: str, pieces: tuple[str, ...]) -> list[str]:
    if pieces:
        lines = [f"{number}. {piece}" for number, piece in enumerate(pieces, start=1)]
        return ["\n".join(["External knowledge:", *lines])]
    return [f"External knowledge: {evidence}"] if evidence.strip() else []


def _direct_system(options: PromptOptions, *, structured: bool) -> str:
    parts = [_DIRECT_SYSTEM.format(dialect=_DIALECTS[options.dialect])]
    if options.dialect == "snowflake":
        parts.append(f"Rules:\n{_SNOWFLAKE_RULES}")
    if structured:
        parts.append(_DIRECT_EVIDENCE)
    return "\n\n".join(parts + _effort(options))


def _tools_system(max_turns: int, options: PromptOptions, *, structured: bool) -> str:
    # The texts have braces of their own, so no str.format.
    rules = _TOOLS_SYSTEM.replace("{dialect}", _DIALECTS[options.dialect])
    rules = rules.replace("{call}", options.tools.write("SELECT …"))
    rules = rules.replace("{max_turns}", str(max_turns))
    if options.dialect == "snowflake":
        rules = f"{rules}\n{_SNOWFLAKE_RULES}"
    parts = [rules]
    if structured:
        parts.append(_TOOLS_EVIDENCE)
    parts += _effort(options)
    if options.worked_example:
        parts.append(_example(max_turns, options, structured=structured))
    return "\n\n".join(parts)


def _effort(options: PromptOptions) -> list[str]:
    effort = options.reasoning_effort
    return [] if effort is None else [f"Reasoning effort: {effort}. {_EFFORTS[effort]}"]


def _example(max_turns: int, options: PromptOptions, *, structured: bool) -> str:
    """One solved question, each message as the protocol wants it."""
    columns, kind, condition = "id INTEGER, title TEXT, language TEXT", "", ""
    required = verified = knowledge = ""
    if structured:
        columns, kind, condition = f"{columns}, pages INTEGER", "long ", " AND pages > 500"
        knowledge = f"\nExternal knowledge:\n1. {_EXAMPLE_PIECE}"
        required = entry("Requirement", 1, _EXAMPLE_PIECE, "only books of over 500 pages count.")
        verified = entry("Verification", 1, _EXAMPLE_PIECE, "the WHERE clause has pages > 500.")
    observation = describe_outcome(
        Outcome("ok", ("language",), [("en",), ("nl",)]), turns_left=max_turns - 1
    )
    return "\n".join(
        line
        for line in (
            f"Example. The schema has CREATE TABLE book ({columns}), and the question",
            f"is: How many {kind}books are in Dutch?{knowledge}",
            "You send:",
            "The language may be stored as a code, so I look at the values.",
            required,
            options.tools.write(_EXAMPLE_QUERY),
            "You receive:",
            observation,
            "You send:",
            "Dutch is stored as nl.",
            verified,
            SOLUTION_OPEN,
            f"SELECT COUNT(*) FROM book WHERE language = 'nl'{condition}",
            SOLUTION_CLOSE,
        )
        if line
    )


def prompt_doc(database: Path, *, style: Style) -> SchemaDoc | None:
    """What a style tells of a database.

    tools: descriptions, or values where there are none; direct: one row a table; question: nothing.
    """
    if style == "question":
        return None
    if style == "direct":
        return read_doc(database, sample_values=0, sample_rows=1, descriptions=False)
    return read_doc(database)


def prompt_schema(database: Path, *, style: Style) -> str | None:
    """`prompt_doc` as text, whole."""
    doc = prompt_doc(database, style=style)
    return None if doc is None else print_schema(doc)
