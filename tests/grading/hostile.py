"""Queries that a model might write, by malice or by chance, to harm what runs them.

Each has the statuses that its verdict may have against a gold query that gives three names. Where
there are several, versions of SQLite differ, or time and memory race.
"""

from dataclasses import dataclass

REFUSED = ("refused",)
ERROR = ("error",)
DIFFERENT = ("different",)
TIMEOUT = ("timeout",)
TOO_LARGE = ("too_large",)
SLOW = ("timeout", "too_large")  # whichever bound it meets first
DEEP = ("error", "different")  # a limit on depth, where this version has it so low


@dataclass(frozen=True)
class Hostile:
    """A query, and what may become of it."""

    name: str
    sql: str
    statuses: tuple[str, ...]


def _all(statuses: tuple[str, ...], **queries: str) -> list[Hostile]:
    return [Hostile(name, sql, statuses) for name, sql in queries.items()]


def _numbers(count: int, name: str = "r") -> str:
    """A common table of the numbers from 1."""
    return (
        f"WITH RECURSIVE {name}(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM {name} LIMIT {count}) "
    )


def _nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


def _doubling_ctes(levels: int) -> str:
    """Each common table joins the one before with itself: expanded when compiled, 2^levels."""
    tables = ["c0 AS (SELECT 1 AS x)"]
    tables += [f"c{i} AS (SELECT a.x FROM c{i - 1} a, c{i - 1} b)" for i in range(1, levels + 1)]
    return f"WITH {', '.join(tables)} SELECT count(*) FROM c{levels}"


