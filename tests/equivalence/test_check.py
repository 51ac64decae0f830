"""The check as a whole."""

import json
import sqlite3

import pytest

from jax_t2sql.equivalence import Budget, check, read_catalog
from jax_t2sql.errors import UserError

DDL = (
    "CREATE TABLE r (a INTEGER PRIMARY KEY, b TEXT, n INTEGER, x REAL, d DATE);"
    "CREATE TABLE s (k INTEGER REFERENCES r, c INTEGER, t TEXT)"
)
SHORT = Budget(seconds=0.4)  # for what stays open
AMPLE = Budget(seconds=5)

DIFFERENT = [
    ("SELECT a FROM r WHERE b = 'abc'", "SELECT a FROM r WHERE b = 'ABC'"),
    ("SELECT a FROM r WHERE b LIKE 'ab%'", "SELECT a FROM r WHERE b LIKE 'ab%' AND n > 0"),
    ("SELECT avg(n) FROM r", "SELECT sum(n) / count(n) FROM r"),
    ("SELECT count(*) FROM r", "SELECT count(n) FROM r"),
    ("SELECT r.a FROM r JOIN s ON a = k", "SELECT r.a FROM r LEFT JOIN s ON a = k"),
    ("SELECT c FROM s WHERE c NOT IN (SELECT n FROM r)",
     "SELECT c FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE n = c)"),
    ("SELECT b FROM r ORDER BY n DESC LIMIT 1", "SELECT b FROM r WHERE n = (SELECT max(n) FROM r)"),
    ("SELECT b FROM r WHERE strftime('%Y', d) = '1990'", "SELECT b FROM r WHERE d LIKE '%1990%'"),
    ("SELECT t FROM s GROUP BY t HAVING count(*) > 6",
     "SELECT t FROM s GROUP BY t HAVING count(*) > 5"),
    ("SELECT rank() OVER (ORDER BY n) FROM r", "SELECT row_number() OVER (ORDER BY n) FROM r"),
    ("WITH RECURSIVE f(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM f WHERE i < 3)"
     " SELECT i FROM f, r", "SELECT a FROM r"),
    ("SELECT b, n FROM r", "SELECT n, b FROM r"),
    ("SELECT a FROM r", "SELECT a, b FROM r"),
    ("SELECT b FROM r LIMIT 7", "SELECT b FROM r"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "pred"), DIFFERENT)
def test_different_queries_are_refuted(gold, pred):
    verdict = check(gold, pred, DDL, budget=AMPLE)
    assert (verdict.kind, verdict.source) == ("refuted", "search"), verdict
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.executescript(verdict.database)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    results = [connection.execute(sql).fetchall() for sql in (gold, pred)]
    assert results == [list(verdict.gold.rows), list(verdict.pred.rows)]
    assert set(results[0]) != set(results[1])


EQUAL = [
    ("SELECT a FROM r WHERE n > 1 AND b = 'x'",
     "select T.a from r as T where T.n>1 and T.b='x'", "list"),
    ("SELECT DISTINCT n FROM r", "SELECT n FROM r", "set"),
    ("SELECT a FROM r WHERE n > 5", "SELECT a FROM r WHERE NOT (n <= 5)", "multiset"),
    ("SELECT c FROM s WHERE k IS NOT NULL", "SELECT c FROM s JOIN r ON k = a", "multiset"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "pred", "mode"), EQUAL)
def test_equal_queries_are_proved(gold, pred, mode):
    verdict = check(gold, pred, DDL, grading=mode, budget=AMPLE)
    assert verdict.kind == "equivalent", verdict
    assert verdict.source in ("syntax", "proof") and verdict.database is None
    assert (verdict.bound is None) == (verdict.source == "syntax")


