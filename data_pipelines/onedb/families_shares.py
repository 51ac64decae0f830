"""Tier three: percentages, and conditions on two branches of the join graph at once."""

from __future__ import annotations

from data_pipelines.onedb.draft import Draft, Draw, Source, family, where
from data_pipelines.onedb.families_paths import ends, far_condition, several
from data_pipelines.onedb.joins import Path, path_name


def percentage(condition: str, *, of: str = "") -> str:
    """The share of rows that meet a condition, in percent; `of` names what is counted once."""
    if of:
        return (
            f"CAST(COUNT(DISTINCT CASE WHEN {condition} THEN {of} END) AS REAL) * 100"
            f" / COUNT(DISTINCT {of})"
        )
    return f"CAST(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) AS REAL) * 100 / COUNT(*)"


def _shares(d: Draw, rows: str, clause: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Noun phrases and questions for "what percentage of rows meet the clause"."""
    share = d.voice.pick("percentage", "percentage", "share in percent")
    return (
        (f"the {share} of {rows} {clause}",),
        (f"What percentage of {rows} are ones {clause}?",),
    )


@family(3)
def percent(d: Draw) -> Draft:
    table = d.table()
    condition = d.condition(table)
    source = Source((table.name,))
    told = condition.sql(source.ref(0, condition.column.name))
    many = d.voice.many(table.name)
    asks, questions = _shares(d, f"all {many}", d.voice.whose([condition]))
    thing = condition.object_phrase(d.live, d.voice.noun(condition.column))
    if thing:
        questions = (f"What percentage of all {many} have {thing}?",)
    return Draft(
        family="percent",
        tier=3,
        sql=f"SELECT {percentage(told)} {source.sql}",
        asks=asks,
        questions=questions,
        many=False,
        weaker=(f"SELECT COUNT(*) {source.sql}{where(told)}",),
        conditions=(condition,),
        subject=table.name,
    )


@family(3)
def percent_among(d: Draw) -> Draft:
    """Among rows that meet one condition, the share that meets another."""
    table = d.table()
    among, condition = d.conditions(table, 2)
    source = Source((table.name,))
    inner, told = (c.sql(source.ref(0, c.column.name)) for c in (among, condition))
    many = d.voice.many(table.name)
    clause = d.voice.whose([condition])
    thing = condition.object_phrase(d.live, d.voice.noun(condition.column))
    have = f"have {thing}" if thing else f"are ones {clause}"
    rows = f"the {many} {d.voice.whose([among])}"
    return Draft(
        family="percent_among",
        tier=3,
        sql=f"SELECT {percentage(told)} {source.sql}{where(inner)}",
        asks=(f"the percentage, among {rows}, of those {clause}",),
        questions=(f"Among {rows}, what percentage {have}?",),
        many=False,
        weaker=(
            f"SELECT {percentage(told)} {source.sql}",
            f"SELECT {percentage(inner)} {source.sql}{where(told)}",
        ),
        conditions=(among, condition),
        subject=table.name,
    )


@family(3, by_path=True)
def hop_percent(d: Draw, path: Path) -> Draft:
    """Of all rows at one end, the share that meets a condition at the other."""
    table, _ = ends(d, path, link=True)
    condition, _, clause = far_condition(d, path)
    if condition.op in ("missing", "other"):
        raise LookupError("rows without a partner would be in doubt")
    source = Source.of(path, left=True)
    told = condition.sql(source.ref(-1, condition.column.name))
    key = source.ref(0, d.identity(table.name)) if several(path) else ""
    asks, questions = _shares(d, f"all {d.voice.many(table.name)}", clause)
    if clause.startswith("that "):
        have = clause.removeprefix("that ")
        questions = (f"What percentage of all {d.voice.many(table.name)} {have}?",)
    return Draft(
        family="hop_percent",
        tier=3,
        sql=f"SELECT {percentage(told, of=key)} {source.sql}",
        asks=asks,
        questions=questions,
        many=False,
        conditions=(condition,),
        path=path_name(path),
        subject=table.name,
    )


@family(3, by_path=True)
def hop_percent_among(d: Draw, path: Path) -> Draft:
    """Among rows that meet a condition at the far end, the share that meets one of its own."""
    table, _ = ends(d, path)
    among, told_among, clause = far_condition(d, path)
    condition = d.condition(table)
    source = Source.of(path)
    told = condition.sql(source.ref(0, condition.column.name))
    key = source.ref(0, d.identity(table.name)) if several(path) else ""
    rows = f"the {d.voice.many(table.name)} {clause}"
    own = d.voice.whose([condition])
    thing = condition.object_phrase(d.live, d.voice.noun(condition.column))
    have = f"have {thing}" if thing else f"are ones {own}"
    return Draft(
        family="hop_percent_among",
        tier=3,
        sql=f"SELECT {percentage(told, of=key)} {source.sql}{where(told_among)}",
        asks=(f"the percentage, among {rows}, of those {own}",),
        questions=(f"Among {rows}, what percentage {have}?",),
        many=False,
        weaker=(f"SELECT {percentage(told, of=key)} {source.sql}",),
        conditions=(among, condition),
        path=path_name(path),
        subject=table.name,
    )
