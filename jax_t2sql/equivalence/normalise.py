"""Are two queries one query written in two ways?

Both are read with all names resolved and brought to a normal form by steps that hold for every
database, in SQLite's own arithmetic, three-valued logic, affinities and collations. What is not
read that way is compared word by word.
"""

import sqlite3
from dataclasses import fields, is_dataclass, replace

from jax_t2sql.equivalence.catalog import Catalog
from jax_t2sql.equivalence.symbolic import ir
from jax_t2sql.equivalence.symbolic.comparing import collation_of
from jax_t2sql.equivalence.symbolic.confirming import confirm, plainly_joined, program
from jax_t2sql.equivalence.symbolic.errors import Unsupported
from jax_t2sql.equivalence.symbolic.printing import print_expr, print_query
from jax_t2sql.equivalence.symbolic.reading import read
from jax_t2sql.equivalence.symbolic.relations import bare_columns
from jax_t2sql.equivalence.symbolic.walking import has_aggregate, rebuilt
from jax_t2sql.sql.modes import Mode, parse_mode
from jax_t2sql.sql.schema import fold
from jax_t2sql.sql.tokens import significant, split_statement

_FLIPPED = {"=": "=", "<>": "<>", "IS": "IS", "IS NOT": "IS NOT", ">": "<", ">=": "<="}


def twins(gold: str, pred: str, catalog: Catalog, mode: Mode | str | None) -> bool:
    """Whether two queries are the same but for how they are written; False decides nothing.

    Layout, case, comments, quotes and aliases do not count, nor whatever else leaves the program
    that SQLite compiles as it is. Further, where the answer is not left to
    chance: the order of AND, OR, IN lists, sums and products; which side of a comparison stands
    left; BETWEEN; ON or WHERE for inner joins, and their order; WITH or a subquery in FROM; and, as
    far as the grading mode does not look at them, ORDER BY without LIMIT and DISTINCT.
    """
    if not isinstance(mode, Mode):
        mode = parse_mode(mode)
    if mode.kind == "subset":  # not even a query itself need pass
        return False
    if _words(gold) == _words(pred) or _same_program(gold, pred, catalog):
        return True
    try:
        queries = []
        for sql in (gold, pred):
            query = read(sql, catalog)
            confirm(sql, query, catalog)
            queries.append(query)
    except (Unsupported, RecursionError):
        return False
    forms = [rebuilt(plainly_joined(query), _nameless) for query in queries]
    # Another order of work may give another of the answers that SQLite is free to give, and adds
    # REALs in another order, which the mode "bird" sees.
    if mode.kind in ("list", "bird") or any(map(_left_to_chance, queries)):
        return False
    ordered = [rebuilt(_of_mode(form, mode), _canonical) for form in forms]
    return ordered[0] == ordered[1]


def _same_program(gold: str, pred: str, catalog: Catalog) -> bool:
    """Whether SQLite compiles the two to one program, which then gives one answer.

    Not asked where a number has more digits than SQLite shows of it.
    """
    statements = [split_statement(sql)[0] for sql in (gold, pred)]
    if any(len(t.text) > 15 for s in statements for t in significant(s) if t.kind == "number"):
        return False
    try:
        first, second = (program(statement, catalog) for statement in statements)
    except sqlite3.Error:
        return False
    return first == second


def _words(sql: str) -> list[tuple[str, str]]:
    """The tokens; names and key words without regard to case."""
    statement, _ = split_statement(sql)
    return [
        (token.kind, fold(token.text) if token.kind == "name" else token.text)
        for token in significant(statement)
    ]


def _nameless(node):
    """A node without the names of result columns, sources and common tables."""
    match node:
        case ir.Output():
            return replace(node, name="")
        case ir.Column() if not node.of_table:
            return replace(node, name="")
        case ir.Source():
            return replace(node, cte=None)
        case ir.Select() | ir.Compound():
            return replace(node, ctes=())
    return node


def _left_to_chance(node) -> bool:
    """Whether a query, or one inside it, has a LIMIT, columns beside aggregates, or takes one of
    several texts that a collation calls equal."""
    if isinstance(node, tuple):
        return any(map(_left_to_chance, node))
    if not is_dataclass(node):
        return False
    if _merges_texts(node):
        return True
    if isinstance(node, ir.Select | ir.Compound) and node.limit is not None:
        return True
    if isinstance(node, ir.Select):
        shown = [*node.items, *(sort.key for sort in node.order)]
        shown += [node.having] if node.having is not None else []
        if (node.group or any(map(has_aggregate, shown))) and bare_columns(node, shown):
            return True
    return any(_left_to_chance(getattr(node, f.name)) for f in fields(node))


