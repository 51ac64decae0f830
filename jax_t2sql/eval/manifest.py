"""What identifies an evaluation: who was asked what, how, and how it is judged."""

import fcntl
import hashlib
import json
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jax_t2sql import __version__
from jax_t2sql.errors import UserError
from jax_t2sql.eval.options import EvalArgs
from jax_t2sql.eval.questions import Asked
from jax_t2sql.rundir import make_folder, write_json
from jax_t2sql.scores.graders import parse_graders

NAME = "manifest.json"
_OURS = ("questions.jsonl", "answers.jsonl", "executions.jsonl", "verdicts.jsonl", "results.json")
# Told, but free to change: names of places, and what can be added to answers that are there.
_FREE = ("policy", "graders", "versions.python")
_FREE_ENDS = (".path", ".endpoint")


def make_manifest(
    args: EvalArgs, asked: Asked, facts: Mapping[str, Any], *, greedy: bool, candidates: int
) -> dict[str, Any]:
    """The manifest of what is to be done.

    Args:
      facts: of the policy: model, adapter, prompts.
    """
    facts = dict(facts)
    rows = [(row.question_id, row.db_id, row.question, row.evidence) for row in asked.rows]
    decoding = {
        "greedy": greedy,
        "candidates": candidates,
        "temperature": args.temperature if candidates else None,
        "top_p": 1.0,
        "shown_evidence": args.show_evidence,
    }
    if args.policy is not None and not args.policy.startswith("file:"):
        decoding |= {
            "style": args.style,
            "max_turns": args.max_turns if args.style == "tools" else None,
            "max_tokens": args.max_tokens,
            "max_context": facts.pop("max_context", None),
            "schema_tokens": args.schema_tokens,
            "notes": args.notes,
            "evidence": args.evidence,
            "tool_format": facts.pop("tool_format", None),
            "worked_example": args.worked_example,
            "reasoning_effort": args.reasoning_effort,
        }
    return {
        "policy": args.policy,
        **facts,
        "suite": args.suite,
        "questions": {"n": len(rows), "sha256": _digest(rows), "left_out": dict(asked.left_out)},
        "keys": {name: dict(key) for name, key in asked.keys.items()},
        "databases": {"path": str(asked.databases), "sha256": _database_digests(asked)},
        "decoding": decoding,
        "seed": args.seed,
        "graders": list(parse_graders(args.grader)),
        "limits": {"seconds": args.seconds},
        "versions": {
            "jax_t2sql": __version__,
            "sqlite": sqlite3.sqlite_version,
            "python": platform.python_version(),
        },
    }


@contextmanager
def evaluation_folder(out: Path) -> Iterator[None]:
    """Makes the folder and holds it for this process alone.

    Raises:
      UserError: it cannot be made, or another process evaluates into it.
    """
    make_folder(out, "--out")
    with open(out / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"--out {out} is in use by another evaluation; wait for its end, or name another"
                " folder"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield


def open_evaluation(out: Path, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest, if the folder is new or holds this very evaluation.

    Raises:
      UserError: it holds another one, with what differs; or files of something else.
    """
    path = out / NAME
    if not path.is_file():
        found = [name for name in _OURS if (out / name).exists()]
        if found:
            raise UserError(
                f"--out {out} holds {found[0]} but no {NAME}: it is of something else; name another"
                " folder"
            )
    else:
        try:
            before = json.loads(path.read_text())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not JSON ({error}); name another --out") from None
        different = differences(before, json.loads(json.dumps(manifest)))
        if different:
            more = f"; and {len(different) - 4} more" * (len(different) > 4)
            raise UserError(
                f"--out {out} holds another evaluation: {'; '.join(different[:4])}{more}. Run it"
                " with the same options to go on with it, or name another folder"
            )
    write_json(path, manifest)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs of what must not, in words."""
    old, new = _flat(before), _flat(now)
    return [
        f"{name} was {_short(old.get(name))}, now {_short(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
        and not name.startswith(_FREE)
        and not name.endswith(_FREE_ENDS)
    ]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    found = {}
    for key, item in value.items():
        found |= _flat(item, f"{name}.{key}" if name else key)
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 48 else text[:20] + "…" + text[-4:]


def _digest(rows: Any) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _database_digests(asked: Asked) -> dict[str, str]:
    """SHA-256 of each database file; equal files of one folder are read once."""
    find = asked.find()
    paths = {row.db_id: Path(find(row.db_id)) for row in asked.rows}

    def digest(path: Path) -> str:
        if path.is_dir():  # the description of one on Snowflake
            files = sorted(path.glob("*/DDL.csv"))
            return _digest([[file.parent.name, file.read_text(errors="replace")] for file in files])
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    distinct = sorted(set(paths.values()))
    with ThreadPoolExecutor(4) as threads:  # hashing lets others run
        found = dict(zip(distinct, threads.map(digest, distinct), strict=True))
    return {db_id: found[path] for db_id, path in sorted(paths.items())}