CORPUS = [
    *_all(
        REFUSED,
        insert="INSERT INTO item VALUES (9, 'x', 1)",
        insert_returning="INSERT INTO item VALUES (9, 'x', 1) RETURNING name",
        insert_select="WITH x AS (SELECT 1) INSERT INTO gone SELECT * FROM x",
        replace_row="REPLACE INTO item VALUES (1, 'x', 1)",
        upsert="INSERT INTO item VALUES (1,'x',1) ON CONFLICT(id) DO UPDATE SET name = 'y'",
        update="UPDATE item SET name = 'x'",
        update_cte="WITH x AS (SELECT 1) UPDATE item SET name = 'x' RETURNING name",
        update_schema="UPDATE sqlite_master SET sql = ''",
        delete="DELETE FROM item",
        delete_returning="DELETE FROM item WHERE 1 RETURNING name",
        drop="DROP TABLE item",
        alter="ALTER TABLE item RENAME TO other",
        create="CREATE TABLE w(a)",
        create_as="CREATE TABLE w AS SELECT * FROM item",
        create_temp="CREATE TEMP TABLE w AS SELECT * FROM item",
        create_temp_trigger="CREATE TEMP TRIGGER t AFTER INSERT ON item BEGIN SELECT 1; END",
        create_index="CREATE INDEX i ON item(name)",
        create_virtual="CREATE VIRTUAL TABLE temp.f USING fts5(x)",
        explain_delete="EXPLAIN DELETE FROM item",
        begin="BEGIN IMMEDIATE",
        savepoint="SAVEPOINT s",
        rollback="ROLLBACK",
        reindex="REINDEX",
        analyze="ANALYZE",
        vacuum="VACUUM",
        vacuum_into="VACUUM INTO 'copy.sqlite'",
        vacuum_into_expression="VACUUM main INTO 'co' || 'py.sqlite'",
        attach="ATTACH 'made.sqlite' AS z",
        attach_memory="ATTACH ':memory:' AS z",
        attach_uri="ATTACH 'file:made.sqlite?mode=rwc' AS z",
        attach_commented="/**/ATTACH/**/'made.sqlite'/**/AS/**/z",
        detach="DETACH main",
        extension="SELECT load_extension('./evil.so')",
        extension_quoted="""SELECT "load_extension"('./evil.so', 'entry')""",
        tokenizer_pointer="SELECT fts3_tokenizer('simple', x'4141414141414141')",
        pragma_journal="PRAGMA journal_mode = WAL",
        pragma_writable="PRAGMA writable_schema = ON",
        pragma_query_only="PRAGMA query_only = 0",
        pragma_version="PRAGMA user_version(7)",
        pragma_heap="PRAGMA hard_heap_limit = 1000000000000",
        pragma_soft_heap="PRAGMA soft_heap_limit = 1",
        pragma_mmap="PRAGMA mmap_size = 1000000000000",
        pragma_cache="PRAGMA cache_size = -1000000000",
        pragma_temp="PRAGMA temp_store = FILE",
        pragma_temp_directory="PRAGMA temp_store_directory = '.'",
        pragma_trusted="PRAGMA trusted_schema = ON",
        pragma_like="PRAGMA case_sensitive_like = ON",
        pragma_qualified="PRAGMA main.user_version = 3",
        pragma_checkpoint="PRAGMA wal_checkpoint(TRUNCATE)",
        pragma_integrity="PRAGMA integrity_check",
        pragma_optimize="PRAGMA optimize",
        pragma_files="PRAGMA database_list",
        pragma_files_as_table="SELECT file FROM pragma_database_list",
        two_statements="SELECT name FROM item; DROP TABLE item",
        two_selects="SELECT name FROM item; SELECT name FROM item",
        second_after_comment="SELECT name FROM item /* ; */ ; -- ;\n SELECT 1",
        nul_between="SELECT name FROM item\0; DROP TABLE item",
        many_statements="SELECT 1;" * 100_000,
        too_long="SELECT 1 --" + "x" * 1_100_000,
    ),
    *_all(
        ERROR,
        shell_command=".shell rm -rf .",
        shell_open=".open made.sqlite\nSELECT 1",
        write_file="SELECT writefile('made.txt', 'x')",
        read_file="SELECT readfile('/etc/passwd')",
        list_files="SELECT * FROM fsdir('.')",
        open_quote="SELECT 'open",
        open_bracket="SELECT [open",
        nul_within="SELECT name\0 FROM item",
        nul_alone="\0",
        half_surrogate="SELECT '\ud800'",
        not_utf8=b"SELECT '\xff\xfe' FROM item".decode("utf-8", "surrogateescape"),
        wide_semicolon="SELECT name FROM item\uff1b DROP TABLE item",
        no_break_space="SELECT\u00a0name FROM item",
        zero_width="SELECT\u200bname FROM item",
        parameters="SELECT ?, :a, @b, $c",
        too_many_parameters="SELECT ?999999999",
        too_many_joins=f"SELECT 1 FROM {', '.join(f'item a{i}' for i in range(70))}",
        too_many_columns=f"SELECT {', '.join('1' for _ in range(5_000))}",
        too_many_unions=" UNION ALL ".join(["SELECT 1"] * 1_000),
        too_many_arguments=f"SELECT max({','.join('1' for _ in range(5_000))})",
        deep_parentheses="SELECT " + _nested("(", "1", ")", 50_000),
        deep_not="SELECT " + "NOT " * 200_000 + "1",
        deep_minus="SELECT " + "- " * 400_000 + "1",
        deep_and="SELECT " + " AND ".join(["1"] * 100_000),
        deep_concatenation="SELECT " + "||".join(["'a'"] * 100_000),
        deep_calls="SELECT " + _nested("abs(", "1", ")", 5_000),
        deep_cases="SELECT " + _nested("CASE WHEN 1 THEN ", "1", " END", 5_000),
        deep_selects="SELECT " + _nested("(SELECT ", "1", ")", 5_000),
        deep_from=_nested("SELECT * FROM (", "SELECT 1", ")", 5_000),
        deep_json=f"SELECT json('{_nested('[', '', ']', 20_000)}')",
        circular="WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a",
        overflow="SELECT abs(-9223372036854775808)",
        sum_overflow="SELECT sum(n) FROM (SELECT 9223372036854775807 AS n UNION ALL SELECT 1)",
        megabyte_of_words="SELECT " + "a " * 490_000,
        megabyte_of_operators="SELECT 1" + "+" * 990_000,
        megabyte_of_parentheses="(" * 999_000,
        regexp="SELECT name FROM item WHERE name REGEXP '(a+)+$'",
        no_function="SELECT eval('DROP TABLE item')",
    ),
    *_all(
        ("no_query",),
        nothing="",
        semicolons=";" * 500_000,
        comment_alone="-- SELECT name FROM item",
        megabyte_of_comment="/*" + "x" * 990_000,
    ),
    *_all(
        DIFFERENT,
        megabyte_of_text=f"SELECT '{'x' * 990_000}'",
        megabyte_of_blanks="SELECT" + " " * 990_000 + "1",
        megabyte_of_list=f"SELECT 1 WHERE 1 IN ({', '.join(map(str, range(120_000)))})",
        unicode_names="SELECT id AS \u202eeman, id AS \U0001f600, id AS \u0130 FROM item",
        control_characters="SELECT '\x01\x1b[2J\x7f\u2028' FROM item",
        nul_in_text="SELECT char(0, 1, 0) FROM item",
        text_not_utf8="SELECT CAST(x'fffe80' AS TEXT) FROM item",
        blob="SELECT x'00ff' FROM item",
        infinity="SELECT 9e999, -9e999 FROM item",
        not_a_number="SELECT 9e999 - 9e999 FROM item",
        schema_text="SELECT sql FROM sqlite_master",
        misread_name='SELECT "no such column" FROM item',
        many_columns=f"SELECT {', '.join(f'1 AS c{i}' for i in range(1_900))} FROM item",
        explained="EXPLAIN SELECT * FROM item",
    ),
    *_all(
        ("too_large", "different"),  # NULL, where printf gives up by itself
        printf_width="SELECT printf('%999999999d', 1)",
        printf_star="SELECT printf('%*d', 2147483647, 1)",
        printf_digits="SELECT printf('%.999999999f', 1.0)",
    ),
    *_all(
        DEEP,
        deep_like=f"SELECT '{'a' * 40_000}' LIKE '{'%a' * 24_000}b'",
        wide_case="SELECT CASE " + "WHEN 0 THEN 1 " * 30_000 + "END",
        deep_json_tree="SELECT count(*) FROM json_tree("
        f"""'{_nested('{"a":', "1", "}", 900)}')""",
    ),
    *_all(
        TIMEOUT,
        endless="WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
        " SELECT count(*) FROM r",
        endless_limit="WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r)"
        " SELECT n FROM r WHERE n > 1 LIMIT 1",
        cross_join=_numbers(1_000) + "SELECT count(*) FROM r a, r b, r c, r d",
        cross_join_stored=f"SELECT count(*) FROM {', '.join(f'item t{i}' for i in range(30))}",
        correlated=_numbers(20_000)
        + "SELECT count(*) FROM r a WHERE (SELECT count(*) FROM r b WHERE b.n * a.n = 7) > 0",
        aggregate_of_join=_numbers(5_000) + "SELECT sum(a.n * b.n * c.n % 7) FROM r a, r b, r c",
        exists=_numbers(3_000)
        + "SELECT 1 WHERE EXISTS (SELECT 1 FROM r a, r b, r c WHERE a.n + b.n + c.n < 0)",
        window=_numbers(100_000)
        + "SELECT max(s) FROM (SELECT sum(n) OVER (ORDER BY n ROWS BETWEEN 50000 PRECEDING AND"
        " 50000 FOLLOWING EXCLUDE CURRENT ROW) AS s FROM r)",
        like_bomb=f"SELECT hex(zeroblob(450000)) LIKE '%{'0' * 40_000}1'",
        glob_bomb=f"SELECT hex(zeroblob(450000)) GLOB '*{'0' * 40_000}1'",
        instr_stuck="SELECT instr(zeroblob(30000000), CAST(zeroblob(10000000) || x'01' AS BLOB))",
        replace_stuck="SELECT length(replace(hex(zeroblob(15000000)),"
        " hex(zeroblob(5000000)) || '1', 'b'))",
        trim_bomb=_numbers(1_000_000)
        + "SELECT sum(length(trim(hex(zeroblob(100000 + n)), '0123456789'))) FROM r",
        printf_bomb=_numbers(1_000_000) + "SELECT sum(length(printf('%900000d', n))) FROM r",
        random_bomb=_numbers(1_000_000) + "SELECT max(hex(randomblob(400000 + n))) FROM r",
        upper_bomb=_numbers(1_000_000)
        + "SELECT sum(length(upper(hex(zeroblob(900000 + n))))) FROM r",
        date_bomb=_numbers(100_000_000)
        + "SELECT max(strftime('%Y-%m-%d', 2400000 + n % 1000, '+1 month')) FROM r",
        json_bomb=_numbers(1_000_000)
        + "SELECT count(*) FROM r, json_each((SELECT json_group_array(n) FROM r LIMIT 10000))",
        json_patch_bomb=_numbers(1_000_000)
        + "SELECT sum(length(json_patch(json_array(a.n, b.n), json_object('a', b.n))))"
        " FROM r a, r b",
        quote_bomb=_numbers(1_000_000) + "SELECT sum(length(quote(zeroblob(900000 + n)))) FROM r",
        delayed_first_row=_numbers(10_000)
        + "SELECT a.n FROM r a, r b, r c WHERE a.n + b.n + c.n = -1",
    ),
    *_all(
        SLOW,
        doubling_ctes=_doubling_ctes(40),
        sort_bomb=_numbers(3_000) + "SELECT a.n FROM r a, r b ORDER BY random()",
        distinct_bomb=_numbers(10_000) + "SELECT count(DISTINCT a.n * 10000 + b.n) FROM r a, r b",
        union_bomb="WITH RECURSIVE r(n, t) AS (SELECT 1, hex(randomblob(1000)) UNION"
        " SELECT n + 1, hex(randomblob(1000)) FROM r) SELECT count(*) FROM r",
        doubling_text="WITH RECURSIVE r(t) AS (SELECT 'ab' UNION ALL SELECT t || t FROM r)"
        " SELECT max(length(t)) FROM r",
        concat_bomb=_numbers(10_000_000) + "SELECT length(group_concat(n, 'xxxxxxxx')) FROM r",
        json_group_bomb=_numbers(10_000_000) + "SELECT length(json_group_array(hex(n))) FROM r",
        json_object_bomb=_numbers(10_000_000) + "SELECT json_group_object(n, n) FROM r",
        sorted_blobs=_numbers(100_000)
        + "SELECT length(b) FROM (SELECT randomblob(900000) AS b FROM r ORDER BY b)",
        materialised=_numbers(3_000)
        + ", m AS MATERIALIZED (SELECT a.n, randomblob(1000) AS b FROM r a, r b)"
        " SELECT count(*) FROM m, m AS o",
        window_bomb=_numbers(3_000)
        + "SELECT max(x) FROM (SELECT group_concat(a.n) OVER () AS x FROM r a, r b)",
        rows=_numbers(10_000_000) + "SELECT n, n, n FROM r",
        rows_of_join=_numbers(300) + "SELECT a.n, b.n FROM r a, r b, r c",
        wide_rows=_numbers(1_000_000) + f"SELECT {', '.join(['n'] * 1_900)} FROM r",
        megabyte_rows=_numbers(10_000) + "SELECT hex(randomblob(400000)) FROM r",
        one_row_of_blobs=f"SELECT {', '.join(['randomblob(900000)'] * 1_900)}",
        values_doubled="SELECT a.*, b.*, c.* FROM item a, item b, item c, item d, item e, item f,"
        " item g, item h, item i, item j, item k, item l, item m",
    ),
    *_all(
        TOO_LARGE,
        zeroblob="SELECT zeroblob(900000000)",
        zeroblob_limit="SELECT zeroblob(2147483647)",
        zeroblob_joined="SELECT length(zeroblob(900000000) || 'x')",
        hex_chain="SELECT hex(hex(hex(hex(hex(hex(hex(hex(hex(hex(zeroblob(1000000)))))))))))",
        replace_chain="SELECT replace(replace(replace(hex(zeroblob(500000)), '0', '00000000'),"
        " '0', '00000000'), '0', '00000000')",
    ),
]  # fmt: skip
