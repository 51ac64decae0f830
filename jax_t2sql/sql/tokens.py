"""SQLite's lexical rules: enough to tell statements, names, literals and comments apart.

A parser would refuse half of what models write and SQLite runs; these rules refuse nothing.
Source: https://www.sqlite.org/lang_expr.html, lang_comment.html and lang_keywords.html.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "space", "comment", "text", "double", "quoted", "number", "parameter", "name", "end",
    "operator", "broken",
]  # fmt: skip

_PATTERN = re.compile(
    r"""
    (?P<space>[\ \t\n\f\r\ufeff]+)
  | (?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<text>[xX]?'[^']*(?:''[^']*)*')
  | (?P<double>"[^"]*(?:""[^"]*)*")
  | (?P<quoted>`[^`]*(?:``[^`]*)*`|\[[^\]]*\])
  | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<parameter>\?[0-9]*|[:@$#][A-Za-z0-9_$\x80-\U0010ffff]+)
  | (?P<name>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
  | (?P<end>;)
  | (?P<operator>->>|->|\|\||<<|>>|<=|>=|<>|!=|==|[-+*/%&|~<>=(),.])
  | (?P<broken>['"`\[].*|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL text.

    Attributes:
      kind: "text" is a quoted string or blob literal, "double" stands between double quotes (a
        name, or a text where no such name exists), "quoted" is a name in backticks or brackets,
        "end" a semicolon, "broken" what SQLite does not read (an open quote takes the rest).
      text: exactly as written; the tokens' texts add up to the SQL.
      start: index of its first character.
    """

    kind: Kind
    text: str
    start: int

    @property
    def stop(self) -> int:
        """Index after its last character."""
        return self.start + len(self.text)

    @property
    def value(self) -> str:
        """The name or text without its quotes; other tokens as written."""
        if self.kind in ("double", "text", "quoted"):
            opened = self.text.find("'") if self.kind == "text" else 0
            quote = self.text[-1]
            return self.text[opened + 1 : -1].replace(quote * 2, quote)
        return self.text

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these bare words, given in capitals."""
        return self.kind == "name" and self.text.upper() in words


assert set(_PATTERN.groupindex) == set(get_args(Kind))


def tokenize(sql: str) -> list[Token]:
    """All tokens of a text, blanks and comments included. Never raises."""
    return [Token(m.lastgroup, m[0], m.start()) for m in _PATTERN.finditer(sql)]


def significant(sql: str) -> list[Token]:
    """The tokens that mean something: no blanks, no comments."""
    return [token for token in tokenize(sql) if token.kind not in ("space", "comment")]


# The same rules without the tokens, for texts of a megabyte: what parts statements, and what does
# not. Possessive, so that no text makes the search go back.
_BLANKS = " \t\n\f\r\ufeff"
_BLANK = r"(?:[\ \t\n\f\r\ufeff]|--[^\n]*|/\*.*?(?:\*/|\Z))"
_SOLID = r"""
    (?:
      [A-Za-z_\x80-\ufefe\uff00-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*+
    | [:@$\#][A-Za-z0-9_$\x80-\U0010ffff]++
    | 0[xX][0-9a-fA-F]+ | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
    | [^\ \t\n\f\r\ufeff;'"`\[/A-Za-z_\x80-\U0010ffff-]
    | -(?!-) | /(?!\*)
    | '[^']*+' | "[^"]*+" | `[^`]*+` | \[[^\]]*+\]
    | ['"`\[].*
    )
"""
_BETWEEN = re.compile(rf"(?:{_BLANK}|;)*+", re.VERBOSE | re.DOTALL)
_STATEMENT = re.compile(rf"{_SOLID}++(?:{_BLANK}*+{_SOLID}++)*+", re.VERBOSE | re.DOTALL)


def split_statement(sql: str) -> tuple[str, str]:
    """Splits SQL text into its first statement and whatever statements follow.

    Blanks, comments and semicolons around the first statement are dropped, so both are exact slices
    of the text; "" where there is none.

    >>> split_statement("SELECT 'a;b' -- c;d\\n;; ")
    ("SELECT 'a;b'", '')
    >>> split_statement("SELECT 1; SELECT 2;")
    ('SELECT 1', 'SELECT 2;')
    """
    if _is_bare(sql):
        return sql, ""
    statement = _STATEMENT.match(sql, _BETWEEN.match(sql).end())
    if not statement:
        return "", ""
    return statement[0], sql[_BETWEEN.match(sql, statement.end()).end() :].rstrip()


def _is_bare(sql: str) -> bool:
    """Whether nothing in a text can end a statement or stand around it: so with most."""
    if ";" in sql or "--" in sql or "/*" in sql:
        return False
    return bool(sql) and sql[0] not in _BLANKS and sql[-1] not in _BLANKS