CHANCE = [
    ("SELECT b FROM r ORDER BY n LIMIT 1", "SELECT b FROM r ORDER BY n, b LIMIT 1", "set"),
    ("SELECT n, b FROM r GROUP BY n", "SELECT n, max(b) FROM r WHERE b <> '' GROUP BY n"
     " UNION SELECT n, b FROM r GROUP BY n HAVING max(b) IS NULL OR max(b) = ''", "set"),
    ("SELECT b FROM r ORDER BY n", "SELECT b FROM r ORDER BY n, a DESC", "list"),
    ("SELECT group_concat(b) FROM r",
     "SELECT group_concat(b) FROM (SELECT b FROM r ORDER BY b)", "set"),
    ("SELECT a FROM r ORDER BY random() LIMIT 1",
     "SELECT max(a) FROM r HAVING count(*) > 0", "set"),
    ("SELECT sum(x) FROM r", "SELECT sum(x) FROM (SELECT x FROM r ORDER BY x)", "set"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "pred", "mode"), CHANCE)
def test_what_is_left_to_chance_is_not_refuted(gold, pred, mode):
    assert check(gold, pred, DDL, grading=mode, budget=SHORT).kind != "refuted"


def test_the_grading_mode_decides():
    gold, pred = "SELECT n FROM r", "SELECT DISTINCT n FROM r"
    assert check(gold, pred, DDL, grading="set", budget=AMPLE).kind == "equivalent"
    assert check(gold, pred, DDL, grading="multiset", budget=AMPLE).kind == "refuted"
    ordered = "SELECT n FROM r WHERE n IS NOT NULL ORDER BY n"
    assert check(ordered, ordered + " DESC", DDL, grading="list", budget=AMPLE).kind == "refuted"


def test_subset_asks_for_enough_of_the_right_rows():
    gold = "SELECT b FROM r"
    for mode, pred in [
        ("subset,=,2", "SELECT DISTINCT b FROM r LIMIT 2"),
        ("subset,>=,1", "SELECT b FROM r WHERE n > 3 UNION SELECT max(b) FROM r"),
    ]:
        verdict = check(gold, pred, DDL, grading=mode, budget=SHORT)
        assert verdict.kind != "refuted" or verdict.pred.rows == ((None,),), verdict
    for pred in ("SELECT DISTINCT b FROM r LIMIT 3", "SELECT t FROM s UNION SELECT 'x'"):
        assert check(gold, pred, DDL, grading="subset,=,2", budget=AMPLE).kind == "refuted"


@pytest.mark.parametrize(
    ("gold", "pred", "reason"),
    [
        (
            "SELECT a FROM r",
            "SELECT missing FROM r",
            "predicted query does not run: no such column",
        ),
        ("SELEC", "SELECT 1", "gold query does not run: near"),
        ("SELECT a FROM r", "DROP TABLE r", "predicted query cannot be run: DROP"),
        ("SELECT a FROM r", "", "predicted query cannot be run: there is no SQL"),
        ("SELECT a FROM r", "SELECT 1; SELECT 2", "predicted query cannot be run: only one"),
        ("SELECT a FROM r", "SELECT changes() FROM r", "predicted query cannot be run: changes()"),
    ],
)
def test_what_does_not_run_is_unknown_with_the_reason(gold, pred, reason):
    verdict = check(gold, pred, DDL, budget=SHORT)
    assert verdict.kind == "unknown" and verdict.reason.startswith(f"the {reason}")


def test_a_proof_that_says_little_does_not_end_the_search():
    gold = "SELECT t FROM s GROUP BY t HAVING count(DISTINCT c) > 5"
    verdict = check(gold, gold.replace("> 5", "> 7"), DDL, budget=Budget(seconds=4))
    assert verdict.kind == "refuted"


def test_queries_without_tables():
    assert check("SELECT 1", "SELECT 2", DDL, budget=AMPLE).kind == "refuted"
    assert check("SELECT 1", "SELECT 1.0", DDL, budget=SHORT).kind != "refuted"
    assert check("SELECT random()", "SELECT random() ", DDL, budget=SHORT).kind != "refuted"
    assert check("SELECT random()", "SELECT random() + 0", DDL, budget=SHORT).kind != "refuted"


def test_the_budget_is_kept_and_the_answer_repeats():
    gold = "WITH RECURSIVE f(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM f) SELECT i FROM f"
    verdict = check(gold, "SELECT a FROM r", DDL, budget=SHORT)
    assert verdict.kind == "unknown" and "failed on all" in verdict.reason
    assert verdict.cpu_seconds < 2
    one, two = (check(*DIFFERENT[5], DDL, seed=3) for _ in range(2))
    assert one.database == two.database


