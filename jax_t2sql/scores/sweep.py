"""Score all weights that a training run has kept, and draw how its questions come and go.

    python -m jax_t2sql.eval sweep WORKDIR [options of jax_t2sql.eval]

WORKDIR is the --workdir of jax_t2sql.train. Each adapter (or whole model) on its bus is evaluated,
oldest first, on the run's held-out questions with the run's prompt, unless options of
jax_t2sql.eval say otherwise (--data, --suite, --questions, --grader, …). What was evaluated before
is not evaluated again.
Writes an evaluation a checkpoint into OUT/STEP, and OUT/sweep.json and OUT/sweep.html: accuracy,
the share solved at least once and solved always up to each checkpoint, and churn, the share of
questions that flipped since the checkpoint before.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.scores.figures import lines_figure
from jax_t2sql.scores.page import render
from jax_t2sql.scores.run import EvalRun, read_run, shared_questions
from jax_t2sql.scores.summary import share
from jax_t2sql.scores.tables import console, interval, percent, table, write_json

# As the bus names them: run, epoch, step, start of the sha256.
_ADAPTER = re.compile(r"(?P<run>.+)-e(?P<epoch>\d+)-s(?P<step>\d+)-(?P<sha8>[0-9a-f]{8})")
# Settings of a run's prompt that the evaluation has too.
_PROMPT = (
    *("style", "max_turns", "max_tokens", "max_context", "schema_tokens"),
    *("notes", "evidence", "tool_format", "worked_example", "reasoning_effort"),
)


@dataclass(frozen=True)
class SweepArgs:
    """Options of the program, besides those of jax_t2sql.eval."""

    workdir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WORKDIR")]
    """Folder of the training run."""
    out: Path | None = None
    """Folder for the evaluations; WORKDIR/sweep if not given."""


@dataclass(frozen=True)
class Checkpoint:
    """Weights that the run has kept: an adapter, or a whole model where all weights are trained."""

    step: int
    epoch: int
    path: Path
    whole: bool

    def policy(self, base: str) -> str:
        """The policy with these weights."""
        return f"local:{self.path}" if self.whole else f"local:{base}+{self.path}"


def main(argv: Sequence[str], evaluate: Callable[[list[str]], int]) -> int:
    """The program. Returns the exit status.

    Args:
      argv: options; those that are not `SweepArgs`' go to `evaluate`.
      evaluate: runs jax_t2sql.eval with these options; raises UserError where that fails.
    """
    args, options = tyro.cli(
        SweepArgs,
        args=list(argv),
        prog="python -m jax_t2sql.eval sweep",
        description=__doc__,
        return_unknown_args=True,
    )
    for name in ("--policy", "--out"):
        if any(option.split("=")[0] == name for option in options):
            raise UserError(f"{name} is set by sweep; leave it out")
    config = _read_config(args.workdir)
    checkpoints = find_checkpoints(args.workdir)
    options = [*options, *default_options(config, options, args.workdir)]
    out = args.out or args.workdir / "sweep"
    folders = {}
    for number, checkpoint in enumerate(checkpoints, start=1):
        folder = out / f"{checkpoint.step:06d}-e{checkpoint.epoch}"
        print(
            f"checkpoint {number} of {len(checkpoints)}: step {checkpoint.step}",
            file=sys.stderr,
            flush=True,
        )
        policy = checkpoint.policy(config["model"])
        status = evaluate(["--policy", policy, "--out", str(folder), *options])
        if status:
            return status
        folders[checkpoint.step] = folder
    runs = {step: read_run(folder) for step, folder in folders.items()}
    found = trace(runs)
    write_json(out / "sweep.json", found)
    page = render(out / "sweep.html", _context(found, args.workdir))
    _print(found)
    print(f"page: {page}")
    return 0


def find_checkpoints(workdir: Path) -> list[Checkpoint]:
    """The weights on the run's bus, oldest first; of a step done twice, the later.

    Raises:
      UserError: there are none.
    """
    folder = workdir / "bus" / "adapters"
    found: dict[int, Checkpoint] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _ADAPTER.fullmatch(path.name)
        adapter, whole = ((path / n).is_file() for n in ("adapter_config.json", "config.json"))
        if match and (adapter or whole):
            checkpoint = Checkpoint(int(match["step"]), int(match["epoch"]), path, not adapter)
            known = found.get(checkpoint.step)
            if known is None or known.epoch < checkpoint.epoch:
                found[checkpoint.step] = checkpoint
    if not found:
        raise UserError(
            f"{folder} holds no weights; give the --workdir of a training run that has published"
            " some"
        )
    return [found[step] for step in sorted(found)]


def _read_config(workdir: Path) -> dict[str, Any]:
    path = workdir / "config.json"
    try:
        config = json.loads(path.read_bytes())
        config["model"] + ""
        return config
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} tells no model ({error}); give the --workdir of a training run"
        ) from None


def default_options(config: Mapping[str, Any], given: Sequence[str], workdir: Path) -> list[str]:
    """Options of the evaluation that follow from the run's configuration, but for those given."""
    named = {option.split("=")[0] for option in given}
    named |= {name.replace("--no-", "--") for name in named}
    data, prompt = config.get("data") or {}, config.get("prompt") or {}
    wanted: dict[str, Any] = {}
    if not named & {"--data", "--suite"}:
        databases = data.get("eval_databases") or data.get("databases")
        wanted |= {"data": data.get("eval"), "databases": databases}
        world = workdir / "world"  # that a run without data of its own has made
        if not wanted["data"] and (world / "heldout.jsonl").is_file():
            wanted |= {"data": world / "heldout.jsonl", "databases": world / "databases"}
        if not wanted["data"]:
            raise UserError(
                "the run has no file of held-out questions; give --data and --databases, or --suite"
            )
    wanted |= {name: prompt.get(name) for name in _PROMPT}
    options = []
    for name, value in wanted.items():
        option = f"--{name.replace('_', '-')}"
        if value is None or option in named:
            continue
        if isinstance(value, bool):
            options.append(option if value else option.replace("--", "--no-", 1))
        else:
            options += [option, str(value)]
    return options


