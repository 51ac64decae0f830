"""A schema from the CREATE TABLE statements of a text, however carelessly they were written.

Published schemas leave out semicolons and quotes, end lists with a comma, and keep descriptions in
comments; no database accepts half of them. This reader takes table and column names, types, keys
and the comment behind each column, and passes over what it does not understand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jax_t2sql.errors import UserError
from jax_t2sql.sql import Column, ForeignKey, Schema, Table
from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, tokenize
from jax_t2sql.text2sql.descriptions import decode_text
from jax_t2sql.text2sql.schema_doc import SchemaDoc, column_key
from jax_t2sql.text2sql.values import displayable

# Words that end a column's type.
_AFTER_TYPE = (
    "PRIMARY", "NOT", "NULL", "UNIQUE", "CHECK", "DEFAULT", "COLLATE", "REFERENCES", "GENERATED",
    "AS", "CONSTRAINT", "AUTOINCREMENT", "AUTO_INCREMENT", "COMMENT", "ON", "WITH", "MASKING",
)  # fmt: skip
# SQLite reports these in capitals, however they were declared.
_STANDARD_TYPES = frozenset({"ANY", "BLOB", "INT", "INTEGER", "REAL", "TEXT"})
# Words that begin an item which is no column, each with what must then follow it.
_TABLE_ITEMS = {
    "PRIMARY": ("KEY",), "FOREIGN": ("KEY",), "CONSTRAINT": None, "UNIQUE": ("(", "KEY", "INDEX"),
    "CHECK": ("(",), "KEY": ("(",), "INDEX": ("(",), "EXCLUDE": ("(", "USING"),
}  # fmt: skip


@dataclass
class _Item:
    """One entry of a table's list: its tokens, and the comment that ends its line."""

    tokens: list[Token]
    comment: str = ""


def read_ddl_file(path: str | Path) -> SchemaDoc:
    """`read_ddl` of a file in any encoding.

    Raises:
      UserError: the file cannot be read, or no table is in it.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; name a file of DDL") from None
    try:
        return read_ddl(decode_text(data))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def read_ddl(text: str) -> SchemaDoc:
    """The schema that a text of CREATE TABLE statements describes, comments as column comments.

    SQLite's own tables and repetitions of a table are left out.

    Raises:
      UserError: no table with a column is found.
    """
    tables: dict[str, Table] = {}
    comments: dict[tuple[str, str], str] = {}
    for name, items in _tables(text):
        if fold(name) in tables or fold(name).startswith("sqlite_"):
            continue
        table = _read_table(name, items, text)
        if not table.columns:
            continue
        tables[fold(name)] = table
        for item in items:
            column = _names_column(item)
            if column and item.comment:
                comments[column_key(name, item.tokens[0].value)] = item.comment
    if not tables:
        raise UserError("no CREATE TABLE statement with a column was found; give the DDL itself")
    named = tuple(replace(t, foreign_keys=_completed(t, tables)) for t in tables.values())
    return SchemaDoc(Schema(named), comments)


def _completed(table: Table, tables: Mapping[str, Table]) -> tuple[ForeignKey, ...]:
    """Keys that name no other column refer to the other table's primary key, if that fits."""
    keys = []
    for key in table.foreign_keys:
        other = tables.get(fold(key.other_table))
        if not key.other_columns and other and len(other.primary_key) == len(key.columns):
            key = replace(key, other_columns=other.primary_key)
        keys.append(key)
    return tuple(keys)


def _tables(text: str) -> Iterator[tuple[str, list[_Item]]]:
    """Yields (name, items) for each CREATE … TABLE … ( of the text."""
    tokens = [token for token in tokenize(text) if token.kind != "space"]
    at = 0
    while at < len(tokens):
        if not tokens[at].is_word("CREATE"):
            at += 1
            continue
        # OR REPLACE, TEMP, TRANSIENT and the like may stand between.
        word = next((i for i in range(at + 1, at + 6) if _is(tokens, i, "TABLE")), None)
        if word is None:
            at += 1
            continue
        start = word + 1
        if _is(tokens, start, "IF"):
            start += 3
        opened = next((i for i in range(start, len(tokens)) if tokens[i].text in ("(", ";")), None)
        if opened is None or tokens[opened].text == ";" or opened == start:
            at = start
            continue
        items, at = _items(tokens, opened + 1, text)
        yield _spelled(tokens[start:opened], text), items


def _is(tokens: Sequence[Token], index: int, word: str) -> bool:
    return index < len(tokens) and tokens[index].is_word(word)


def _spelled(tokens: Sequence[Token], text: str) -> str:
    """A name: without its quotes, or as it stands where it should have had some."""
    kinds = {token.kind for token in tokens}
    quoted = len(tokens) == 1 or (kinds <= {"double", "quoted", "name", "operator"} and
                                  all(t.text == "." for t in tokens[1::2]))  # fmt: skip
    if quoted:
        return "".join(token.value for token in tokens)
    return " ".join(text[tokens[0].start : tokens[-1].stop].split())


