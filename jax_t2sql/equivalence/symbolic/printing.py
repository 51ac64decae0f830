"""A resolved query as SQL again: every name qualified, every operation in parentheses."""

from jax_t2sql.equivalence.symbolic import ir
from jax_t2sql.equivalence.symbolic.values import SqlValue
from jax_t2sql.sql.schema import quote_identifier


def print_query(query: ir.Query) -> str:
    """SQL that means what the query means."""
    with_ = ""
    if query.ctes:
        with_ = "WITH " + ", ".join(
            f"{name}{_column_names(body)} AS ({print_query(body)})" for name, body in query.ctes
        ) + " "  # fmt: skip
    text = _compound(query) if isinstance(query, ir.Compound) else _select(query)
    if query.order:
        text += " ORDER BY " + ", ".join(map(_sort, query.order))
    if query.limit is not None and not query.implicit_limit:
        text += f" LIMIT {print_expr(query.limit)}"
        if query.offset is not None:
            text += f" OFFSET {print_expr(query.offset)}"
    return with_ + text


def _column_names(query: ir.Query) -> str:
    names = (quote_identifier(f"x{i}") for i in range(len(query.outputs)))
    return f"({', '.join(names)})"


def _compound(query: ir.Compound) -> str:
    return f"{print_query(query.left)} {query.op} {print_query(query.right)}"


def _select(query: ir.Select) -> str:
    items = ", ".join(f"{print_expr(item)} AS x{i}" for i, item in enumerate(query.items))
    text = f"SELECT {'DISTINCT ' if query.distinct else ''}{items}"
    if query.sources:
        first, *others = query.sources
        text += f" FROM {_source(first)}" + "".join(map(_joined, others))
    if query.where is not None:
        text += f" WHERE {print_expr(query.where)}"
    if query.group:
        text += " GROUP BY " + ", ".join(map(print_expr, query.group))
    if query.having is not None:
        text += f" HAVING {print_expr(query.having)}"
    return text


def _source(source: ir.Source) -> str:
    if source.table is not None:
        body = quote_identifier(source.table)
    elif source.cte is not None:
        body = source.cte
    else:
        body = f"({print_query(source.query)})"
    return f"{body} AS s{source.id}"


def _joined(source: ir.Source) -> str:
    join = {"INNER": " JOIN ", "CROSS": " CROSS JOIN ", "LEFT": " LEFT JOIN "}[source.join]
    condition = "" if source.condition is None else f" ON {print_expr(source.condition)}"
    return f"{join}{_source(source)}{condition}"


def _sort(sort: ir.Sort) -> str:
    key = sort.key
    suffix = " DESC" if sort.descending else ""
    if sort.nulls_first == sort.descending:  # not where SQLite puts them by itself
        suffix += " NULLS FIRST" if sort.nulls_first else " NULLS LAST"
    if sort.position is None:
        return print_expr(key) + suffix
    collate = f" COLLATE {key.collation}" if isinstance(key, ir.Collate) else ""
    return f"{sort.position}{collate}{suffix}"


def print_value(value: SqlValue) -> str:
    """A literal."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float) and value == float("inf"):
        return "9e999"
    return repr(value)


def print_expr(expr: ir.Expr) -> str:
    """SQL of an expression, in parentheses unless it is a literal, a name or a call."""
    show = print_expr
    match expr:
        case ir.Constant():
            return print_value(expr.value)
        case ir.Column():
            return f"s{expr.source}.{_column_name(expr)}"
        case ir.Compare() | ir.Connect() | ir.Arithmetic():
            return f"({show(expr.left)} {expr.op} {show(expr.right)})"
        case ir.Not():
            return f"(NOT {show(expr.operand)})"
        case ir.Negate():
            return f"(- {show(expr.operand)})"
        case ir.IsNull():
            return f"({show(expr.operand)} IS {'NOT ' if expr.negated else ''}NULL)"
        case ir.Between():
            return f"({show(expr.operand)} BETWEEN {show(expr.low)} AND {show(expr.high)})"
        case ir.Cast():
            return f"CAST({show(expr.operand)} AS {expr.type})"
        case ir.Collate():
            return f"({show(expr.operand)} COLLATE {expr.collation})"
        case ir.Case():
            base = "" if expr.base is None else f" {show(expr.base)}"
            branches = "".join(f" WHEN {show(a)} THEN {show(b)}" for a, b in expr.branches)
            otherwise = "" if expr.otherwise is None else f" ELSE {show(expr.otherwise)}"
            return f"CASE{base}{branches}{otherwise} END"
        case ir.Call():
            return _call(expr)
        case ir.Aggregate():
            operand = "*" if expr.operand is None else show(expr.operand)
            only = "" if expr.only is None else f" FILTER (WHERE {show(expr.only)})"
            return f"{expr.name}({'DISTINCT ' if expr.distinct else ''}{operand}){only}"
        case ir.InList():
            return f"({show(expr.operand)} IN ({', '.join(map(show, expr.items))}))"
        case ir.InQuery():
            left = ", ".join(map(show, expr.operands))
            left = f"({left})" if len(expr.operands) > 1 else left
            return f"({left} IN ({print_query(expr.query)}))"
        case ir.Exists():
            return f"EXISTS ({print_query(expr.query)})"
        case ir.Scalar():
            return f"({print_query(expr.query)})"
    raise AssertionError(expr)


def _call(expr: ir.Call) -> str:
    args = list(map(print_expr, expr.args))
    if not expr.infix:
        return f"{expr.name}({', '.join(args)})"
    escape = f" ESCAPE {args[2]}" if len(args) > 2 else ""
    return f"({args[1]} {expr.name.upper()} {args[0]}{escape})"


def _column_name(column: ir.Column) -> str:
    return quote_identifier(column.name) if column.of_table else f"x{column.index}"
