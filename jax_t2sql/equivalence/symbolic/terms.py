"""Formulas as a shared graph, simplified while they are built.

Two sorts: truth values and rational numbers. Equal terms are one object, so a condition that both
queries state is recognised without a solver, and a term whose inputs are constants is a constant.
Numbers carry bounds where these are known (a count of four rows lies from 0 to 4), which settles
many comparisons at once.
"""

from collections.abc import Iterable
from fractions import Fraction

Number = int | Fraction
Bounds = tuple[Number | None, Number | None]

_FREE: Bounds = (None, None)


class Term:
    """A node of the graph. Made by `Terms` alone; compared by identity.

    Attributes:
      op: "const" | "var" | "whole" (a variable that is a whole number) | "not" | "and" | "or" |
        "ite" | "eq" | "lt" | "within" | "sum" | "uf".
      args: terms, except const: (value,); var and whole: (name,); within: (term, low, high);
        sum: (constant, (coefficient, term)…); uf: (name, term…).
      numeric: whether it is a number.
      id: the order of creation, which sorts operands.
      bounds: numbers only: least and greatest possible value, None where there is none.
    """

    __slots__ = ("op", "args", "numeric", "id", "bounds")

    def __init__(self, op: str, args: tuple, numeric: bool, id: int, bounds: Bounds) -> None:
        self.op, self.args, self.numeric, self.id, self.bounds = op, args, numeric, id, bounds

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    @property
    def value(self):
        """A constant's value."""
        return self.args[0]

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.args))
        return inside if self.op in ("const", "var", "whole") else f"{self.op}({inside})"


class TooLarge(Exception):
    """The formula has outgrown its allowance."""