def test_counterexamples_are_small():
    verdict = check("SELECT a FROM r WHERE n > 5", "SELECT a FROM r WHERE n >= 5", DDL)
    assert verdict.database.count("INSERT") == 1


def test_bad_input_is_a_user_error():
    with pytest.raises(UserError, match="grading mode"):
        check("SELECT 1", "SELECT 1", DDL, grading="best")
    with pytest.raises(UserError, match="needs the real database"):
        check("SELECT 1", "SELECT 1", DDL, strictness="realistic")
    with pytest.raises(UserError, match="strictness"):
        check("SELECT 1", "SELECT 1", DDL, strictness="hard")
    with pytest.raises(ValueError, match="seconds"):
        Budget(seconds=0)
    with pytest.raises(ValueError, match="bound"):
        Budget(bound=11)


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);"
            "CREATE TABLE sale (item INTEGER REFERENCES item, year INTEGER);"
        )
        items = [(n, f"item {n}", 1.0 + n) for n in range(1, 41)]
        connection.executemany("INSERT INTO item VALUES (?, ?, ?)", items)
        sales = [(1 + n % 40, 2000 + n % 7) for n in range(200)]
        connection.executemany("INSERT INTO sale VALUES (?, ?)", sales)
    connection.close()
    return path


def test_realistic_differences_are_made_of_real_values(shop):
    gold = "SELECT name FROM item JOIN sale ON id = item WHERE year = 2003"
    verdict = check(
        gold, gold.replace("= 2003", ">= 2003"), shop, database=shop, strictness="realistic"
    )
    assert verdict.kind == "refuted"
    connection = sqlite3.connect(":memory:")
    connection.executescript(verdict.database)
    for name, year in connection.execute("SELECT name, year FROM item, sale WHERE id = item"):
        assert name is None or name.startswith("item ")
        assert year is None or 2000 <= year <= 2006


@pytest.mark.parametrize(
    ("gold", "pred"),
    [
        ("SELECT count(*) FROM item", "SELECT count(name) FROM item"),  # no NULLs there
        ("SELECT id FROM item WHERE price > 0", "SELECT id FROM item"),  # all prices are above
        ("SELECT name FROM item GROUP BY id", "SELECT name FROM item GROUP BY name"),  # unique
    ],
)
def test_differences_that_need_other_values_are_not_realistic(shop, gold, pred):
    mode = "multiset"
    assert check(gold, pred, shop, grading=mode).kind == "refuted"
    verdict = check(
        gold, pred, shop, grading=mode, database=shop, strictness="realistic", budget=SHORT
    )
    assert verdict.kind != "refuted"


def test_real_rows_are_a_source(data_dir):
    path = next((data_dir / "bird_small").rglob("superhero.sqlite"))
    gold = (
        "SELECT superhero_name FROM superhero AS h JOIN colour AS c ON h.eye_colour_id = c.id"
        " WHERE c.colour = 'Blue' AND h.height_cm BETWEEN 186 AND 187"
    )
    verdict = check(
        gold, gold.replace("186 AND 187", "186 AND 188"), path, database=path,
        strictness="realistic",
    )  # fmt: skip
    assert verdict.kind == "refuted" and verdict.source in ("real-rows", "search")


def test_probes(data_dir):
    for line in (data_dir / "equivalence" / "probes.jsonl").read_text().splitlines():
        row = json.loads(line)
        verdict = check(row["sql1"], row["sql2"], read_catalog(row["schema"]), budget=SHORT)
        # "EQU-ish" says that B > N holds wherever both are given; '1' > 3 does not.
        expected = row["label"].startswith(("NEQ", "EQU-ish"))
        assert (verdict.kind == "refuted") == expected, (row["id"], verdict)


def test_pairs_with_known_witnesses_are_refuted(data_dir):
    rows = [
        json.loads(line)
        for line in (data_dir / "equivalence" / "bird_pairs.jsonl").read_text().splitlines()
    ]
    rows = [row for row in rows if row["label_set"] == "NEQ"][::9]
    kinds = [check(row["sql1"], row["sql2"], row["schema"]).kind for row in rows]
    assert kinds.count("refuted") >= 0.99 * len(rows)
