"""Queries that nobody has vetted: nothing is changed, created, unbounded or lost."""

import hashlib
import sqlite3

import pytest

from jax_t2sql.sql import Limits, Sandbox, execute

TENS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT {}) "


@pytest.fixture
def guarded(shop, monkeypatch, tmp_path):
    """The shop; afterwards its bytes are the same and no file has appeared beside it."""
    monkeypatch.chdir(tmp_path)
    before = hashlib.sha256(shop.read_bytes()).hexdigest()
    files = sorted(tmp_path.iterdir())
    yield shop
    assert hashlib.sha256(shop.read_bytes()).hexdigest() == before
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT 1;",
        "SELECT 1;;",
        "SELECT 1; -- done",
        "/* first */ SELECT 1 /* last; */ ;",
        "VALUES (1)",
        "WITH x AS (SELECT 1) SELECT * FROM x",
    ],
)
def test_one_statement_runs(guarded, sql):
    outcome = execute(guarded, sql)
    assert (outcome.status, outcome.rows, outcome.warnings) == ("ok", [(1,)], ())


def test_columns_and_types_arrive_as_stored(guarded):
    outcome = execute(guarded, "SELECT id AS n, name, price, x'ff00' FROM item WHERE id != 2")
    assert outcome.columns == ("n", "name", "price", "x'ff00'")
    assert outcome.rows == [(1, "pen", 1.5, b"\xff\x00"), (3, "pad", None, b"\xff\x00")]


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH 'x.sqlite' AS z",
        "attach database ':memory:' as z",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO 'c.sqlite'",
        "PRAGMA user_version(7)",
        "PRAGMA user_version",
        "PRAGMA journal_mode = WAL",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA query_only = 0",
        "PRAGMA writable_schema = ON",
        "PRAGMA temp_store_directory = '.'",
        "PRAGMA database_list",
        "CREATE TABLE w(a)",
        "CREATE TEMP TABLE w(a)",
        "CREATE VIEW w AS SELECT 1",
        "INSERT INTO sale VALUES (1, 'x')",
        "REPLACE INTO sale VALUES (1, 'x')",
        "UPDATE item SET price = 0",
        "UPDATE sqlite_master SET sql = ''",
        "DELETE FROM item",
        "DROP TABLE item",
        "ALTER TABLE item ADD COLUMN q",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT s",
        "REINDEX",
        "ANALYZE",
        "EXPLAIN DELETE FROM item",
        "WITH x AS (SELECT 1) DELETE FROM item",
        "WITH x AS (SELECT 1) INSERT INTO sale SELECT 1, 'a' FROM x",
        "SELECT load_extension('x')",
        "SELECT LOAD_EXTENSION('x', 'y')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE item; --",
    ],
)
def test_refused(guarded, sql):
    outcome = execute(guarded, sql)
    assert (outcome.status, outcome.rows) == ("refused", ())
    assert outcome.message


def test_refusals_say_what_to_do(guarded):
    assert "second one follows: SELECT 2" in execute(guarded, "SELECT 1; SELECT 2").message
    assert "ATTACH is not allowed" in execute(guarded, "ATTACH 'x' AS z").message
    assert "PRAGMA user_version is not allowed" in execute(guarded, "PRAGMA user_version").message
    assert "at most" in execute(guarded, "SELECT 1 --" + "x" * 1_000_000).message


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA table_info(item)",
        "SELECT name FROM pragma_table_info('item')",
        "PRAGMA foreign_key_list(sale)",
        "SELECT name FROM sqlite_master",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT sum(price) OVER (ORDER BY id) FROM item",
        "SELECT * FROM dear",
        "SELECT strftime('%Y', '2020-01-01'), abs(-1), upper(name) FROM item",
        "EXPLAIN QUERY PLAN SELECT * FROM item",
        TENS.format(9) + "SELECT n FROM r",
    ],
)
def test_reading_of_every_kind_is_allowed(guarded, sql):
    outcome = execute(guarded, sql)
    assert outcome.status == "ok", outcome.message
    assert outcome.rows


