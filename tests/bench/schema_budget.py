"""How often a schema cut down to part of its length still has all columns of the gold query.

    python tests/bench/schema_budget.py [--data DIR]

Uses the questions of BIRD-Verified val on schemas of 40 columns and more, without descriptions or
values: names alone must lead to the columns. A column counts as the gold's if the query names it
and its table; that errs on the side of too many. Length is in pieces of words, by no model's
tokenizer.
"""

import argparse
import functools
import json
import os
import re
import time
from pathlib import Path

from jax_t2sql.sql.tokens import significant
from jax_t2sql.text2sql.ddl import read_ddl, read_ddl_file
from jax_t2sql.text2sql.schema_budget import fit_schema
from jax_t2sql.text2sql.schema_text import print_schema

_PARTS = (0.75, 0.5, 0.25)
_MIN_COLUMNS = 40


@functools.lru_cache(maxsize=4096)
def count(text: str) -> int:
    return len(re.findall(r"\w{1,4}|\W", text))


def columns(doc) -> set[tuple[str, str]]:
    return {(t.name.lower(), c.name.lower()) for t in doc.schema.tables for c in t.columns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("JAX_T2SQL_DATA"))
    folder = Path(parser.parse_args().data) / "bird_platinum"
    kept = dict.fromkeys(_PARTS, 0)
    shown = dict.fromkeys(_PARTS, 0.0)
    questions, docs, started = 0, {}, time.process_time()
    for line in (folder / "bird_verified_val.jsonl").read_text().splitlines():
        row = json.loads(line)
        path = folder / "ddls_clean" / f"{row['db_id']}.sql"
        doc = docs.setdefault(path, docs.get(path) or read_ddl_file(path))
        every = columns(doc)
        if len(every) < _MIN_COLUMNS:
            continue
        questions += 1
        names = {token.value.lower() for token in significant(row["SQL"])}
        gold = {(table, column) for table, column in every if {table, column} <= names}
        about = f"{row['question']} {row['evidence']}"
        for part in _PARTS:
            budget = int(count(print_schema(doc)) * part)
            fitted = fit_schema(doc, budget=budget, count=count, about=about)
            kept[part] += gold <= columns(read_ddl(fitted.text))
            shown[part] += fitted.columns / fitted.all
    seconds = time.process_time() - started
    for part in _PARTS:
        print(
            f"{part:.0%} of the length: {shown[part] / questions:.0%} of the columns, all gold"
            f" columns in {kept[part] / questions:.1%} of {questions} questions"
        )
    print(f"{1000 * seconds / questions / len(_PARTS):.1f} CPU-ms a schema")


if __name__ == "__main__":
    main()
