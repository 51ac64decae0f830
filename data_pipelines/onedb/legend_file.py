"""The file of a legend: YAML, checked name by name and value by value against the database."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_pipelines.onedb.legend import ColumnWords, JoinWords, Legend, TableWords, draft
from data_pipelines.onedb.scan import Scan, Table
from data_pipelines.onedb.words import plural
from jax_t2sql.errors import UserError


def to_plain(legend: Legend, scan: Scan) -> dict[str, Any]:
    """The legend as plain data, in the layout of its file."""
    tables: dict[str, Any] = {}
    for table in scan.tables:
        words = legend.tables[table.name]
        columns = {}
        for column in table.columns:
            own = words.columns[column.name]
            entry: dict[str, Any] = {"noun": own.noun}
            if own.other_nouns:
                entry["other_nouns"] = list(own.other_nouns)
            if own.unit:
                entry["unit"] = own.unit
            if own.meaning:
                entry["meaning"] = own.meaning
            if own.values:
                entry["values"] = dict(own.values)
            elif column.kind in ("category", "flag") and _coded(column.values):
                entry["values"] = {str(v): "" for v, _ in column.values}
            if not own.use:
                entry["use"] = False
            columns[column.name] = entry
        tables[table.name] = {
            "noun": words.noun,
            "plural": words.plural,
            "other_nouns": dict(words.other_nouns),
            "purpose": words.purpose,
            "columns": columns,
        }
    joins = {
        name: {"role": words.role, "other_roles": list(words.other_roles)}
        for name, words in legend.joins.items()
    }
    links = {name: list(phrases) for name, phrases in legend.links.items()}
    return {"tables": tables, "joins": joins, "links": links}


def _coded(values: tuple[tuple[object, int], ...]) -> bool:
    """Whether the values look like codes that mean something to insiders alone."""
    texts = [str(value) for value, _ in values]
    return bool(texts) and len(texts) <= 12 and all(len(t) <= 3 for t in texts)


_HEAD = """\
# What tables, columns, stored codes and joins are called. Edit freely and keep the keys.
# noun: one word or phrase, singular; other_nouns: further ordinary ones (for tables with plurals).
# values: what a stored code means ("" = say the code itself). use: false keeps a column out.
# joins: what the parent is to the child (a hero's "eye colour"). links: what stands between the
# two sides of a table that only links ("students enrolled in the course …").
"""


def dump(legend: Legend, scan: Scan) -> str:
    """The legend as YAML text."""
    import yaml

    body = yaml.safe_dump(
        to_plain(legend, scan),
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
    return _HEAD + body


def load(path: Path, scan: Scan) -> Legend:
    """Reads a legend file and checks it against the database.

    What the file leaves out is as `draft` has it.

    Raises:
      UserError: no such file, no YAML, or a name or value that the database lacks.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--legend {path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())
        raise UserError(f"--legend {path}: is no YAML ({told}); mend that line") from None
    return from_plain(data, scan, where=f"--legend {path}")


def from_plain(data: object, scan: Scan, *, where: str) -> Legend:
    """A legend from plain data; raises UserError for what does not fit the database."""
    base = draft(scan)
    told = _mapping(data, where)
    _known(told, ("tables", "joins", "links"), where)
    tables = dict(base.tables)
    for name, value in _mapping(told.get("tables"), f"{where}: tables").items():
        _known([name], tables, f"{where}: tables")
        tables[name] = _read_table(tables[name], value, scan.table(name), f"{where}: {name}")
    joins = dict(base.joins)
    for name, value in _mapping(told.get("joins"), f"{where}: joins").items():
        _known([name], joins, f"{where}: joins")
        entry = _mapping(value, f"{where}: {name}")
        _known(entry, ("role", "other_roles"), f"{where}: {name}")
        role = _text(entry.get("role", joins[name].role), f"{where}: {name}: role")
        joins[name] = JoinWords(role, _texts(entry.get("other_roles"), f"{where}: {name}"))
    links = dict(base.links)
    for name, value in _mapping(told.get("links"), f"{where}: links").items():
        _known([name], tables, f"{where}: links")
        links[name] = _texts(value, f"{where}: {name}") or base.links.get(name, ("linked to",))
    return Legend(tables, joins, links)


def _read_table(words: TableWords, value: object, table: Table, where: str) -> TableWords:
    entry = _mapping(value, where)
    _known(entry, ("noun", "plural", "other_nouns", "purpose", "columns"), where)
    noun = _text(entry.get("noun", words.noun), f"{where}: noun")
    default = words.plural if noun == words.noun else plural(noun)
    columns = dict(words.columns)
    for name, own in _mapping(entry.get("columns"), f"{where}: columns").items():
        _known([name], columns, f"{where}: columns")
        columns[name] = _read_column(columns[name], own, table, name, f"{where}.{name}")
    return TableWords(
        noun,
        _text(entry.get("plural", default), f"{where}: plural"),
        _mapping(entry.get("other_nouns", words.other_nouns), f"{where}: other_nouns"),
        str(entry.get("purpose") or ""),
        columns,
    )


def _read_column(
    words: ColumnWords, value: object, table: Table, name: str, where: str
) -> ColumnWords:
    entry = _mapping(value, where)
    _known(entry, ("noun", "other_nouns", "unit", "meaning", "values", "use"), where)
    column = table.column(name)
    stored = {str(v) for v, _ in column.values}
    meanings = {}
    for code, meaning in _mapping(entry.get("values"), f"{where}: values").items():
        if str(code) not in stored and column.distinct <= len(column.values):
            raise UserError(f"{where}: no row has the value {code!r}; " + _near(str(code), stored))
        if meaning not in (None, ""):
            meanings[str(code)] = _text(meaning, f"{where}: values: {code}")
    use = entry.get("use", True)
    if not isinstance(use, bool):
        raise UserError(f"{where}: use is {use!r}; it must be true or false")
    return ColumnWords(
        _text(entry.get("noun", words.noun), f"{where}: noun"),
        _texts(entry.get("other_nouns", list(words.other_nouns)), f"{where}: other_nouns"),
        str(entry.get("unit", words.unit) or ""),
        str(entry.get("meaning", words.meaning) or ""),
        meanings,
        use,
    )


def _mapping(value: object, where: str) -> dict:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: expected names with values below them, got {value!r}")
    return dict(value)


def _known(names, known, where: str) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: {name!r} is not known here; {_near(str(name), known)}")


def _near(name: str, known) -> str:
    texts = [str(k) for k in known]
    near = difflib.get_close_matches(name, texts, n=3) or sorted(texts)[:5]
    return f"there are {', '.join(near)}"


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value.strip():
        raise UserError(f"{where}: expected a word or phrase on one line, got {value!r}")
    return value.strip()


def _texts(value: object, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UserError(f"{where}: expected a list of phrases, got {value!r}")
    return tuple(_text(item, where) for item in value)