def _merges_texts(node) -> bool:
    """Whether a node makes one of texts that differ, by a collation other than BINARY."""
    match node:
        case ir.Select():
            shown = [output.collation for output in node.outputs] if node.distinct else []
            merged = shown + [collation_of(key)[0] for key in node.group]
        case ir.Compound():
            merged = [output.collation for output in node.outputs] if node.op != "UNION ALL" else []
        case ir.Aggregate(name="min" | "max", operand=operand):
            merged = [collation_of(operand)[0]]
        case _:
            return False
    return any((collation or "BINARY") != "BINARY" for collation in merged)


def _of_mode(query: ir.Query, mode: Mode) -> ir.Query:
    """The query without what the mode does not look at."""
    query = replace(query, order=())
    if mode.kind == "set" and isinstance(query, ir.Select):
        query = replace(query, distinct=False)
    return query


def _canonical(node):
    """The normal form of a node whose parts have theirs."""
    match node:
        case ir.Between():
            return _connected("AND", [
                _compared(ir.Compare(">=", node.operand, node.low)),
                _compared(ir.Compare("<=", node.operand, node.high)),
            ])  # fmt: skip
        case ir.Compare():
            return _compared(node)
        case ir.Connect():
            return _connected(node.op, [node.left, node.right])
        case ir.Not(operand=ir.IsNull() as test):
            return ir.IsNull(test.operand, not test.negated)
        case ir.Not(operand=ir.Not() as inner) if isinstance(
            inner.operand, ir.Compare | ir.Connect | ir.IsNull
        ):
            return inner.operand
        case ir.Arithmetic(op="+" | "*"):
            left, right = sorted((node.left, node.right), key=print_expr)
            return ir.Arithmetic(node.op, left, right)
        case ir.InList():
            items = {print_expr(item): item for item in node.items}
            return ir.InList(node.operand, tuple(items[text] for text in sorted(items)))
        case ir.Aggregate(name="count", operand=ir.Constant(), distinct=False):
            if node.operand.value is not None:
                return replace(node, operand=None)
        case ir.Select():
            return _joined(node)
    return node


def _compared(node: ir.Compare) -> ir.Expr:
    """With the smaller text on the left, unless the two sides bring different collations."""
    if node.op not in _FLIPPED and node.op not in ("<", "<="):
        return node
    left, right = collation_of(node.left), collation_of(node.right)
    if {left[0] or "BINARY", right[0] or "BINARY"} != {"BINARY"}:
        return node
    if node.op in (">", ">="):
        return ir.Compare(_FLIPPED[node.op], node.right, node.left)
    if node.op in ("<", "<="):
        return node
    return ir.Compare(node.op, *sorted((node.left, node.right), key=print_expr))


def _connected(op: str, sides: list[ir.Expr]) -> ir.Expr:
    """A chain of one connective, without repetitions, in the order of its parts' texts."""
    parts: dict[str, ir.Expr] = {}
    stack = sides[::-1]
    while stack:
        part = stack.pop()
        if isinstance(part, ir.Connect) and part.op == op:
            stack += (part.right, part.left)
        else:
            parts[print_expr(part)] = part
    chain = [parts[text] for text in sorted(parts)]
    result = chain[0]
    for part in chain[1:]:
        result = ir.Connect(op, result, part)
    # A repeated part alone stays what it is only if it is a condition.
    return (
        result
        if len(chain) > 1 or isinstance(result, ir.Compare | ir.IsNull)
        else ir.Connect(op, *sides)
    )


def _joined(query: ir.Select) -> ir.Select:
    """Inner joins with their conditions in WHERE, in the order of what is joined."""
    if any(source.join != "INNER" for source in query.sources) or not query.sources:
        return query
    conditions = [s.condition for s in query.sources if s.condition is not None]
    if query.where is not None:
        conditions.append(query.where)
    where = None
    if len(conditions) == 1:
        where = conditions[0]
    elif conditions:
        where = _connected("AND", conditions)
    sources = [replace(source, condition=None) for source in query.sources]
    names = {_content(source): source for source in sources}
    query = replace(query, sources=tuple(sources), where=where)
    if len(names) < len(sources):  # a self-join: which is which cannot be told by name
        return query
    ordered = [names[text] for text in sorted(names)]
    # Sources take the numbers of the places where they now stand.
    numbers = dict(zip(
        (source.id for source in ordered), (source.id for source in sources), strict=True
    ))  # fmt: skip
    if all(old == new for old, new in numbers.items()):
        return query

    def renumbered(node):
        if isinstance(node, ir.Source):
            return replace(node, id=numbers.get(node.id, node.id))
        if isinstance(node, ir.Column):
            return replace(node, source=numbers.get(node.source, node.source))
        return node

    return rebuilt(rebuilt(replace(query, sources=tuple(ordered)), renumbered), _canonical)


def _content(source: ir.Source) -> str:
    return source.table or print_query(source.query)
