"""Random schemas, rows and queries of the fragment that proofs cover."""

import contextlib
import random
import sqlite3
from dataclasses import dataclass, field

TYPES = ("INTEGER", "INTEGER", "TEXT", "TEXT", "REAL", "NUMERIC", "")
VALUES = (
    None, None, 0, 1, 1, 2, 2, 3, -1, 10, 0.5, 1.0, 2.5, -0.5, "", "a", "a", "b", "B", "ab", "1",
    "2", "10", "1.5", " 2", "2x", "-1", "A", "0.5", "0", "a ", b"a", b"",
)  # fmt: skip
LITERALS = (
    "NULL", "0", "1", "2", "-1", "10", "0.5", "1.0", "2.5", "''", "'a'", "'b'", "'B'", "'1'",
    "'2'", "'1.5'", "'2x'", "'0.5'", "'a '", "x'61'", "TRUE",
)  # fmt: skip


@dataclass
class Schema:
    tables: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    extra: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ddl(self) -> str:
        statements = []
        for name, columns in self.tables.items():
            parts = [f"{column} {kind}".strip() for column, kind in columns]
            statements.append(f"CREATE TABLE {name} ({', '.join(parts + self.extra[name])});")
        return "\n".join(statements)


def random_schema(rng: random.Random, *, constrained: bool = True) -> Schema:
    schema = Schema()
    for i in range(rng.randint(1, 3)):
        names = rng.sample(["a", "b", "c", "d"], rng.randint(1, 3))
        columns = []
        for name in names:
            kind = rng.choice(TYPES)
            if rng.random() < 0.06:
                kind += f" COLLATE {rng.choice(['NOCASE', 'RTRIM'])}"
            columns.append((name, kind))
        if rng.random() < 0.2:
            columns[0] = (columns[0][0], "INTEGER PRIMARY KEY")
        name = f"t{i}"
        schema.tables[name], schema.extra[name] = columns, []
        if constrained:
            _constrain(rng, schema, name)
    return schema


def _constrain(rng: random.Random, schema: Schema, name: str) -> None:
    """Adds NOT NULL, keys and foreign keys to the table made last."""
    columns, extra = schema.tables[name], schema.extra[name]
    for i, (column, kind) in enumerate(columns):
        if "PRIMARY" not in kind and rng.random() < 0.2:
            columns[i] = (column, f"{kind} NOT NULL")
    if rng.random() < 0.4:
        unique = rng.sample([column for column, _ in columns], rng.randint(1, len(columns)))
        extra.append(f"UNIQUE ({', '.join(unique)})")
    for parent, theirs in schema.tables.items():
        if "PRIMARY" in theirs[0][1] and rng.random() < 0.5 and parent != name:
            child = rng.choice(columns)[0]
            extra.append(f"FOREIGN KEY ({child}) REFERENCES {parent} ({theirs[0][0]})")


def fill(connection: sqlite3.Connection, rows: dict[str, list[tuple]]) -> None:
    """Stores what the constraints allow of the rows."""
    connection.execute("PRAGMA foreign_keys = ON")
    for name, stored in rows.items():
        for row in stored:
            values = ", ".join("?" * len(row))
            with contextlib.suppress(sqlite3.IntegrityError):
                connection.execute(f"INSERT INTO {name} VALUES ({values})", row)


def random_rows(rng: random.Random, schema: Schema, bound: int) -> dict[str, list[tuple]]:
    rows = {}
    few = rng.sample(VALUES, 6) if rng.random() < 0.7 else VALUES
    for name, columns in schema.tables.items():
        rows[name] = [
            tuple(_value(rng, kind, few) for _, kind in columns)
            for _ in range(rng.choice([0, 1, bound, bound]))
        ]
    return rows


def _value(rng: random.Random, kind: str, values):
    if "PRIMARY" in kind:
        return rng.randint(-1, 5)
    if rng.random() < (0.95 if "NOT NULL" in kind else 0.5):  # what belongs there
        none = [] if "NOT NULL" in kind else [None]
        if kind.startswith("TEXT"):
            return rng.choice(["a", "b", "A", "1", "2", "", "ab", "a ", *none])
        return rng.choice([0, 1, 2, 3, -1, 2.5, *none])
    return rng.choice(values)


