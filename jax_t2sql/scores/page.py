"""An evaluation as one self-contained HTML page.

    python -m jax_t2sql.eval report RUN

The page holds its own Plotly and needs no network. Text from models and databases is hostile until
shown otherwise: it reaches the page only through Jinja's autoescape, or as JSON with ``<``, ``>``,
``&`` and ``'`` escaped that the page's script writes with ``textContent`` alone; and a content
security policy forbids every script without the page's nonce and every request.
"""

import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jinja2
import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.scores.browser import bounded, browser_rows
from jax_t2sql.scores.cost_chart import cost_figure
from jax_t2sql.scores.figures import Figure, consistency_figure, shares_figure
from jax_t2sql.scores.graders import VALUED
from jax_t2sql.scores.guess import CLASSES
from jax_t2sql.scores.run import EvalRun, read_run
from jax_t2sql.scores.summary import summarise

PAGE = "report.html"
_BRIEF = 13  # facts beside the headline


def write_page(
    folder: str | Path, out: str | Path | None = None, *, beside: Sequence[Path] = ()
) -> Path:
    """Writes the page about an evaluation and returns its path.

    Args:
      folder: the --out of an evaluation. What `explain` found is on the page if it has run.
      out: the page; ``folder/report.html`` by default.
      beside: other evaluations, to draw accuracy over cost beside this one's.

    Raises:
      UserError: a folder is no evaluation, or the page cannot be written.
    """
    run = read_run(folder)
    out = Path(folder) / PAGE if out is None else Path(out)
    grader, key = run.choose(None, None)
    results = run.results or _results(run, grader, key)
    questions, notes = browser_rows(run, grader, key)
    facts = _facts(results.get("manifest") or run.manifest)
    cost = _cost(results.get("cost") or {})
    others = [(other.name, other.results) for other in map(read_run, beside)]
    brief = [(n, value) for n, value in facts if "sha256" not in n and value != "null"]
    context = {
        "title": run.folder.resolve().name,
        "kicker": "jax_t2sql evaluation",
        "results": results,
        "figures": _figures(run.name, results, others),
        "tables": [],
        "matrix": _matrix(results),
        "facts": facts,
        "brief": brief[: max(0, _BRIEF - len(cost))],
        "cost": cost,
        "notes": notes + _notes(results),
        "questions": questions,
        "classes": CLASSES,
    }
    return render(out, context)


def render(out: Path, context: Mapping[str, Any]) -> Path:
    """Writes the page that the template makes of a context, whole or not at all.

    Raises:
      UserError: it cannot be written.
    """
    from plotly.offline import get_plotlyjs  # takes a while to import

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jax_t2sql"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("scores.html.j2").render(
        **context,
        plotly=get_plotlyjs() if context["figures"] else "",
        nonce=secrets.token_urlsafe(16),
    )
    draft = out.with_name(out.name + ".tmp")
    try:
        draft.write_bytes(page.encode("utf-8", "backslashreplace"))
        os.replace(draft, out)
    except OSError as error:
        raise UserError(
            f"the page {out} cannot be written ({error.strerror}); give --out"
        ) from None
    return out


def _results(run: EvalRun, grader: str, key: str) -> dict[str, Any]:
    """The figures of an evaluation that has not come to its own."""
    marking = [name for name in (grader, *run.graders) if name not in VALUED]
    if not marking:
        raise UserError(f"{run.folder} has no verdicts of right or wrong; grade it first")
    return summarise(
        run.questions,
        run.answers,
        run.verdicts,
        grader=marking[0],
        key=key,
        evidence=run.evidence,
    )


def _figures(
    name: str, results: Mapping[str, Any], beside: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[Figure]:
    by, graders = results["by"], results["graders"]
    curve = results.get("self_consistency") or {}
    proxy = results["proxy"]["accuracy"]
    decoding = results.get("decoding", "greedy")
    headline = results["accuracy"]
    single = headline if decoding == "greedy" else None
    found = [
        shares_figure(
            "Accuracy by grader",
            f"With 95 % Wilson intervals. Dashed: the stated proxy, {proxy:.2%}.",
            {name: part for name, part in graders.items() if name not in VALUED},
            proxy=proxy,
        ),
        shares_figure("By difficulty", f"Grader {results['grader']}.", by["difficulty"]),
        consistency_figure(curve, single) if curve else None,
        shares_figure(
            "Vote of all candidates by grader",
            "Self-consistency, mean of the draws, with 95 % Wilson intervals.",
            {name: part["votes"] for name, part in graders.items() if "votes" in part},
        ),
        cost_figure([(name, results), *beside]),
        shares_figure(
            "By structure of the gold query", "A question counts under each tag.", by["tags"]
        ),
        shares_figure("By database", f"Grader {results['grader']}.", by["database"]),
    ]
    return [figure for figure in found if figure is not None]


def _matrix(results: Mapping[str, Any]) -> dict[str, Any]:
    """How many questions the row's grader alone calls right, beside the column's."""
    names = [name for name in results["graders"] if name not in VALUED]
    cells: dict[str, dict[str, int | None]] = {name: dict.fromkeys(names) for name in names}
    for row in results["disagreement"]:
        cells[row["first"]][row["second"]] = row["only_first"]
        cells[row["second"]][row["first"]] = row["only_second"]
    values = {name: part for name, part in results["graders"].items() if name in VALUED}
    return {"names": names, "cells": cells, "graders": results["graders"], "values": values}


def _facts(tree: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Dotted names and values of a nested JSON object, in its own order."""
    if isinstance(tree, Mapping):
        return [
            pair
            for name, value in tree.items()
            for pair in _facts(value, f"{prefix}.{name}" if prefix else str(name))
        ]
    return [(prefix, bounded(tree if isinstance(tree, str) else json.dumps(tree)))]


def _cost(cost: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not cost:
        return []
    rows = [
        ("tokens in", f"{cost.get('prompt_tokens', 0):,}"),
        ("of them cached", f"{cost.get('cached_tokens', 0):,}"),
        ("tokens out", f"{cost.get('completion_tokens', 0):,}"),
    ]
    if cost.get("dollars") is not None:
        rows.append(("dollars", f"${cost['dollars']:,.4g}"))
        rows.append(("a question", f"${cost['dollars_per_question'] or 0:,.4g}"))
        right = cost.get("dollars_per_1000_correct")
        rows.append(("a thousand right", "–" if right is None else f"${right:,.4g}"))
    return [*rows, ("priced by", str(cost.get("priced_by", "")))]


def _notes(results: Mapping[str, Any]) -> list[str]:
    notes = []
    if results.get("untold"):
        notes.append(f"{results['untold']} answers cannot be told right or wrong and do not count.")
    if "r-ves" in results["graders"]:
        notes.append("R-VES measures time: it differs between runs and machines.")
    left_out = results.get("left_out") or {}
    notes += [f"{count:,} questions left out: {reason}." for reason, count in left_out.items()]
    return notes


@dataclass(frozen=True)
class PageArgs:
    """Options of the program."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the evaluation."""
    beside: tuple[Path, ...] = ()
    """Folders of other evaluations, to draw accuracy over cost beside this one's."""
    out: Path | None = None
    """The page; RUN/report.html if not given."""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        PageArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.eval report",
        description=__doc__,
    )
    print(write_page(args.run, args.out, beside=args.beside))
    return 0