def _items(tokens: Sequence[Token], at: int, text: str) -> tuple[list[_Item], int]:
    """The entries of a list, and the index behind its closing bracket."""
    items, depth = [_Item([])], 0
    for index in range(at, len(tokens)):
        token = tokens[index]
        if token.kind == "comment":
            _attach(items, token, text)
        elif depth == 0 and token.text == ")":
            return [item for item in items if item.tokens], index + 1
        elif depth == 0 and token.text == ",":
            items.append(_Item([]))
        else:
            depth += (token.text == "(") - (token.text == ")")
            items[-1].tokens.append(token)
    return [item for item in items if item.tokens], len(tokens)


def _attach(items: Sequence[_Item], comment: Token, text: str) -> None:
    """Gives a comment to the entry that ends on its line; others tell of no column."""
    item = items[-1] if items[-1].tokens else items[-2] if len(items) > 1 else None
    if item and item.tokens and "\n" not in text[item.tokens[-1].stop : comment.start]:
        said = comment.text[2:].removesuffix("*/") if comment.text[:2] == "/*" else comment.text[2:]
        said = displayable(" ".join(said.split()))
        item.comment = f"{item.comment} {said}".strip()


def _names_column(item: _Item) -> bool:
    first = item.tokens[0]
    if first.kind not in ("name", "double", "quoted", "text"):
        return False
    if first.kind == "name" and first.text.upper() in _TABLE_ITEMS:
        follow = _TABLE_ITEMS[first.text.upper()]
        second = item.tokens[1].text.upper() if len(item.tokens) > 1 else ""
        return follow is not None and second not in follow
    return True


def _read_table(name: str, items: Sequence[_Item], text: str) -> Table:
    columns: list[Column] = []
    keys: list[str] = []
    foreign: list[ForeignKey] = []
    for item in items:
        local: tuple[str, ...] = ()
        if _names_column(item):
            column = _column(item.tokens, text)
            if any(fold(other.name) == fold(column.name) for other in columns):
                continue
            columns.append(column)
            local = (column.name,)
        # SQLite takes several constraints without a comma between them.
        keys = keys or _primary_key(item.tokens, text)
        foreign += _references(item.tokens, local, text)
    if not keys:
        keys = [c.name for c in columns if c.primary_key][:1]
    places = {fold(key): place for place, key in enumerate(keys, start=1)}
    known = {fold(column.name) for column in columns}
    return Table(
        name=name,
        columns=tuple(replace(c, primary_key=places.get(fold(c.name), 0)) for c in columns),
        foreign_keys=tuple(
            key for key in foreign if all(fold(column) in known for column in key.columns)
        ),
    )


def _column(tokens: Sequence[Token], text: str) -> Column:
    ends = (i for i, t in enumerate(tokens) if i and t.is_word(*_AFTER_TYPE))
    end = next(ends, len(tokens))
    words = [t.text.upper() for t in tokens[end:]]
    pairs = list(zip(words, words[1:], [*words[2:], ""], strict=False))
    declared = " ".join(text[tokens[1].start : tokens[end - 1].stop].split()) if end > 1 else ""
    return Column(
        name=tokens[0].value,
        type=declared.upper() if declared.upper() in _STANDARD_TYPES else declared,
        not_null=any(pair[:2] == ("NOT", "NULL") for pair in pairs),
        primary_key=int(any(p[:2] == ("PRIMARY", "KEY") and p[2] != "(" for p in pairs)),
    )


def _primary_key(tokens: Sequence[Token], text: str) -> list[str]:
    """Names in the brackets after PRIMARY KEY."""
    for index, token in enumerate(tokens):
        if token.is_word("PRIMARY") and _is(tokens, index + 1, "KEY"):
            return _bracketed(tokens, index + 2, text)
    return []


def _bracketed(tokens: Sequence[Token], at: int, text: str) -> list[str]:
    """Names between brackets that open here (an index's own name may come before), else none."""
    opened = next((i for i in range(at, min(at + 2, len(tokens))) if tokens[i].text == "("), None)
    if opened is None:
        return []
    names, part = [], []
    for token in tokens[opened + 1 :]:
        if token.text in (",", ")"):
            if part:
                names.append(_spelled(part, text))
            part = []
            if token.text == ")":
                break
        elif not token.is_word("ASC", "DESC"):
            part.append(token)
    return names


def _references(tokens: Sequence[Token], local: tuple[str, ...], text: str) -> list[ForeignKey]:
    """The foreign keys that an entry declares.

    Args:
      tokens: of the entry.
      local: the column that it defines; REFERENCES before any FOREIGN KEY speaks of it.
    """
    found = []
    for index, token in enumerate(tokens):
        if token.is_word("FOREIGN") and _is(tokens, index + 1, "KEY"):
            local = tuple(_bracketed(tokens, index + 2, text))
        if not token.is_word("REFERENCES") or index + 1 == len(tokens) or not local:
            continue
        rest = tokens[index + 1 :]
        ends = (
            i
            for i, t in enumerate(rest)
            if i and (t.text == "(" or t.is_word("ON", "MATCH", "DEFERRABLE", "NOT", "FOREIGN"))
        )
        end = next(ends, len(rest))
        other = tuple(_bracketed(rest, end, text))
        if len(other) in (0, len(local)):
            found.append(ForeignKey(local, _spelled(rest[:end], text), other))
    return found
