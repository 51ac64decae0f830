"""Whether a query uses the external knowledge: are the columns and values that it names in there?

A model can write perfect blocks about knowledge and then ignore it, or use it without a word. So
beside `evidence.check_evidence`, which looks at what is said, this looks at the SQL. An estimate:
knowledge is prose, and there are right queries that need none of its words.
"""

import re
from dataclasses import dataclass

from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import Token, significant
from jax_t2sql.text2sql.evidence import evidence_pieces

_DEFINES = re.compile(r"\brefers?\s+to\b", re.IGNORECASE)
_COMPARISONS = ("=", "==", "<>", "!=", "<", ">", "<=", ">=")
_COMPARING_WORDS = ("LIKE", "BETWEEN")
_NO_COLUMN = frozenset(
    "and or not null like between in is as desc asc distinct select from where group by order"
    " having limit join on case when then else end cast real integer text date sum count avg min"
    " max divide subtract multiply add percentage ratio strftime substr".split()
)


@dataclass(frozen=True, slots=True)
class EvidenceUse:
    """How many columns and values a question's knowledge names, and how many the query holds."""

    named: int
    found: int

    @property
    def share(self) -> float | None:
        """Found among named; None where nothing is named."""
        return self.found / self.named if self.named else None


def evidence_use(evidence: str, sql: str, *, known: str = "") -> EvidenceUse:
    """Looks for what the knowledge names in a query.

    Args:
      evidence: pieces separated by `;`.
      sql: the query.
      known: SQL whose names are names in the knowledge too (the gold query's), which words alone
        do not show: "price" may be prose or a column.

    >>> evidence_use("cheap refers to unit_price < 5", "SELECT a FROM t WHERE unit_price < 5")
    EvidenceUse(named=2, found=2)
    """
    columns, values = named_in(evidence, known=known)
    tokens = significant(sql)
    names = {fold(token.value) for token in tokens if token.kind in ("name", "double", "quoted")}
    held = {_level(token.value) for token in tokens if token.kind in ("text", "double", "number")}
    return EvidenceUse(len(columns) + len(values), len(columns & names) + len(values & held))


def named_in(evidence: str, *, known: str = "") -> tuple[frozenset[str], frozenset[str]]:
    """Columns and values that knowledge names, levelled in case, values in blanks too.

    Of a piece only what follows "refers to" is looked at, where it says so: before it stands the
    question's own wording.

    >>> [sorted(names) for names in named_in("Bonn's Dutch refers to lang.Code = 'nl'; 'x' is y")]
    [['code'], ['nl', 'x']]
    """
    known_names = {
        fold(t.value) for t in significant(known) if t.kind in ("name", "double", "quoted")
    }
    columns: set[str] = set()
    values: set[str] = set()
    for piece in evidence_pieces(evidence):
        meaning = _DEFINES.split(piece, maxsplit=1)[-1]
        tokens = significant(meaning)
        for i, token in enumerate(tokens):
            if token.kind in ("text", "number"):
                values.add(_level(token.value))
            elif token.kind == "quoted" or _is_column(tokens, i, known_names):
                columns.add(fold(token.value))
    return frozenset(columns), frozenset(values - {""})


def _is_column(tokens: list[Token], i: int, known: set[str]) -> bool:
    token = tokens[i]
    if token.kind != "name" or token.text.lower() in _NO_COLUMN:
        return False
    previous = tokens[i - 1] if i else None
    following = tokens[i + 1] if i + 1 < len(tokens) else None
    if following is not None and following.text in ("(", "."):  # a function's name, or a table's
        return False
    if "_" in token.text or re.search(r"[a-z][A-Z]", token.text) or fold(token.text) in known:
        return True
    is_compared = following is not None and (
        following.text in _COMPARISONS or following.is_word(*_COMPARING_WORDS)
    )
    is_qualified = previous is not None and previous.text == "."
    # "=" also defines: `ratio = a / b`. Such a word begins the piece.
    return is_qualified or (is_compared and i > 0) or (is_compared and _compares_value(tokens, i))


def _compares_value(tokens: list[Token], i: int) -> bool:
    return i + 2 < len(tokens) and tokens[i + 2].kind in ("text", "number", "double")


def _level(value: str) -> str:
    return " ".join(value.lower().split())
