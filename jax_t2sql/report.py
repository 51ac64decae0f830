"""``python -m jax_t2sql.report DIR``: one self-contained HTML page about a run.

The page holds its own Plotly and needs no network. Text from models and databases is hostile
until shown otherwise: it reaches the page only through Jinja's autoescape or as JSON with
``<``, ``>``, ``&`` and ``'`` escaped, the page's script writes it with ``textContent`` alone, and
a content security policy forbids every script without the page's nonce and every request.
"""

import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jinja2
import tyro
from plotly.offline import get_plotlyjs

from jax_t2sql.curves import build_figures
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program
from jax_t2sql.solves import Solves, Visit, bars
from jax_t2sql.stats import wilson
from jax_t2sql.tracking import (
    METRICS_FILE,
    SAMPLES_FILE,
    SOLVES_FILE,
    iterate,
    read_metrics,
    spread,
)

# Bounds that keep the page quick to open however long the run was.
MAX_EPISODES = 400
MAX_EPISODE_BYTES = 6 * 2**20
MAX_TEXT = 6_000  # characters of one text in an episode
MAX_QUESTIONS = 25  # of a table

# Of result.json: what the page shows as scores rather than as plain facts.
_SCORE_FIELDS = ("before", "after", "before_interval", "after_interval", "parts")
_EPISODE_TEXTS = (
    *("question_id", "db_id", "question", "evidence", "gold_sql", "predicted_sql", "grading"),
    *("difficulty", "verdict", "detail", "ending", "version", "completion_tokens"),
)


def write_report(run_dir: str | Path, out: str | Path | None = None) -> Path:
    """Writes the page about the run in ``run_dir`` and returns its path.

    Whatever is absent (a young run has no result yet) is said on the page.

    Args:
      run_dir: a run directory: ``config.json``, ``result.json``, ``metrics.jsonl``,
        ``samples.jsonl``, each optional.
      out: the page; ``run_dir/report.html`` by default.

    Raises:
      UserError: ``run_dir`` is not a run, or ``out`` cannot be written.
    """
    run_dir = Path(run_dir)
    out = run_dir / "report.html" if out is None else Path(out)
    files = ("config.json", "result.json", METRICS_FILE, SAMPLES_FILE)
    if not any((run_dir / name).is_file() for name in files):
        problem = "holds none of " + ", ".join(files) if run_dir.is_dir() else "is not a directory"
        raise UserError(f"{run_dir} {problem}. Give the --workdir of a run.")
    try:
        _write(Path(os.path.realpath(out)), _render(run_dir))  # a link stays one
    except OSError as error:
        raise UserError(
            f"cannot make the report {out}: {error}. Give a readable run and a writable --out."
        ) from error
    return out


def _write(out: Path, page: str) -> None:
    """Writes the page whole or not at all; into a device or a pipe as it stands."""
    data = page.encode("utf-8", "backslashreplace")
    if out.exists() and not out.is_file():
        out.write_bytes(data)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(out.name + ".tmp")
    try:
        draft.write_bytes(data)
        os.replace(draft, out)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _render(run_dir: Path) -> str:
    notes: list[str] = []
    config = _read_json(run_dir / "config.json", notes)
    result = _read_json(run_dir / "result.json", notes)
    rows = read_metrics(run_dir)
    figures, absent = build_figures(rows)
    if not rows:
        notes.append(f"{METRICS_FILE} is absent or empty: there are no curves yet.")
    elif absent:
        notes.append("Not recorded in this run: " + ", ".join(absent) + ".")
    notes += _nonfinite(rows)
    episodes, total = choose_episodes(run_dir / SAMPLES_FILE)
    if not total:
        notes.append(f"{SAMPLES_FILE} is absent or empty: there are no episodes to browse.")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jax_t2sql"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=run_dir.resolve().name,
        scores=_scores(result),
        facts=_flatten({k: v for k, v in result.items() if k not in _SCORE_FIELDS}),
        config=_flatten(config),
        notes=notes,
        figures=figures,
        episodes=episodes,
        episodes_total=total,
        questions=_questions(Solves(iterate(run_dir / SOLVES_FILE)), episodes),
        steps=max((row["step"] for row in rows if row.get("phase") != "warmup"), default=None),
        plotly=get_plotlyjs() if figures else "",
        nonce=secrets.token_urlsafe(16),
    )


