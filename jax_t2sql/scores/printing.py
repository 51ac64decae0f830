"""Failures as a person reads them in a terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from jax_t2sql.scores.guess import CLASSES
from jax_t2sql.scores.tables import console, printable, table

_MAX_COLUMNS = 8
_MAX_TEXT = 2_000


def print_failures(
    failures: Sequence[Mapping[str, Any]], *, shown: int, title: str, whole: bool = False
) -> None:
    """Prints counts of what is wrong, then the first failures one by one, cut where they are long
    unless they are to be shown whole."""
    out = console()
    out.print(title)
    kinds = Counter(kind for row in failures for kind in {d["kind"] for d in row["differences"]})
    if kinds:
        counts = table(["difference in the query", "answers", "share"])
        for kind, count in kinds.most_common():
            counts.add_row(kind, str(count), f"{count / len(failures):.0%}")
        out.print(counts)
    guesses = Counter(row["guess"]["name"] for row in failures if row["guess"])
    if guesses:
        counts = table(["whose fault (a guess)", "answers", "share"])
        for name, count in guesses.most_common():
            counts.add_row(f"{name}: {CLASSES[name]}", str(count), f"{count / len(failures):.0%}")
        out.print(counts)
    for row in failures[:shown]:
        _print_failure(row, whole)
    if len(failures) > shown:
        out.print(f"\n… and {len(failures) - shown} more, all in failures.jsonl")


def _print_failure(row: Mapping[str, Any], whole: bool) -> None:
    out = console()

    def line(text: str) -> None:
        left = len(text) - _MAX_TEXT
        if left > 0 and not whole:
            text = f"{text[:_MAX_TEXT]}… and {left:,} more characters"
        out.print(text, soft_wrap=True)

    out.rule(printable(f"{row['question_id']} · {row['db_id']}"), align="left")
    line(_plain(row["question"]))
    if row["evidence"]:
        line(f"knowledge: {_plain(row['evidence'])}")
    line(f"gold:      {_plain(row['gold_sql'])}")
    line(f"predicted: {_plain(row['predicted_sql'] or 'no query')}")
    line(f"verdict:   {row['verdict']}" + (f", {_plain(row['detail'])}" if row["detail"] else ""))
    for difference in row["differences"]:
        line(f"  - {difference['kind']}: {_plain(difference['text'])}")
    if row["guess"]:
        line(f"guess:     {row['guess']['name']} ({_plain(row['guess']['why'])})")
    out.print(_beside(row["gold"], row["predicted"]))
    example = row["counterexample"]
    if example:
        line(f"counterexample ({_plain(example['reason'])}), all other tables being empty:")
        script = example["database"].strip().splitlines()
        inserts = [text for text in script if text.upper().startswith("INSERT")]
        for text in inserts or ["  no rows at all"]:
            line(f"  {_plain(text)}")
        out.print(_beside(example["gold"], example["predicted"]))


def _beside(gold: Mapping[str, Any], pred: Mapping[str, Any]) -> Table:
    both = Table.grid(padding=(0, 4))
    both.add_row(_result("gold", gold), _result("predicted", pred))
    return both


def _result(name: str, result: Mapping[str, Any]) -> Table | str:
    if "message" in result:
        return printable(f"{name}: {result['message']}")
    made = Table(title=f"{name}: {result['n_rows']} rows", title_justify="left", box=box.SIMPLE)
    columns = result["columns"][:_MAX_COLUMNS]
    for column in columns:
        made.add_column(printable(column))
    for row in result["rows"]:
        made.add_row(*(printable(cell) for cell in row[: len(columns)]))
    if result["n_rows"] > len(result["rows"]):
        made.caption = f"and {result['n_rows'] - len(result['rows']):,} more"
    return made


def _plain(text: str) -> str:
    """Text without characters that a terminal would act on, however long."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)
