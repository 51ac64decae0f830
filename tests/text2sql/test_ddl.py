import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_t2sql.errors import UserError
from jax_t2sql.sql import ForeignKey
from jax_t2sql.text2sql.ddl import read_ddl, read_ddl_file

CARELESS = """
CREATE TABLE Sales Orders (
    `OrderNumber` text, -- Order Number. the number: 1, 2.
    OrderDate date not null default '2020,01', /* when */
    `Customer ID` integer,
    amount decimal(10, 2) CHECK (amount IN (1, 2)), -- in dollars
    primary key (OrderNumber),
    foreign key (Customer ID) references customers(ID)
    foreign key (OrderDate) references current-terms (day, more),
)

CREATE TABLE sqlite_sequence(name,seq)

create temp table if not exists [customers] (
    ID INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, -- example: [1, 2]
    "key" TEXT REFERENCES "Sales Orders" ON DELETE CASCADE,
    id text
)
"""


def test_careless_ddl():
    doc = read_ddl(CARELESS)
    orders, customers = doc.schema.tables
    assert (orders.name, customers.name) == ("Sales Orders", "customers")
    assert [(c.name, c.type, c.not_null, c.primary_key) for c in orders.columns] == [
        ("OrderNumber", "TEXT", False, 1),
        ("OrderDate", "date", True, 0),
        ("Customer ID", "INTEGER", False, 0),
        ("amount", "decimal(10, 2)", False, 0),
    ]
    assert orders.foreign_keys == (ForeignKey(("Customer ID",), "customers", ("ID",)),)
    assert [(c.name, c.primary_key) for c in customers.columns] == [("ID", 1), ("key", 0)]
    # Where a key names no column of the other table, it refers to that table's primary key.
    assert customers.foreign_keys == (ForeignKey(("key",), "Sales Orders", ("OrderNumber",)),)
    assert doc.comment("sales orders", "ORDERNUMBER") == "Order Number. the number: 1, 2."
    assert doc.comment("Sales Orders", "OrderDate") == "when"
    assert doc.comment("Sales Orders", "amount") == "in dollars"
    assert doc.comment("customers", "ID") == "example: [1, 2]"


def test_columns_may_have_the_names_of_constraints():
    doc = read_ddl('CREATE TABLE t (key TEXT, "check" INT, unique UNIQUE, index INT)')
    (table,) = doc.schema.tables
    assert [c.name for c in table.columns] == ["key", "check", "unique", "index"]


def test_files_of_any_encoding(tmp_path):
    path = tmp_path / "a.sql"
    for data in (
        b"CREATE TABLE t (a TEXT -- na\xefve \x95\n)",
        "CREATE TABLE t (a TEXT -- naïve •\n)".encode("utf-16"),
        "\ufeffCREATE TABLE t (a TEXT -- naïve •\n)".encode(),
    ):
        path.write_bytes(data)
        assert read_ddl_file(path).comment("t", "a") == "naïve •"


@pytest.mark.parametrize(
    "text", ["", "SELECT 1", "CREATE TABLE", "CREATE TABLE t", "CREATE TABLE t ("]
)
def test_texts_without_a_table_are_refused(text, tmp_path):
    (tmp_path / "a.sql").write_text(text)
    with pytest.raises(UserError, match="a.sql: no CREATE TABLE"):
        read_ddl_file(tmp_path / "a.sql")
    with pytest.raises(UserError, match="none.sql: cannot be read"):
        read_ddl_file(tmp_path / "none.sql")


@given(st.text("CREATE TABLE()\"'`[],;.-/* \nkeyPRIMAREFNS", max_size=80))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(UserError):
        assert read_ddl("CREATE TABLE " + text).schema.tables
