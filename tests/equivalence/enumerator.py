"""A plain search for a database on which two queries differ: random small databases, nothing more.

The reference for how much a checker should find. It knows the schema's keys and the literals of the
queries, and where LIMIT cuts, and nothing else of what they mean. Imports nothing of `jax_t2sql`.
"""

import contextlib
import functools
import random
import re
import sqlite3
from dataclasses import dataclass

import replayer
import sqlglot
from sqlglot import exp

_STEPS = 200  # times 1,000 virtual machine instructions
_NUMBER = re.compile(r"(?<![\w.'\"])\d+(?:\.\d+)?(?![\w'\"])")
_TEXT = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"")


@dataclass(frozen=True)
class _Table:
    name: str
    columns: tuple[str, ...]
    is_number: tuple[bool, ...]
    not_null: tuple[bool, ...]
    keys: tuple[tuple[tuple[int, ...], str, tuple[str, ...]], ...]  # columns, parent, its columns


class Enumerator:
    """The search on one schema."""

    def __init__(self, ddl: str) -> None:
        """Args:
        ddl: script that creates the empty database.
        """
        self._ddl = ddl
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.executescript(ddl)
        names = [n for (n,) in replayer._tables(self._connection) if n != "sqlite_sequence"]
        self._tables = {name.lower(): self._read(name) for name in names}

    def witness(
        self,
        first: str,
        second: str,
        *,
        grading: str = "set",
        databases: int = 300,
        seed: int = 0,
    ) -> str | None:
        """Script of a database on which the queries differ, however SQLite chooses where it may.

        None if there is none among so many databases.
        """
        rng = random.Random(f"{seed}/{first}/{second}")
        numbers, texts = _literals(first + " " + second)
        order = self._needed(first + " " + second)
        for _ in range(databases):
            rows = self._fill(order, numbers, texts, rng)
            self._load(rows)
            a, b = self._run(first), self._run(second)
            if a is None or b is None or replayer.same(a, b, grading):
                continue
            if self._differ_in_any_case(rows, first, second, grading):
                return self._script(rows)
        return None

    def _read(self, name: str) -> _Table:
        quoted = replayer._quote(name)
        info = self._connection.execute(f"PRAGMA table_info({quoted})").fetchall()
        columns = tuple(row[1] for row in info)
        kinds = tuple(
            bool(re.search("INT|REAL|FLOA|DOUB|NUM|DEC|BOOL", (row[2] or "").upper()))
            for row in info
        )
        parts: dict[int, list] = {}
        for row in self._connection.execute(f"PRAGMA foreign_key_list({quoted})"):
            parts.setdefault(row[0], []).append(row)
        lower = [column.lower() for column in columns]
        keys = []
        for group in parts.values():
            own = tuple(lower.index(row[3].lower()) for row in group)
            others = tuple(row[4] for row in group)
            if None in others:
                unique = replayer._unique_keys(self._connection, group[0][2])
                others = tuple(unique[0]) if unique else ()
            if len(others) == len(own):
                keys.append((own, group[0][2].lower(), tuple(o.lower() for o in others)))
        return _Table(name, columns, kinds, tuple(bool(r[3]) for r in info), tuple(keys))

    def _needed(self, text: str) -> list[_Table]:
        """Tables that the text names and those that they refer to, parents first where possible."""
        words = set(re.findall(r"\w+", text.lower()))
        spelt = text.lower()
        wanted = [n for n in self._tables if n in words or (not n.isidentifier() and n in spelt)]
        order: list[str] = []

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in order or name in path or name not in self._tables:
                return
            for _, parent, _ in self._tables[name].keys:
                visit(parent, (*path, name))
            order.append(name)

        for name in wanted:
            visit(name, ())
        return [self._tables[name] for name in order]

    def _fill(self, order, numbers, texts, rng) -> dict[str, list[tuple]]:
        # Few values for keys and many for the rest, or the other way round: both find things.
        spread = rng.choice((2, 3, 5))
        nulls = rng.choice((0.0, 0.1, 0.3))
        wanted = rng.choice((0.3, 0.7, 0.9))
        filled: dict[str, list[tuple]] = {}
        for table in order:
            rows = []
            for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4, 5))):
                row = [
                    self._value(is_number, not_null, numbers, texts, spread, nulls, wanted, rng)
                    for is_number, not_null in zip(table.is_number, table.not_null, strict=True)
                ]
                for own, parent, others in table.keys:
                    there = filled.get(parent)
                    if there is None:
                        continue
                    if not there:
                        values = [None] * len(own)
                    else:
                        lower = [c.lower() for c in self._tables[parent].columns]
                        picked = rng.choice(there)
                        values = [picked[lower.index(o)] for o in others if o in lower]
                    for place, value in zip(own, values, strict=False):
                        row[place] = value
                rows.append(tuple(row))
            filled[table.name.lower()] = rows
        return filled

    @staticmethod
    def _value(is_number, not_null, numbers, texts, spread, nulls, wanted, rng):
        if not not_null and rng.random() < nulls:
            return None
        if rng.random() < wanted:
            pool = numbers if is_number else texts
            if pool:
                return rng.choice(pool)
        return rng.randrange(spread) if is_number else "abcde"[rng.randrange(spread)]

    def _load(self, rows: dict[str, list[tuple]], *, backwards: bool = False) -> None:
        connection = self._connection
        connection.execute("BEGIN")
        for table in self._tables.values():
            connection.execute(f"DELETE FROM {replayer._quote(table.name)}")
        for name, there in rows.items():
            table = self._tables[name]
            marks = ", ".join("?" * len(table.columns))
            insert = f"INSERT OR IGNORE INTO {replayer._quote(table.name)} VALUES ({marks})"
            for row in reversed(there) if backwards else there:
                # "datatype mismatch": a row id that is no integer is refused, never ignored.
                with contextlib.suppress(sqlite3.IntegrityError):
                    connection.execute(insert, row)
        connection.execute("COMMIT")

    def _run(self, sql: str) -> list[tuple] | None:
        left = _STEPS

        def count() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self._connection.set_progress_handler(count, 1_000)
        try:
            return self._connection.execute(sql).fetchall()
        except (sqlite3.Error, sqlite3.Warning):
            return None
        finally:
            self._connection.set_progress_handler(None, 0)

    def _differ_in_any_case(self, rows, first: str, second: str, grading: str) -> bool:
        """Whether no order of rows makes the two agree; and the database keeps its keys."""
        results: tuple[list, list] = ([], [])
        before: list[str] = []
        for backwards in (False, True):
            self._load(rows, backwards=backwards)
            # What UNIQUE refused depends on the order, so this may be another database: then both
            # results are of that one, and comparing across them would be unfair.
            kept = sorted(map(repr, self._rows()))
            if backwards and kept != before:
                break
            before = kept
            for pragma in ("OFF", "ON"):
                self._connection.execute(f"PRAGMA reverse_unordered_selects = {pragma}")
                for sql, there in zip((first, second), results, strict=True):
                    there.append(self._run(sql))
                    # Ties are broken at random, some times over.
                    free = loosened(sql, ordered=grading == "list")
                    there.extend(self._run(free) for _ in range(6 if free != sql else 0))
        self._connection.execute("PRAGMA reverse_unordered_selects = OFF")
        self._load(rows)
        return (
            not any(r is None for there in results for r in there)
            and not any(replayer.same(a, b, grading) for a in results[0] for b in results[1])
            and not self._orphaned()
        )

    def _orphaned(self) -> bool:
        try:
            return bool(self._connection.execute("PRAGMA foreign_key_check").fetchone())
        except sqlite3.OperationalError:
            return bool(replayer._orphans(self._connection))

    def _rows(self) -> list[tuple]:
        return [
            (table.name, row)
            for table in self._tables.values()
            for row in self._connection.execute(f"SELECT * FROM {replayer._quote(table.name)}")
        ]

    def _script(self, rows: dict[str, list[tuple]]) -> str:
        self._load(rows)
        lines = [self._ddl]
        for name, row in self._rows():
            values = ", ".join(map(_literal, row))
            lines.append(f"INSERT INTO {replayer._quote(name)} VALUES ({values});")
        return "\n".join(lines)