def test_full_text_tables_can_be_read(make_database):
    path = make_database("CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES ('hi there')")
    assert execute(path, "SELECT x FROM f WHERE f MATCH 'there'").rows == [("hi there",)]
    assert execute(path, "INSERT INTO f VALUES ('no')").status == "refused"


@pytest.mark.parametrize("sql", ["", "  \n", "-- SELECT 1", "/* SELECT 1 */ ;;", ";"])
def test_no_query(guarded, sql):
    assert execute(guarded, sql).status == "no_query"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT nope FROM item", "no such column: nope"),
        ("SELECT * FROM nope", "no such table: nope"),
        ("SELECT 'open", "unrecognized token"),
        ("SELECT ?", "bindings"),
        ("SELECT 'a\0b'", "null character"),
        ("SELECT '\ud800'", "surrogate"),
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
    ],
)
def test_errors_keep_sqlites_words(guarded, sql, message):
    outcome = execute(guarded, sql)
    assert outcome.status == "error"
    assert message in outcome.message


def test_time_limit_reaches_a_running_query(guarded):
    sql = TENS.format(10**9) + "SELECT count(*) FROM r"
    outcome = execute(guarded, sql, limits=Limits(seconds=0.1))
    assert outcome.status == "timeout"
    assert "0.1 s" in outcome.message
    assert outcome.seconds >= 0.1


def test_a_sandbox_works_on_after_a_timeout(guarded):
    with Sandbox(guarded, limits=Limits(seconds=0.05)) as sandbox:
        assert sandbox.execute(TENS.format(10**9) + "SELECT max(n) FROM r").status == "timeout"
        assert sandbox.execute("SELECT count(*) FROM item").rows == [(3,)]


def test_too_many_rows_one_too_many(guarded):
    limits = Limits(max_rows=100)
    assert len(execute(guarded, TENS.format(100) + "SELECT * FROM r", limits=limits).rows) == 100
    outcome = execute(guarded, TENS.format(101) + "SELECT * FROM r", limits=limits)
    assert (outcome.status, outcome.rows) == ("too_large", ())
    assert "100 rows" in outcome.message
    cross = TENS.format(300) + "SELECT a.n, b.n FROM r a, r b, r c"
    assert execute(guarded, cross).status == "too_large"


def test_too_many_bytes(guarded):
    limits = Limits(max_bytes=10_000)
    sql = TENS.format(100) + "SELECT printf('%{}d', n) FROM r"
    assert execute(guarded, sql.format(50), limits=limits).status == "ok"
    assert execute(guarded, sql.format(200), limits=limits).status == "too_large"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT zeroblob(900000000)",
        "SELECT length(zeroblob(900000000) || 'x')",
        "SELECT replace(hex(zeroblob(1000000)), '0', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')",
    ],
)
def test_single_values_are_bounded_before_they_are_built(guarded, sql):
    assert execute(guarded, sql).status == "too_large"


def test_bounds_must_be_positive():
    with pytest.raises(ValueError, match=r"Limits\.seconds is 0"):
        Limits(seconds=0)


def test_text_that_is_not_utf_8(make_database):
    """A Latin-1 name is neither an error nor equal to another one."""
    path = make_database(
        """
        CREATE TABLE p(name TEXT);
        INSERT INTO p VALUES (CAST(x'4DFC6C6C6572' AS TEXT)), (CAST(x'4DF66C6C6572' AS TEXT));
        """
    )
    (first,), (second,) = execute(path, "SELECT name FROM p").rows
    assert first.encode("utf-8", "surrogateescape") == b"M\xfcller"
    assert first != second