class Writer:
    """Writes random queries. Scopes are lists of (alias, column names)."""

    def __init__(self, rng: random.Random, schema: Schema) -> None:
        self.rng, self.schema = rng, schema
        self.aliases = 0

    def pick(self, *choices):
        return self.rng.choice(choices)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def query(self, depth: int, outer: list, width: int | None = None) -> str:
        width = width or self.rng.randint(1, 3)
        if depth > 0 and self.chance(0.12):
            op = self.pick("UNION", "UNION ALL", "INTERSECT", "EXCEPT")
            if self.chance(0.4):  # sides that often meet
                width = 1
                left, right = (self.plain() for _ in "ab")
            else:
                left, right = (self.select(depth - 1, outer, width)[0] for _ in "ab")
            order = f" ORDER BY {self.rng.randint(1, width)}{self.direction()}"
            return f"{left} {op} {right}" + (order + self.limit() if self.chance(0.3) else "")
        text, ordered = self.select(depth, outer, width)
        return text + (self.limit() if self.chance(0.3 if ordered else 0.04) else "")

    def plain(self) -> str:
        name = self.rng.choice(list(self.schema.tables))
        return f"SELECT {self.rng.choice(self.schema.tables[name])[0]} FROM {name}"

    def limit(self) -> str:
        if not self.chance(0.6):
            return ""
        return f" LIMIT {self.rng.randint(0, 2)}" + self.pick("", "", " OFFSET 1")

    def direction(self) -> str:
        return self.pick("", "", " DESC", " ASC", " NULLS LAST", " DESC NULLS FIRST")

    def select(self, depth: int, outer: list, width: int) -> tuple[str, bool]:
        with_ = ""
        ctes = []
        if depth > 0 and self.chance(0.12):
            name, inner = f"w{self.aliases}", self.rng.randint(1, 2)
            self.aliases += 1
            columns = [f"k{i}" for i in range(inner)]
            with_ = f"WITH {name}({', '.join(columns)}) AS ({self.query(depth - 1, [], inner)}) "
            ctes.append((name, columns))
        source, scope = self.from_(depth, outer, ctes)
        inside = [*outer, *scope]
        where = f" WHERE {self.condition(depth, inside)}" if self.chance(0.6) else ""
        kind = self.rng.random()
        distinct = "DISTINCT " if self.chance(0.25) else ""
        tail = ""
        if kind < 0.25 and scope:
            keys = [self.expr(min(depth, 1), scope, 1) for _ in range(self.rng.randint(1, 2))]
            keys = [k for k in keys if not k.lstrip("-").isdigit()] or [self.column(scope)]
            shown = [
                self.pick(self.rng.choice(keys), self.aggregate(depth, scope), self.column(scope))
                if self.chance(0.8)
                else self.over(depth, scope, keys)
                for _ in range(width)
            ]
            tail = f" GROUP BY {', '.join(keys)}"
            if self.chance(0.4):
                tail += f" HAVING {self.over(depth, scope, keys)}"
            orderable = [*keys, self.aggregate(depth, scope)]
        elif kind < 0.4 and scope:
            shown = [self.over(depth, scope, []) for _ in range(width)]
            orderable = shown
            distinct = ""
        else:
            shown = [self.expr(depth, inside, 2) for _ in range(width)]
            orderable = [*shown, *(self.expr(0, inside, 1) for _ in "ab")]
            orderable = [o for o in orderable if not o.lstrip("-").isdigit()]
        named = [f"{e} AS n{i}" if self.chance(0.4) else e for i, e in enumerate(shown)]
        if kind >= 0.4 and width == sum(len(c) for _, c in scope) and self.chance(0.5):
            named, orderable = ["*"], [self.column(scope)]
        text = f"{with_}SELECT {distinct}{', '.join(named)}{source}{where}{tail}"
        if not self.chance(0.25):
            return text, False
        keys = [
            self.pick(str(self.rng.randint(1, width)), self.rng.choice(orderable or ["1"]))
            + self.direction()
            for _ in range(self.rng.randint(1, 2))
        ]
        return f"{text} ORDER BY {', '.join(keys)}", True

    def from_(self, depth: int, outer: list, ctes: list) -> tuple[str, list]:
        if self.chance(0.03):
            return "", []
        text, scope = "", []
        for i in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            alias = f"q{self.aliases}"
            self.aliases += 1
            if ctes and self.chance(0.7):
                name, columns = self.rng.choice(ctes)
                body = f"{name} AS {alias}"
            elif depth > 0 and self.chance(0.2):
                width = self.rng.randint(1, 2)
                inner, _ = self.select(depth - 1, outer, width)
                alias_names = [f"m{i}" for i in range(width)]
                cte = f"d{self.aliases}"
                inner = f"WITH {cte}({', '.join(alias_names)}) AS ({inner}) SELECT * FROM {cte}"
                body, columns = f"({inner}) AS {alias}", alias_names
            else:
                name = self.rng.choice(list(self.schema.tables))
                columns = [column for column, _ in self.schema.tables[name]]
                body = f"{name} AS {alias}"
            if i == 0:
                text = f" FROM {body}"
            else:
                join = self.pick(", ", " JOIN ", " LEFT JOIN ", " LEFT JOIN ")
                text += join + body
                if join != ", " and (join != " JOIN " or self.chance(0.8)):
                    both = [*outer, *scope, (alias, columns)]
                    text += f" ON {self.condition(min(depth, 1), both)}"
            scope.append((alias, columns))
        return text, scope

    def comparisons(self) -> str:
        """Many plain comparisons of two rows: what affinities and collations decide."""
        scope = []
        for alias in ("p", "q"):
            name = self.rng.choice(list(self.schema.tables))
            scope.append((name, alias, [column for column, _ in self.schema.tables[name]]))
        visible = [(alias, columns) for _, alias, columns in scope]

        def side() -> str:
            atom = self.column(visible) if self.chance(0.75) else self.rng.choice(LITERALS)
            form = self.rng.random()
            if form < 0.1:
                return f"{atom} COLLATE {self.pick('NOCASE', 'BINARY', 'RTRIM')}"
            if form < 0.2:
                return f"CAST({atom} AS {self.pick('INTEGER', 'REAL', 'TEXT', 'NUMERIC')})"
            if form < 0.3:
                name, alias, columns = self.rng.choice(scope)
                same = f"(SELECT {self.rng.choice(columns)} FROM {name} LIMIT 1)"
                return self.pick(same, f"({atom} || '')", f"COALESCE({atom}, 1)")
            return atom

        shown = []
        for _ in range(8):
            op = self.pick(
                "=", "=", "<", "<=", ">", "<>", "IS", "IS NOT", "IN", "CASE", "BETWEEN",
                "MIN", "MAX", "NULLIF", "IIF",
            )  # fmt: skip
            if op == "IN":
                name, _, columns = self.rng.choice(scope)
                inner = f"SELECT {self.rng.choice(columns)} FROM {name}"
                shown.append(f"{side()} IN ({self.pick(inner, f'{side()}, {side()}', side())})")
            elif op == "CASE":
                shown.append(f"CASE {side()} WHEN {side()} THEN 1 WHEN {side()} THEN 2 END")
            elif op in ("MIN", "MAX", "NULLIF"):
                shown.append(f"{op}({side()}, {side()})")
            elif op == "IIF":
                shown.append(f"IIF({side()}, 1, 2)")
            elif op == "BETWEEN":
                shown.append(f"{side()} BETWEEN {side()} AND {side()}")
            else:
                shown.append(f"({side()}) {op} ({side()})")
        (first, a, _), (second, b, _) = scope
        return f"SELECT {', '.join(shown)} FROM {first} AS {a}, {second} AS {b}"

    def extremes(self) -> str:
        """Aggregates that keep one of several values, over one table."""
        name = self.rng.choice(list(self.schema.tables))
        scope = [(name, [column for column, _ in self.schema.tables[name]])]
        shown = [
            f"{self.pick('MIN', 'MAX', 'SUM', 'AVG', 'TOTAL')}"
            f"({self.pick('', 'DISTINCT ')}{self.column(scope)})"
            for _ in range(4)
        ]
        return f"SELECT {', '.join(shown)} FROM {name}"

    def column(self, scope: list) -> str:
        alias, columns = self.rng.choice(scope)
        return f"{alias}.{self.rng.choice(columns)}"

    def aggregate(self, depth: int, scope: list) -> str:
        if self.chance(0.25):
            return "COUNT(*)"
        name = self.pick("COUNT", "SUM", "AVG", "MIN", "MAX", "TOTAL", "COUNT", "SUM")
        distinct = "DISTINCT " if self.chance(0.25) else ""
        text = f"{name}({distinct}{self.expr(min(depth, 0), scope, 1)})"
        if self.chance(0.06):
            text += f" FILTER (WHERE {self.condition(0, scope)})"
        return text

    def over(self, depth: int, scope: list, keys: list[str]) -> str:
        """An expression over aggregates and group keys."""
        atom = self.aggregate(depth, scope)
        kind = self.rng.random()
        if kind < 0.4:
            return atom
        if kind < 0.6:
            return f"{atom} {self.pick('>', '=', '<', '<>', '>=')} {self.rng.choice(LITERALS)}"
        other = self.rng.choice([*keys, self.aggregate(depth, scope), "2"])
        if kind < 0.85:
            return f"{atom} {self.pick('+', '-', '*', '/', '=', '<', '||')} {other}"
        return f"CASE WHEN {atom} > {other} THEN {atom} ELSE {other} END"

    def condition(self, depth: int, scope: list) -> str:
        kind = self.rng.random()
        if kind < 0.2:
            left, right = (self.condition(depth, scope) for _ in "ab")
            return f"({left} {self.pick('AND', 'OR')} {right})"
        if kind < 0.27:
            return f"NOT {self.condition(depth, scope)}"
        return self.expr(depth, scope, 1, boolean=True)

    def expr(self, depth: int, scope: list, size: int, *, boolean: bool = False) -> str:
        atom = self.column(scope) if scope and self.chance(0.8) else self.rng.choice(LITERALS)
        if not boolean and (size <= 0 or self.chance(0.45)):
            return atom

        def sub() -> str:
            return self.expr(depth, scope, size - 1)

        choice = self.rng.random()
        if boolean or choice < 0.3:
            kind = self.rng.randint(0, 11 if depth > 0 else 8)
            match kind:
                case 0 | 1 | 2 | 3:
                    op = self.pick("=", "=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "==")
                    return f"{sub()} {op} {sub()}"
                case 4:
                    return f"{sub()} {self.pick('', 'NOT ')}BETWEEN {sub()} AND {sub()}"
                case 5:
                    items = ", ".join(sub() for _ in range(self.rng.randint(0, 3)))
                    return f"{sub()} {self.pick('', 'NOT ')}IN ({items})"
                case 6:
                    return f"{sub()} IS {self.pick('', 'NOT ')}NULL"
                case 7:
                    pattern = self.pick("'a%'", "'%b'", "'A'", "'_'", "'1'")
                    return f"{sub()} {self.pick('LIKE', 'NOT LIKE', 'GLOB')} {pattern}"
                case 8:
                    return sub()
                case 9:
                    inner = self.query(depth - 1, scope, 1)
                    return f"{sub()} {self.pick('', 'NOT ')}IN ({inner})"
                case 10:
                    return f"{self.pick('', 'NOT ')}EXISTS ({self.query(depth - 1, scope)})"
                case 11:
                    return f"{sub()} {self.pick('=', '<', '>')} ({self.query(depth - 1, scope, 1)})"
        match self.rng.randint(0, 12 if depth > 0 else 11):
            case 0 | 1 | 2:
                return f"({sub()} {self.pick('+', '-', '*', '/', '%', '||', '&', '/')} {sub()})"
            case 3:
                return f"-{sub()}" if not (inner := sub()).startswith("-") else inner
            case 4:
                return f"CAST({sub()} AS {self.pick('INTEGER', 'REAL', 'TEXT', 'NUMERIC')})"
            case 5:
                return f"CASE WHEN {self.condition(0, scope)} THEN {sub()} ELSE {sub()} END"
            case 6:
                return f"CASE {sub()} WHEN {sub()} THEN {sub()} WHEN {sub()} THEN {sub()} END"
            case 7:
                return (
                    f"{self.pick('COALESCE', 'IFNULL', 'NULLIF', 'MIN', 'MAX')}({sub()}, {sub()})"
                )
            case 8:
                return f"IIF({self.condition(0, scope)}, {sub()}, {sub()})"
            case 9:
                name = self.pick("ABS", "LENGTH", "UPPER", "LOWER", "ROUND", "TYPEOF", "TRIM")
                return f"{name}({sub()})"
            case 10:
                return f"SUBSTR({sub()}, 1, {self.pick('1', '2')})"
            case 11:
                return f"{atom} COLLATE NOCASE" if self.chance(0.3) else atom
        return f"({self.query(depth - 1, scope, 1)})"


def random_query(rng: random.Random, schema: Schema) -> str:
    writer = Writer(rng, schema)
    if rng.random() < 0.15:
        return writer.comparisons()
    if rng.random() < 0.05:
        return writer.extremes()
    return writer.query(rng.choice([0, 1, 1, 2]), [])
