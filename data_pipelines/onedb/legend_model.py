"""Ordinary words for tables and columns from a language model, checked like a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from data_pipelines.onedb.endpoint import Endpoint, json_of
from data_pipelines.onedb.legend import Legend
from data_pipelines.onedb.legend_file import from_plain, to_plain
from data_pipelines.onedb.live import Live
from jax_t2sql.errors import UserError

_SYSTEM = (
    "You name what is in a database table as people who use it would say it. Answer with JSON:"
    ' {"noun": "…", "plural": "…", "purpose": "one sentence", "columns": {"COLUMN": {"noun": "…",'
    ' "other_nouns": ["…"], "meaning": "one sentence", "values": {"CODE": "what it means"}}}}.'
    " Nouns are singular, in small letters, without the table's own name. Give values only where"
    " stored codes need explaining, and leave out what you do not know."
)


def with_model(live: Live, endpoint: Endpoint, say: Callable[[str], None]) -> Legend:
    """The legend with a model's words where they fit the database; else as it was.

    Raises:
      UserError: the endpoint cannot be asked.
    """
    legend = live.legend
    plain = to_plain(legend, live.scan)["tables"]
    for table in live.scan.tables:
        columns = "\n".join(
            f"{c.name}: {c.kind}, such as {', '.join(str(v) for v, _ in c.values[:5])}"
            for c in table.columns
        )
        found = json_of(endpoint.ask(_SYSTEM, f"Table {table.name}, {table.rows} rows\n{columns}"))
        if found is None:
            say(f"{table.name}: no JSON in the answer; the draft stays")
            continue
        merged = {**plain[table.name], **{k: v for k, v in found.items() if k != "columns"}}
        merged["columns"] = {
            name: {**entry, **(found.get("columns") or {}).get(name, {})}
            for name, entry in plain[table.name]["columns"].items()
        }
        try:
            told = from_plain({"tables": {table.name: merged}}, live.scan, where="model")
        except (UserError, TypeError, AttributeError) as error:
            say(f"{table.name}: {error}; the draft stays")
            continue
        tables = {**legend.tables, table.name: told.tables[table.name]}
        legend = replace(legend, tables=tables)
    return legend
