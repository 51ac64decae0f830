"""CREATE TABLE text: the CHECKs it holds, and foreign keys cut out of it, by SQLite's tokens."""

from collections.abc import Collection
from dataclasses import dataclass

from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant

# A foreign key by its folded child columns and its folded parent table.
KeyName = tuple[tuple[str, ...], str]

_NAMES = ("name", "quoted", "double", "text")


@dataclass(frozen=True)
class _Clause:
    """A foreign key in the text: characters start to stop hold it, and the comma before it."""

    key: KeyName
    start: int
    stop: int


def checks(sql: str) -> tuple[str, ...]:
    """The conditions of all CHECKs in a CREATE TABLE, as written, without their parentheses."""
    tokens = significant(sql)
    found = []
    for i, token in enumerate(tokens):
        opened = i + 1
        if token.is_word("CHECK") and opened < len(tokens) and tokens[opened].text == "(":
            closed = _closing(tokens, opened)
            found.append(sql[tokens[opened].stop : tokens[closed].start].strip())
    return tuple(found)


def without_foreign_keys(sql: str, unwanted: Collection[KeyName]) -> str:
    """A CREATE TABLE without these foreign keys; the rest of the text stays as it is."""
    for clause in reversed(_foreign_keys(sql)):
        if clause.key in unwanted:
            sql = sql[: clause.start] + sql[clause.stop :]
    return sql


def _foreign_keys(sql: str) -> list[_Clause]:
    tokens = significant(sql)
    depth, column, begins = 0, "", False
    found: list[_Clause] = []
    for i, token in enumerate(tokens):
        if depth == 1 and begins and token.kind in _NAMES:
            column = fold(token.value)
        begins = depth == 1 and token.text == ","
        if token.text == "(":
            depth += 1
            begins = depth == 1
        elif token.text == ")":
            depth -= 1
        elif depth == 1 and token.is_word("REFERENCES") and i + 1 < len(tokens):
            found.append(_clause(tokens, i, column))
    return found


def _clause(tokens: list[Token], at: int, column: str) -> _Clause:
    """The foreign key whose REFERENCES is the token at an index."""
    first, columns = at, (column,)
    if tokens[at - 1].text == ")":  # FOREIGN KEY (a, b) REFERENCES …
        opened = max(i for i in range(at) if tokens[i].text == "(")
        columns = tuple(fold(t.value) for t in tokens[opened:at] if t.kind in _NAMES)
        first = opened - 2
    of_table = first != at
    if tokens[first - 2].is_word("CONSTRAINT"):
        first -= 2
    if of_table and tokens[first - 1].text == ",":
        first -= 1
    return _Clause(
        (columns, fold(tokens[at + 1].value)), tokens[first].start, tokens[_last(tokens, at)].stop
    )


def _last(tokens: list[Token], at: int) -> int:
    """Index of the last token of a foreign key clause."""
    last = at + 1
    if last + 1 < len(tokens) and tokens[last + 1].text == "(":
        last = _closing(tokens, last + 1)
    while last + 1 < len(tokens):
        following = tokens[last + 1 : last + 3]
        if following[0].is_word("ON"):
            # ON DELETE CASCADE, or two words: SET NULL, SET DEFAULT, NO ACTION.
            last += 4 if tokens[last + 3].is_word("SET", "NO") else 3
        elif following[0].is_word("MATCH", "INITIALLY"):
            last += 2
        elif following[0].is_word("DEFERRABLE"):
            last += 1
        elif following[0].is_word("NOT") and following[-1].is_word("DEFERRABLE"):
            last += 2
        else:
            break
    return last


def _closing(tokens: list[Token], opened: int) -> int:
    """Index of the parenthesis that closes the one at an index."""
    depth = 0
    for i in range(opened, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[i].text, 0)
        if depth == 0:
            return i
    return len(tokens) - 1