@pytest.mark.parametrize(
    ("sql", "warned"),
    [
        ('SELECT "nosuchcol" FROM item', ["nosuchcol"]),
        ('SELECT name FROM item WHERE name = "pen"', ["pen"]),
        ('SELECT "day" FROM item', ["day"]),  # a column, but of another table
        ('SELECT "NAME", "Price", item."ID", "item"."id" FROM "ITEM"', []),
        ('SELECT "rowid", "_rowid_" FROM item', []),
        ('SELECT count(*) AS "how many" FROM item ORDER BY "how many"', []),
        ('SELECT count(*) "n" FROM item ORDER BY "n"', []),
        ('SELECT "t"."name" FROM item "t"', []),
        ('SELECT "n" FROM (SELECT count(*) AS n FROM item)', []),
        ('WITH "c"("k") AS (SELECT 1) SELECT "k" FROM "c"', []),
        ('SELECT item_id FROM sale JOIN (SELECT 1 AS item_id) USING ("item_id")', []),
        ('SELECT count("nosuchcol") AS n FROM item', ["nosuchcol"]),
        ('SELECT "count"(*) FROM item', []),
        ('SELECT name FROM item ORDER BY name COLLATE "NOCASE"', []),
        ('SELECT "name" FROM dear WHERE "price" > 1', []),
        ('SELECT \'a "quoted" word\' FROM item -- "comment"', []),
        ('SELECT DISTINCT "x", "x", "it\'s" FROM item', ["x", "it's"]),
    ],
)
def test_double_quoted_texts_are_told(guarded, sql, warned):
    outcome = execute(guarded, sql)
    assert outcome.status == "ok", outcome.message
    assert [w.split('"')[1] for w in outcome.warnings] == warned


def test_names_ignore_case_and_values_do_not(make_database):
    path = make_database("CREATE TABLE Tab(Y); INSERT INTO tab VALUES ('a'), ('a')")
    assert execute(path, "SELECT y FROM TAB WHERE y = 'A'").rows == []
    assert len(execute(path, "SELECT Y FROM tab WHERE y = 'a'").rows) == 2


def test_other_handles_of_the_process_are_untouched(guarded, tmp_path):
    execute(guarded, "SELECT 1")
    own = sqlite3.connect(":memory:")
    own.execute("CREATE TABLE t(a)")
    assert own.execute("SELECT length(zeroblob(100000000))").fetchone() == (100_000_000,)
    own.close()


def test_virtual_tables_are_read_as_in_the_shell(make_database):
    path = make_database(
        """
        CREATE VIRTUAL TABLE box USING rtree(id, low, high);
        INSERT INTO box VALUES (1, 0, 1), (2, 5, 6);
        CREATE VIEW right_box AS SELECT id FROM box WHERE low > 4;
        CREATE VIRTUAL TABLE page USING fts5(body);
        INSERT INTO page VALUES ('hi there');
        CREATE VIEW greeting AS SELECT body FROM page WHERE page MATCH 'hi';
        PRAGMA writable_schema = 1;
        INSERT INTO sqlite_master VALUES ('table', 'odd', 'odd', 0,
          'CREATE VIRTUAL TABLE odd USING absent(a)');
        """
    )
    with Sandbox(path, limits=Limits()) as sandbox:
        for sql, rows in {
            "SELECT id FROM box WHERE high < 2": [(1,)],
            "SELECT low FROM box WHERE id = 2": [(5.0,)],
            "SELECT * FROM right_box": [(2,)],
            "SELECT * FROM greeting": [("hi there",)],
        }.items():
            assert sandbox.execute(sql).rows == rows
        assert sandbox.execute("SELECT id FROM box").reads >= {"id"}
        assert "no such module" in sandbox.execute("SELECT * FROM odd").message
        for sql in (
            "INSERT INTO box VALUES (3, 0, 1)",
            "WITH x AS (SELECT 1) DELETE FROM box_node",
        ):
            assert sandbox.execute(sql).status == "refused"


def test_names_that_are_not_utf8_are_no_fault_of_the_query(make_database):
    path = make_database("CREATE TABLE t (cXl INT, d INT); INSERT INTO t VALUES (1, 2)")
    path.write_bytes(path.read_bytes().replace(b"cXl", b"c\xfcl"))
    outcome = execute(path, 'SELECT "d", "e" FROM t')
    assert outcome.rows == [(2, "e")] and len(outcome.warnings) == 1
    assert execute(path, "SELECT * FROM t").status == "error"  # its name cannot be told


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_what_is_read_is_known_in_every_encoding(make_database, encoding):
    path = make_database(
        f"PRAGMA encoding = '{encoding}'; CREATE TABLE t (a); INSERT INTO t VALUES ('ä')"
    )
    outcome = execute(path, "SELECT a FROM t")
    assert (outcome.rows, outcome.reads) == ([("ä",)], {"a"})
