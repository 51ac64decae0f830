"""Asking z3 whether a formula can hold, and reading the database off its answer."""

import time
from dataclasses import dataclass, field
from fractions import Fraction

import z3

from jax_t2sql.equivalence.symbolic.terms import Number, Term
from jax_t2sql.equivalence.symbolic.values import BLOB_HIGH, BLOB_LOW, TEXT_HIGH, TEXT_LOW

NAMES = 2**32  # as many names there are for texts, and for blobs
_WORK = 20_000_000  # of z3's units, about a second of a processor
_PATIENCE = 10
_MEGABYTES = 1_000  # of z3, for one question


@dataclass(frozen=True)
class Answer:
    """z3's answer.

    Attributes:
      kind: "no" (the formula cannot hold), "yes" or "unknown".
      reason: of "unknown".
      numbers, truths: of "yes": what the variables are, by name; texts and blobs by their names.
      texts: the keys of the texts and blobs that have names.
    """

    kind: str
    reason: str = ""
    numbers: dict[str, Number] = field(default_factory=dict)
    truths: dict[str, bool] = field(default_factory=dict)
    texts: dict[Number, Number] = field(default_factory=dict)


class Question:
    """Whether this or that can hold together with what always does."""

    def __init__(self, always: list[Term], deadline: float) -> None:
        """`deadline` is a time by `time.thread_time()`."""
        self._always, self._deadline = always, deadline

    def ask(self, *terms: Term) -> Answer:
        """Whether all of the terms can hold.

        Texts are named by their place among the texts of the formula: z3 is spared the long
        fractions that spell them. Order is all that matters of a text here.
        """
        if any(term.is_const and not term.value for term in terms):
            return Answer("no")
        formula = [*terms, *self._always]
        context = z3.Context()
        translation = _Translation(context, _text_names(formula))
        solver = z3.Solver(ctx=context)
        solver.set("max_memory", _MEGABYTES)
        for term in formula:
            solver.add(translation.term(term))
        left = self._deadline - time.thread_time()
        if left <= 0:
            return Answer("unknown", "building the formula took too long")
        # By z3's own measure of work; by the clock only as a last resort, for it also runs while
        # others have the processor.
        solver.set("rlimit", int(left * _WORK))
        solver.set("timeout", max(1, int(left * 1000 * _PATIENCE)))
        try:
            result = solver.check()
        except z3.Z3Exception as error:
            return Answer("unknown", f"z3 stopped: {error}")
        if result == z3.unsat:
            return Answer("no")
        if result != z3.sat:
            return Answer("unknown", f"z3 gave up ({solver.reason_unknown()})")
        return translation.answer(solver.model())


def _text_names(formula: list[Term]) -> dict[Number, int]:
    """The constants that are texts or blobs, in order, renamed to whole numbers."""
    found: set[Number] = set()
    seen: set[int] = set()
    stack = list(formula)
    while stack:
        term = stack.pop()
        if term.id in seen:
            continue
        seen.add(term.id)
        if term.op == "const" and term.numeric and term.value > TEXT_LOW:
            found.add(term.value)
        stack += operands(term)
    names: dict[Number, int] = {}
    for low in (TEXT_LOW, BLOB_LOW):
        inside = sorted(value for value in found if low < value < low + 1)
        names.update({value: low + i + 1 for i, value in enumerate(inside)})
    return names


def operands(term: Term) -> list[Term]:
    """The terms right below one."""
    if term.op == "sum":
        return [part for _, part in term.args[1:]]
    return [arg for arg in term.args if isinstance(arg, Term)]


class _Translation:
    """From our graph to z3's."""

    def __init__(self, context: z3.Context, names: dict[Number, int]) -> None:
        self._context = context
        self._names = names
        self._bool, self._real = z3.BoolSort(context), z3.RealSort(context)
        self._done: dict[int, z3.ExprRef] = {}
        self._functions: dict[tuple, z3.FuncDeclRef] = {}
        self._variables: dict[str, tuple[z3.ExprRef, bool]] = {}

    def term(self, root: Term) -> z3.ExprRef:
        """The term in z3. By hand instead of by recursion: graphs are deep."""
        done, stack = self._done, [root]
        while stack:
            term = stack[-1]
            if term.id in done:
                stack.pop()
                continue
            missing = [arg for arg in operands(term) if arg.id not in done]
            if missing:
                stack += missing
                continue
            done[term.id] = self._make(term)
            stack.pop()
        return done[root.id]

    def _make(self, term: Term) -> z3.ExprRef:
        done = self._done
        match term.op:
            case "const":
                if term.numeric:
                    return self._number(term.value)
                return z3.BoolVal(term.value, self._context)
            case "whole":
                made = z3.Int(term.args[0], self._context)
                self._variables[term.args[0]] = made, True
                return z3.ToReal(made)
            case "var":
                made = z3.Const(term.args[0], self._real if term.numeric else self._bool)
                self._variables[term.args[0]] = made, term.numeric
                return made
            case "not":
                return z3.Not(done[term.args[0].id])
            case "and":
                return z3.And(*(done[a.id] for a in term.args))
            case "or":
                return z3.Or(*(done[a.id] for a in term.args))
            case "ite":
                return z3.If(*(done[a.id] for a in term.args))
            case "eq":
                return done[term.args[0].id] == done[term.args[1].id]
            case "lt":
                return done[term.args[0].id] < done[term.args[1].id]
            case "within":
                inner, low, high = term.args
                if high in (TEXT_HIGH, BLOB_HIGH):
                    high += NAMES  # the texts' names take more room than the texts
                a = done[inner.id]
                return z3.And(self._number(low) <= a, a <= self._number(high))
            case "sum":
                parts = [self._number(term.args[0])] if term.args[0] else []
                for factor, part in term.args[1:]:
                    made = done[part.id]
                    parts.append(made if factor == 1 else self._number(factor) * made)
                return z3.Sum(*parts)
            case "uf":
                return self._apply(term)
        raise AssertionError(term.op)

    def _number(self, value: Number) -> z3.ExprRef:
        value = self._names.get(value, value)
        if isinstance(value, Fraction):
            return z3.Q(value.numerator, value.denominator, self._context)
        return z3.RealVal(value, self._context)

    def _apply(self, term: Term) -> z3.ExprRef:
        name, *args = term.args
        key = (name, term.numeric, *(a.numeric for a in args))
        if key not in self._functions:
            sorts = [self._real if a.numeric else self._bool for a in args]
            result = self._real if term.numeric else self._bool
            self._functions[key] = z3.Function(f"{name}/{len(args)}", *sorts, result)
        return self._functions[key](*(self._done[a.id] for a in args))

    def answer(self, model: z3.ModelRef) -> Answer:
        numbers: dict[str, Number] = {}
        truths: dict[str, bool] = {}
        for name, (made, numeric) in self._variables.items():
            value = model.eval(made, model_completion=True)
            if numeric:
                numbers[name] = value.as_fraction() if z3.is_real(value) else value.as_long()
            else:
                truths[name] = z3.is_true(value)
        return Answer("yes", "", numbers, truths, {new: old for old, new in self._names.items()})