class Terms:
    """Builder of one graph; `limit` bounds the number of its nodes (then: TooLarge).

    Attributes:
      functions: names of the uninterpreted functions in it.
    """

    def __init__(self, *, limit: int = 400_000) -> None:
        self._limit = limit
        self._table: dict[tuple, Term] = {}
        self.functions: set[str] = set()
        self.true = self._make("const", (True,), False, _FREE)
        self.false = self._make("const", (False,), False, _FREE)
        self.zero = self.number(0)
        self.one = self.number(1)

    def _make(self, op: str, args: tuple, numeric: bool, bounds: Bounds = _FREE) -> Term:
        # Python holds 0 == False: the sort is part of the key.
        key = (op, numeric, *args)
        term = self._table.get(key)
        if term is None:
            if len(self._table) >= self._limit:
                raise TooLarge
            term = self._table[key] = Term(op, args, numeric, len(self._table), bounds)
        return term

    def truth(self, value: bool) -> Term:
        return self.true if value else self.false

    def number(self, value: Number) -> Term:
        if isinstance(value, Fraction) and value.denominator == 1:
            value = int(value)
        return self._make("const", (value,), True, (value, value))

    def var(self, name: str, *, numeric: bool, bounds: Bounds = _FREE, whole: bool = False) -> Term:
        """An unknown; `whole` where it is a whole number."""
        return self._make("whole" if whole else "var", (name,), numeric, bounds)

    def narrowed(self, a: Term, bounds: Bounds) -> Term:
        """The same number, which is known to lie within these bounds too wherever it counts."""
        (low, high), (least, most) = a.bounds, bounds
        low = least if low is None or (least is not None and least > low) else low
        high = most if high is None or (most is not None and most < high) else high
        a.bounds = (low, high)
        return a

    def uf(self, name: str, args: Iterable[Term], *, numeric: bool, bounds: Bounds = _FREE) -> Term:
        """An uninterpreted function: nothing is known of it but that equals give equals."""
        self.functions.add(name)
        return self._make("uf", (name, *args), numeric, bounds)

    def not_(self, a: Term) -> Term:
        if a.op == "const":
            return self.false if a.value else self.true
        if a.op == "not":
            return a.args[0]
        return self._make("not", (a,), False)

    def and_(self, *terms: Term) -> Term:
        return self._gather("and", terms, self.true, self.false)

    def or_(self, *terms: Term) -> Term:
        return self._gather("or", terms, self.false, self.true)

    def _gather(self, op: str, terms: Iterable[Term], unit: Term, zero: Term) -> Term:
        found: dict[Term, None] = {}
        for term in terms:
            if term is unit:
                continue
            if term is zero:
                return zero
            if term.op == op:
                found.update(dict.fromkeys(term.args))
            else:
                found[term] = None
        if not found:
            return unit
        if len(found) == 1:
            return next(iter(found))
        for term in found:
            if term.op == "not" and term.args[0] in found:
                return zero
        return self._make(op, tuple(sorted(found, key=_by_id)), False)

    def implies(self, a: Term, b: Term) -> Term:
        return self.or_(self.not_(a), b)

    def ite(self, test: Term, a: Term, b: Term) -> Term:
        if test.op == "const":
            return a if test.value else b
        if a is b:
            return a
        if not a.numeric:
            return self.or_(self.and_(test, a), self.and_(self.not_(test), b))
        if test.op == "not":
            test, a, b = test.args[0], b, a
        return self._make("ite", (test, a, b), True, _hull(a.bounds, b.bounds))

    def eq(self, a: Term, b: Term) -> Term:
        if not a.numeric:
            both, neither = self.and_(a, b), self.and_(self.not_(a), self.not_(b))
            return self.or_(both, neither)
        if a is b:
            return self.true
        if _below(a.bounds, b.bounds) or _below(b.bounds, a.bounds):
            return self.false
        if a.is_const and b.is_const:
            return self.truth(a.value == b.value)
        if a.is_const:
            a, b = b, a
        if b.is_const and a.op == "ite":
            test, yes, no = a.args
            return self.ite(test, self.eq(yes, b), self.eq(no, b))
        return self._make("eq", (a, b) if a.id < b.id else (b, a), False)

    def lt(self, a: Term, b: Term) -> Term:
        if a is b:
            return self.false
        (low_a, high_a), (low_b, high_b) = a.bounds, b.bounds
        if high_a is not None and low_b is not None and high_a < low_b:
            return self.true
        if low_a is not None and high_b is not None and low_a >= high_b:
            return self.false
        if (a.op == "ite" and b.is_const) or (b.op == "ite" and a.is_const):
            test, yes, no = (a if b.is_const else b).args
            if b.is_const:
                return self.ite(test, self.lt(yes, b), self.lt(no, b))
            return self.ite(test, self.lt(a, yes), self.lt(a, no))
        return self._make("lt", (a, b), False)

    def within(self, a: Term, low: Number, high: Number) -> Term:
        """That a number lies from `low` to `high`, asked even where the bounds say so already."""
        return self._make("within", (a, low, high), False)

    def le(self, a: Term, b: Term) -> Term:
        return self.not_(self.lt(b, a))

    def add(self, *terms: Term) -> Term:
        return self.linear([(1, term) for term in terms])

    def linear(self, parts: Iterable[tuple[Number, Term]]) -> Term:
        """The sum of coefficient times term."""
        constant: Number = 0
        by_term: dict[Term, Number] = {}
        for factor, term in parts:
            if term.op == "const":
                constant += factor * term.value
            elif term.op == "sum":
                constant += factor * term.args[0]
                for inner, part in term.args[1:]:
                    by_term[part] = by_term.get(part, 0) + factor * inner
            else:
                by_term[term] = by_term.get(term, 0) + factor
        items = sorted(
            ((factor, term) for term, factor in by_term.items() if factor),
            key=lambda item: item[1].id,
        )
        if not items:
            return self.number(constant)
        if not constant and len(items) == 1 and items[0][0] == 1:
            return items[0][1]
        bounds = _sum_bounds(constant, items)
        return self._make("sum", (constant, *items), True, bounds)

    def count(self, conditions: Iterable[Term]) -> Term:
        """How many of the conditions hold."""
        return self.add(*(self.ite(c, self.one, self.zero) for c in conditions))

    def at_most_before(self, conditions: list[Term]) -> list[Term]:
        """For each condition, whether no earlier one holds."""
        result, seen = [], self.false
        for condition in conditions:
            result.append(self.not_(seen))
            seen = self.or_(seen, condition)
        return result


def _by_id(term: Term) -> int:
    return term.id


def _below(a: Bounds, b: Bounds) -> bool:
    return a[1] is not None and b[0] is not None and a[1] < b[0]


def _hull(a: Bounds, b: Bounds) -> Bounds:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def _sum_bounds(constant: Number, items: list[tuple[Number, Term]]) -> Bounds:
    low: Number | None = constant
    high: Number | None = constant
    for factor, term in items:
        least, most = term.bounds if factor > 0 else term.bounds[::-1]
        low = None if low is None or least is None else low + factor * least
        high = None if high is None or most is None else high + factor * most
    return low, high
