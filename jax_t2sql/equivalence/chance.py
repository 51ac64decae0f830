"""Queries rewritten so that what SQLite is free to choose is chosen at random.

Each ORDER BY gets a random last key, each LIMIT without ORDER BY a random order; 'now', and the
moment that a date function is not given, become an instant that is handed in. Rewriting works on
tokens and changes nothing else. The random key is the function `any_order()`, which the database
must know.
"""

from dataclasses import dataclass

from jax_t2sql.sql.tokens import Token, significant

SHUFFLE = "any_order"
_CLOCK_WORDS = {"CURRENT_DATE": 10, "CURRENT_TIME": -8, "CURRENT_TIMESTAMP": 19}
_MOMENTS = ("DATE", "TIME", "DATETIME", "JULIANDAY", "UNIXEPOCH")  # of now, without arguments


@dataclass
class _Level:
    """What stands between two parentheses (or outside all), if it is a query."""

    first: Token
    order: Token | None = None
    limit: Token | None = None
    compound: bool = False


def shuffled(statement: str, *, ordered: bool, compounds: bool = True) -> str:
    """The query with random choices.

    Args:
      ordered: whether the order of the result's rows counts; then a query without ORDER BY gives
        them in random order.
      compounds: whether UNION and the like get random choices too; a recursive one cannot.
    """
    tokens = significant(statement)
    edits: list[tuple[int, str]] = []
    for level, end in _levels(tokens):
        if compounds or not level.compound:
            _shuffle(level, end, edits)
    if ordered and not _top_is_ordered(tokens):
        edits += [(0, "SELECT * FROM ("), (len(statement), f") ORDER BY {SHUFFLE}()")]
    # Of edits at one place the later ones come to stand first.
    for place, text in sorted(edits, key=lambda edit: -edit[0]):
        statement = statement[:place] + text + statement[place:]
    return statement


def _levels(tokens: list[Token]) -> list[tuple[_Level, int]]:
    """All queries in the text with the places where they end; inner ones first."""
    found: list[tuple[_Level, int]] = []
    stack: list[_Level | None] = []
    if tokens:
        stack.append(_level(tokens[0]))
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.text == "(" and token.kind == "operator":
            stack.append(_level(following) if following else None)
        elif token.text == ")" and token.kind == "operator":
            level = stack.pop() if len(stack) > 1 else None
            if level:
                found.append((level, token.start))
        elif stack[-1]:
            if token.is_word("ORDER") and following and following.is_word("BY"):
                stack[-1].order = token
            elif token.is_word("LIMIT"):
                stack[-1].limit = token
            elif token.is_word("UNION", "INTERSECT", "EXCEPT"):
                stack[-1].compound = True
    if stack and stack[0]:
        found.append((stack[0], tokens[-1].stop))
    return found


def _level(first: Token) -> _Level | None:
    return _Level(first) if first.is_word("SELECT", "WITH", "VALUES") else None


def _shuffle(level: _Level, end: int, edits: list[tuple[int, str]]) -> None:
    limit, order = level.limit, level.order
    if limit is None and order is None:
        return
    stop = limit.start if limit else end
    begin = order.start if order else stop
    edits.append((stop, f", {SHUFFLE}() " if order else f" ORDER BY {SHUFFLE}() "))
    if level.compound:  # its ORDER BY knows nothing but result columns
        edits += [(level.first.start, "SELECT * FROM ("), (begin, ") ")]


def _top_is_ordered(tokens: list[Token]) -> bool:
    levels = _levels(tokens)
    return bool(levels) and levels[-1][0].order is not None


def has_clock(statement: str) -> bool:
    """Whether the answer depends on the time of asking."""
    return bool(_clocks(statement))


def at_instant(statement: str, instant: str) -> str:
    """The query as if asked at an instant, "YYYY-MM-DD HH:MM:SS"."""
    for start, stop, part, before in reversed(_clocks(statement)):
        text = instant[:part] if part > 0 else instant[part:]
        statement = f"{statement[:start]}{before}'{text}'{statement[stop:]}"
    return statement


def _clocks(statement: str) -> list[tuple[int, int, int, str]]:
    """Where an instant belongs: start, stop, its first (or last) so many characters, and what must
    stand before it."""
    tokens = significant(statement)
    found = []
    for i, token in enumerate(tokens):
        texts = [t.text for t in tokens[i : i + 4]]
        if token.kind == "text" and token.value.lower() == "now":
            found.append((token.start, token.stop, 19, ""))
        elif token.kind == "name" and token.text.upper() in _CLOCK_WORDS:
            found.append((token.start, token.stop, _CLOCK_WORDS[token.text.upper()], ""))
        elif token.is_word(*_MOMENTS) and texts[1:3] == ["(", ")"]:
            found.append((tokens[i + 2].start, tokens[i + 2].start, 19, ""))
        elif token.is_word("STRFTIME") and texts[1:2] == ["("] and texts[3:] == [")"]:
            found.append((tokens[i + 3].start, tokens[i + 3].start, 19, ", "))
    return found