@functools.lru_cache(maxsize=4)
def loosened(sql: str, *, ordered: bool) -> str:
    """The query with a random last key wherever rows are cut off by order (and at the top, if the
    order of its rows counts); the query itself where that cannot be written."""
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except sqlglot.errors.SqlglotError:
        return sql
    cut = [query for query in tree.find_all(exp.Query) if query.args.get("limit")]
    if ordered and tree.args.get("order") and tree not in cut:
        cut.append(tree)
    for query in cut:
        if not isinstance(query, exp.Select):  # a compound orders by its columns alone
            return sql
        order = query.args.get("order")
        keys = list(order.expressions) if order else []
        chance = exp.Ordered(this=exp.Anonymous(this="RANDOM"), nulls_first=True)
        query.set("order", exp.Order(expressions=[*keys, chance]))
    return tree.sql("sqlite") if cut else sql


def _literal(value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return repr(value)


def _literals(text: str) -> tuple[list, list[str]]:
    """Numbers and texts that the queries name, with neighbours."""
    texts = [(a or b).replace("''", "'") for a, b in _TEXT.findall(text)]
    numbers: list = []
    for found in _NUMBER.findall(_TEXT.sub("''", text)):
        value = float(found) if "." in found else int(found)
        numbers += [value, value + 1, value - 1]
    for found in texts:
        if re.fullmatch(r"\d+(\.\d+)?", found):
            numbers += [float(found) if "." in found else int(found)]
    likely = []
    for found in texts:
        plain = found.replace("%", "").replace("_", "x")
        likely += [found, plain, plain + "x", "x" + plain]
    return numbers, likely + [str(n) for n in numbers]
