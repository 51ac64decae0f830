"""The figures as a person reads them when an evaluation ends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MOST_DATABASES = 12


def headline(results: Mapping[str, Any]) -> str:
    """Accuracy in a line, with all that it depends on.

    >>> headline({"accuracy": 0.5, "wilson_low": 0.1, "wilson_high": 0.9, "n": 2, "grader": "set",
    ...           "key": "gold", "decoding": "greedy", "left_out": {"no database": 3}, "untold": 1})
    '50.0% (95 % interval 10.0% to 90.0%), n = 2 of 6 (3 no database, 1 untold), greedy, grader set'
    """
    left_out = dict(results["left_out"])
    if results["untold"]:
        left_out["untold"] = results["untold"]
    whole = ""
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        whole = f" of {results['n'] + sum(left_out.values()):,} ({reasons})"
    key = "" if results["key"] == "gold" else f", key {results['key']}"
    return (
        f"{results['accuracy']:.1%} (95 % interval {results['wilson_low']:.1%} to"
        f" {results['wilson_high']:.1%}), n = {results['n']:,}{whole}, {results['decoding']},"
        f" grader {results['grader']}{key}"
    )


def print_results(results: Mapping[str, Any], page: Path) -> None:
    """Prints the headline, parts of it, other graders, keys and votes."""
    from rich.console import Console
    from rich.table import Table

    console = Console(
        markup=False, highlight=False, soft_wrap=True
    )  # names come from the user's files
    table = Table(title=str(results["manifest"]["policy"]))
    for heading in ("", "accuracy", "95 % interval", "n"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, part in _rows(results):
        low, high = part["wilson_low"], part["wilson_high"]
        table.add_row(name, f"{part['accuracy']:.1%}", f"{low:.1%} – {high:.1%}", f"{part['n']:,}")
    for name, part in results["graders"].items():
        if "mean" in part and part["mean"] is not None:
            table.add_row(f"grader {name}", f"{part['mean']:.3g}", "mean", f"{part['n']:,}")
    console.print(table)
    curve = results.get("self_consistency")
    if curve:
        console.print(_curve_table(curve))
        if len(results["graders"]) > 1:
            console.print(_votes_table(results["graders"]))
        if results["decoding"] != "greedy":
            console.print(
                f"all is the mean of {curve['draws']} draws of the vote; the rows by difficulty,"
                " database and grader are of the first draw"
            )
    for name, key in results["keys"].items():
        if len(results["keys"]) > 1:
            console.print(f"key {name}: {key['correct']:,} of {key['n']:,} right")
    if len(results["keys"]) > 1:
        console.print(
            f"{len(results['key_disagreements'])} answers right under one key and wrong under"
            f" another; gold results differ on {len(results['differing_golds'])} questions"
        )
    if results["untold"]:
        console.print(
            f"{results['untold']:,} questions do not count, as nothing can be told: the gold query"
            " fails or the machine did (verdicts.jsonl)"
        )
    silent = {k: n for k, n in results["endings"].items() if k not in ("answer", "error")}
    if silent:
        told = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in silent.items())
        console.print(
            f"{sum(silent.values()):,} of {sum(results['endings'].values()):,} answers hold no"
            f" query and count as wrong: {told}"
        )
    if results["endings"].get("contract_broken", 0) * 2 > sum(results["endings"].values()):
        console.print(
            "most answers are not in the form that was asked for: was the model trained with"
            " another --style?"
        )
    failed = results["endings"].get("error", 0)
    if failed:
        console.print(f"{failed:,} answers failed and count as wrong; run again to ask them again")
    others = len(results["by"].get("database", {})) - _MOST_DATABASES
    if others > 0:
        console.print(f"{others:,} more databases are in results.json and on the page")
    price = results["cost"].get("dollars")
    if price is not None:
        right = results["cost"]["dollars_per_1000_correct"]
        told = f", ${right:,.4g} for 1,000 correct" if right is not None else ""
        console.print(f"cost: ${price:,.4g}{told} ({results['cost']['priced_by']})")
    console.print(headline(results))
    console.print(f"{page}, and results.json, answers.jsonl and verdicts.jsonl beside it")


def _rows(results: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """All, without evidence, by difficulty, by database (the largest), under the other graders."""
    rows = [("all", results)]
    if "without_evidence" in results:
        rows.append(("without evidence", results["without_evidence"]))
    by = results["by"]
    rows += [(name, part) for name, part in by.get("difficulty", {}).items()]
    databases = sorted(by.get("database", {}).items(), key=lambda item: -item[1]["n"])
    rows += databases[:_MOST_DATABASES]
    rows += [
        (f"grader {name}", part)
        for name, part in results.get("graders", {}).items()
        if name != results["grader"] and "accuracy" in part
    ]
    return rows


def _curve_table(curve: Mapping[str, Any]):
    """Votes of n and pass@n at powers of two and at the end."""
    from rich.table import Table

    table = Table(title=f"self-consistency, mean of {curve['draws']} draws")
    for heading in ("candidates", "accuracy", "95 % interval", "pass@n"):
        table.add_column(heading, justify="right")
    last = len(curve["n"])
    for n in (n for n in curve["n"] if n & (n - 1) == 0 or n == last):
        low, high, i = curve["low"][n - 1], curve["high"][n - 1], n - 1
        table.add_row(
            str(n), f"{curve['accuracy'][i]:.1%}", f"{low:.1%} – {high:.1%}",
            f"{curve['pass_at_k'][i]:.1%}",
        )  # fmt: skip
    return table


def _votes_table(graders: Mapping[str, Mapping[str, Any]]):
    """The vote of all candidates under every grader that says right or wrong."""
    from rich.table import Table

    voted = {name: part["votes"] for name, part in graders.items() if "votes" in part}
    count = max(part["candidates"] for part in voted.values())
    table = Table(title=f"vote of {count} candidates")
    table.add_column("grader")
    for heading in ("accuracy", "95 % interval", f"pass@{count}"):
        table.add_column(heading, justify="right")
    for name, part in voted.items():
        low, high = part["wilson_low"], part["wilson_high"]
        table.add_row(
            name, f"{part['accuracy']:.1%}", f"{low:.1%} – {high:.1%}", f"{part['pass_at_k']:.1%}"
        )
    return table