def choose_episodes(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Episodes for the page, newest first, and how many the file holds.

    Half of them are the newest; the rest is evenly spaced over all before. Their number halves
    until they fit ``MAX_EPISODE_BYTES``. The file is streamed: it may be larger than memory.
    """
    total = sum(1 for _ in iterate(path))
    limit = min(MAX_EPISODES, total)
    while True:
        newest = total - limit // 2
        chosen = set(spread(newest, limit - limit // 2)) | set(range(newest, total))
        episodes = [_episode(row) for i, row in enumerate(iterate(path)) if i in chosen]
        if limit <= 1 or len(json.dumps(episodes)) <= MAX_EPISODE_BYTES:
            return sorted(episodes, key=lambda episode: -episode["step"]), total
        limit //= 2


def _episode(row: Mapping[str, Any]) -> dict[str, Any]:
    turns = row.get("turns") if isinstance(row.get("turns"), list) else []
    terms = _mapping(row.get("terms"))
    reward = row.get("reward")
    return {name: _text(row.get(name)) for name in _EPISODE_TEXTS} | {
        "step": row["step"],
        "phase": _text(row.get("phase") or "rl"),
        "reward": reward if isinstance(reward, (int, float)) and math.isfinite(reward) else None,
        "terms": {_text(name): _text(value) for name, value in list(terms.items())[:20]},
        "turns": [
            {"role": _text(turn.get("role")), "text": _text(turn.get("text"))}
            for turn in turns[:40]
            if isinstance(turn, Mapping)
        ],
    }


def _text(value: Any) -> str:
    """Any value as text of bounded length: a long one keeps its two ends."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    # Undecodable database bytes are lone surrogates: not text to a browser. Shown as escapes.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= MAX_TEXT:
        return text
    head, tail = MAX_TEXT * 2 // 3, MAX_TEXT // 3
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def _questions(solves: Solves, episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The training questions that were never solved, and those that came and went."""
    if not solves.visits:
        return None
    texts = {episode["question_id"]: episode["question"] for episode in episodes}

    def rows(found: Sequence[tuple[str, list[Visit]]]) -> list[dict[str, Any]]:
        return [
            {
                "id": _text(question),
                "text": texts.get(_text(question), "")[:200],
                "bars": bars(visits),
                "last": f"{visits[-1].right} of {visits[-1].of}",
                "step": visits[-1].step,
            }
            for question, visits in found[:MAX_QUESTIONS]
        ]

    unsolved = solves.unsolved()
    return {
        "met": len(solves.visits),
        "visits": sum(map(len, solves.visits.values())),
        "pool": solves.pool_accuracy(),
        "unsolved": len(unsolved),
        "tables": [
            ("Changed most", rows(solves.restless(MAX_QUESTIONS))),
            ("Never answered", rows(unsolved)),
        ],
    }


def _nonfinite(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    steps: dict[str, list[int]] = {}
    for row in rows:
        for name in _mapping(row.get("nonfinite")):
            steps.setdefault(str(name), []).append(row["step"])
    return [
        f"{name} was not finite in {len(at)} row{'s' * (len(at) > 1)}, first in step {at[0]}: "
        "the curve has gaps."
        for name, at in steps.items()
    ]


def _scores(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Accuracy before and after, each whole and in its parts, as shares with Wilson intervals."""
    scores = []
    for key, label in (("before", "Before RL"), ("after", "After RL")):
        if whole := _score(label, result.get(key), result.get("n")):
            parts = _mapping(_mapping(result.get("parts")).get(key))
            found = (
                _score(name, _mapping(part).get("accuracy"), _mapping(part).get("n"))
                for name, part in parts.items()
            )
            scores.append(whole | {"parts": [part for part in found if part]})
    return scores


def _score(label: str, share: Any, n: Any) -> dict[str, Any] | None:
    """One accuracy for the page; None unless ``share`` is one."""
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        return None
    low, high = wilson(share * n, n) if isinstance(n, int) and n > 0 else (share, share)
    return {"label": label, "share": share, "low": low, "high": high, "n": n}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _flatten(tree: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Dotted names and values of a nested JSON object, in its own order."""
    if isinstance(tree, Mapping) and (tree or not prefix):
        pairs = (
            _flatten(value, f"{prefix}.{name}" if prefix else str(name))
            for name, value in tree.items()
        )
        return [pair for group in pairs for pair in group]
    return [(prefix, _text(tree))]


def _read_json(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.is_file():
        notes.append(f"{path.name} is absent.")
        return {}
    try:
        tree = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        notes.append(f"{path.name} is not valid JSON and is left out.")
        return {}
    return tree if isinstance(tree, dict) else {"value": tree}


@dataclass(frozen=True)
class ReportArgs:
    """Makes one self-contained HTML page about a run: curves, facts, sampled episodes.

    The page opens from disk in any browser and needs no network.
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The run's directory: the --workdir of jax_t2sql.train."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Where to write the page; into the run's directory unless given."""


def main() -> None:
    args = tyro.cli(ReportArgs, prog="python -m jax_t2sql.report")
    print(write_report(args.run_dir, args.out))


if __name__ == "__main__":
    run_program(main, interrupted="interrupted; no page was written")
