"""Tier four: date arithmetic, counts by year, growth between years."""

from __future__ import annotations

from data_pipelines.onedb.columns import Column
from data_pipelines.onedb.draft import Draft, Draw, Source, family, where
from data_pipelines.onedb.scan import Table


def _dated(d: Draw, table: Table) -> Column:
    return d.column(table, "date")


@family(4)
def days_between(d: Draw) -> Draft:
    """Days from one date of a row to another."""
    table = d.table(lambda t: bool(t.label))
    first = _dated(d, table)
    second = d.column(table, "date", but=[first])
    source = Source((table.name,))
    early, late = source.ref(0, first.name), source.ref(0, second.name)
    span = f"JULIANDAY({late}) - JULIANDAY({early})"
    orders = d.live.run(f"SELECT COUNT(*), SUM({late} < {early}) {source.sql}").rows[0]
    if orders[1] is None or orders[1] > 0.05 * orders[0]:
        raise LookupError("the dates do not follow each other")
    many, a, b = d.voice.many(table.name), d.voice.noun(first), d.voice.noun(second)
    return Draft(
        family="days_between",
        tier=4,
        sql=f"SELECT AVG({span}) {source.sql}",
        asks=(f"the average number of days between {a} and {b} of the {many}",),
        many=False,
        questions=(f"How many days lie between {a} and {b} of the {many} on average?",),
        weaker=(f"SELECT MAX({span}) {source.sql}",),
        subject=table.name,
    )


@family(4)
def by_month_or_year(d: Draw) -> Draft:
    """Counts for each year of a date."""
    table = d.table()
    column = _dated(d, table)
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    guard = [f"{ref} IS NOT NULL"] if column.nulls else []
    part, word = d.rng.choice((("%Y", "year"), ("%Y", "year"), ("%Y-%m", "month (as YYYY-MM)")))
    year = f"STRFTIME('{part}', {ref})"
    many, noun = d.voice.many(table.name), d.voice.noun(column)
    left = f", leaving out those with no {noun}" if guard else ""
    return Draft(
        family="by_month_or_year",
        tier=4,
        sql=f"SELECT {year}, COUNT(*) {source.sql}{where(*guard)} GROUP BY {year}",
        asks=(f"each {word} of the {noun} with the number of {many}{left}",),
        questions=(f"How many {many} are there for each {word} of the {noun}{left}?",),
        many=False,
        weaker=(f"SELECT {ref}, COUNT(*) {source.sql} GROUP BY {ref}",),
        subject=table.name,
    )


@family(4)
def growth(d: Draw) -> Draft:
    """By what percentage a count or a total changed from one year to a later one."""
    table = d.table()
    column = d.column(table, "date", "year")
    source = Source((table.name,))
    ref = source.ref(0, column.name)
    year = f"STRFTIME('%Y', {ref})" if column.kind == "date" else ref
    per_year = d.live.run(
        f"SELECT {year}, COUNT(*) {source.sql}{where(f'{ref} IS NOT NULL')} GROUP BY 1"
    ).rows
    years = [y for y, count in per_year if y is not None and count >= 2]
    if len(years) < 2:
        raise LookupError("fewer than two years")
    first, second = sorted(d.rng.sample(years, 2))
    numbers = [c for c in d.live.usable(table, "number") if c.additive]
    number = d.choose(numbers) if numbers and d.rng.random() < 0.5 else None
    what = source.ref(0, number.name) if number else "1"
    told = [f"{year} = {y!r}" for y in (first, second)]
    a, b = (f"SUM(CASE WHEN {t} THEN {what} ELSE 0 END)" for t in told)
    many = d.voice.many(table.name)
    thing = f"total {d.voice.noun(number)} of the {many}" if number else f"number of {many}"
    dated = f"by {d.voice.noun(column)}"
    return Draft(
        family="growth",
        tier=4,
        sql=f"SELECT CAST({b} - {a} AS REAL) * 100 / {a} {source.sql}",
        asks=(
            f"the percentage by which the {thing} grew from {first} to {second} ({dated};"
            " negative if it fell)",
        ),
        many=False,
        weaker=(f"SELECT CAST({a} - {b} AS REAL) * 100 / {b} {source.sql}",),
        subject=table.name,
    )