def trace(runs: Mapping[int, EvalRun]) -> dict[str, Any]:
    """Accuracy and what becomes of the questions, checkpoint by checkpoint.

    Args:
      runs: evaluations of the same questions by step, oldest first.

    Returns: grader, key, n, steps (each with step, figures as of `summary.share`, solved_once,
      solved_always, churn; None for the first).

    Raises:
      UserError: the evaluations have no question in common.
    """
    grader, key = next(iter(runs.values())).choose(None, None)
    shared = shared_questions(runs.values(), grader, key)
    once, always = set(), set(shared)
    steps = []
    before: set[str] | None = None
    for step, run in runs.items():
        marks = run.correct(grader, key)
        right = {name for name in shared if marks[name]}
        once |= right
        always &= right
        churn = None if before is None else len(before ^ right) / len(shared)
        steps.append(
            {
                "step": step,
                **share(name in right for name in shared),
                "solved_once": len(once) / len(shared),
                "solved_always": len(always) / len(shared),
                "churn": churn,
            }
        )
        before = right
    return {"grader": grader, "key": key, "n": len(shared), "steps": steps}


def _context(found: Mapping[str, Any], workdir: Path) -> dict[str, Any]:
    steps = found["steps"]
    lines = {
        "accuracy": [row["accuracy"] for row in steps],
        "solved at least once": [row["solved_once"] for row in steps],
        "solved always": [row["solved_always"] for row in steps],
        "churn": [row["churn"] for row in steps],
    }
    figure = lines_figure(
        "Checkpoints",
        "Accuracy with its 95 % Wilson interval; solved at least once, and always, up to here;"
        " churn: flipped since the checkpoint before.",
        [row["step"] for row in steps],
        lines,
        x_title="step",
        band=([row["wilson_low"] for row in steps], [row["wilson_high"] for row in steps]),
    )
    headings, rows = _rows(found)
    return {
        "title": workdir.resolve().name,
        "kicker": "jax_t2sql checkpoint sweep",
        "results": None,
        "figures": [figure],
        "tables": [
            {
                "title": "Checkpoints",
                "about": f"{found['n']} questions, grader {found['grader']}",
                "headings": headings,
                "rows": rows,
            }
        ],
        "matrix": None,
        "facts": [],
        "brief": [],
        "cost": [],
        "notes": [],
        "questions": [],
        "classes": {},
    }


def _rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    headings = ["step", "accuracy", "95 % interval", "solved once", "solved always", "churn"]
    rows = [
        [
            str(row["step"]),
            percent(row["accuracy"]),
            interval(row),
            *(percent(row[name]) for name in ("solved_once", "solved_always", "churn")),
        ]
        for row in found["steps"]
    ]
    return headings, rows


def _print(found: Mapping[str, Any]) -> None:
    headings, rows = _rows(found)
    made = table(headings, title=f"{found['n']} questions, grader {found['grader']}")
    for row in rows:
        made.add_row(*row)
    console().print(made)
