"""The quickstart's world: small databases and questions over them, made from a seed.

Nothing is downloaded. `build_world` writes

    DIRECTORY/databases/<id>/<id>.sqlite
    DIRECTORY/warmup.jsonl, train.jsonl, heldout.jsonl
    DIRECTORY/world.json        the parameters and the sha256 of every other file

No two questions of a world share their text, and no held-out question shares its SQL with the other
two files. Held-out questions marked `seen_template: false` come from templates those files lack.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from data_pipelines.templates import Choices, difficulty, grading_method, render_sql
from data_pipelines.templates_catalogue import TEMPLATES
from data_pipelines.templates_english import render_question
from data_pipelines.world_cinema import CINEMA
from data_pipelines.world_harbor import HARBOR
from data_pipelines.world_questions import QuestionPool
from data_pipelines.world_rows import write_database
from jax_t2sql.errors import UserError

DATABASES = (CINEMA, HARBOR)
SPLITS = ("warmup", "train", "heldout")
UNSEEN_SHARE = 0.2
RECIPE = 4


@dataclass(frozen=True)
class Parameters:
    """What a world is made from; `recipe` counts changes of this generator's output."""

    seed: int
    warmup: int
    train: int
    heldout: int
    recipe: int = RECIPE


@dataclass(frozen=True)
class World:
    """A built world: where its files lie, and what it was made from."""

    directory: Path
    parameters: Parameters

    @property
    def databases(self) -> Path:
        """The folder that holds `<id>/<id>.sqlite`."""
        return self.directory / "databases"

    @property
    def warmup(self) -> Path:
        return self.directory / "warmup.jsonl"

    @property
    def train(self) -> Path:
        return self.directory / "train.jsonl"

    @property
    def heldout(self) -> Path:
        return self.directory / "heldout.jsonl"


def build_world(
    directory: Path | str, *, seed: int, warmup: int = 300, train: int = 2000, heldout: int = 500
) -> World:
    """Build a world in `directory`, or reuse the one there if its parameters are the same.

    The world appears whole or not at all: it is made beside `directory` and moved there. The same
    parameters give the same bytes (for one version of SQLite).

    Args:
        directory: absent, empty, or an earlier world.
        seed: decides rows and questions.
        warmup: questions for the supervised warm-up; few by default, so that most of what there is
            to learn is left to reinforcement.
        train: questions for reinforcement learning, disjoint from the warm-up's.
        heldout: questions for evaluation, a fifth of them from templates never trained on.

    Raises:
        UserError: `directory` holds something else, a world of other parameters or a changed one;
            or more questions are asked for than the templates can make.
    """
    directory = Path(directory)
    parameters = Parameters(seed=seed, warmup=warmup, train=train, heldout=heldout)
    for split in SPLITS:
        if getattr(parameters, split) < 1:
            raise UserError(f"{split} is {getattr(parameters, split)}; ask for at least 1 question")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        return _existing_world(directory, parameters)
    directory.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _write_world(building, parameters)
        # mkdtemp is private to its owner; a world is as readable as any folder made by the user.
        building.chmod(0o755)
        try:
            os.replace(building, directory)
        except OSError:
            # Another process may have finished the same world first.
            if not directory.is_dir() or not any(directory.iterdir()):
                raise
            return _existing_world(directory, parameters)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return World(directory, parameters)


def _existing_world(directory: Path, parameters: Parameters) -> World:
    try:
        manifest = json.loads((directory / "world.json").read_text(encoding="utf-8"))
        built, files = manifest["parameters"], dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{directory} is not empty and holds no world ({error}); choose another folder"
        ) from None
    if built != asdict(parameters):
        raise UserError(
            f"{directory} holds a world of {built}, not of {asdict(parameters)}; "
            "delete it or choose another folder"
        )
    for name, digest in files.items():
        path = directory / name
        if not path.is_file() or _sha256(path) != digest:
            raise UserError(
                f"{path} is missing or changed since the world was built; "
                f"delete {directory} to build it again"
            )
    return World(directory, parameters)


def _write_world(directory: Path, parameters: Parameters) -> None:
    world = World(directory, parameters)
    paths = {}
    for database in DATABASES:
        path = world.databases / database.db_id / f"{database.db_id}.sqlite"
        path.parent.mkdir(parents=True)
        write_database(database, path, seed=parameters.seed)
        paths[database.db_id] = path
    for split, questions in _questions(paths, parameters).items():
        _write_jsonl(directory / f"{split}.jsonl", _rows(split, questions))
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    manifest = {
        "parameters": asdict(parameters),
        "files": {path.relative_to(directory).as_posix(): _sha256(path) for path in files},
    }
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (directory / "world.json").write_text(text, encoding="utf-8")


def _questions(paths: dict[str, Path], parameters: Parameters) -> dict[str, list[Choices]]:
    unseen = round(UNSEEN_SHARE * parameters.heldout)
    sizes = {
        "warmup": parameters.warmup,
        "train": parameters.train,
        "heldout": parameters.heldout - unseen,
    }
    rng = random.Random(f"questions/{parameters.seed}")
    with QuestionPool(DATABASES, paths, rng) as pool:
        seen = [template for template in TEMPLATES if template.seen]
        splits = pool.split(seen, sizes, apart="heldout")
        others = [template for template in TEMPLATES if not template.seen]
        new = pool.split(others, {"heldout": unseen}, apart="heldout")
        splits["heldout"] += new["heldout"]
    for questions in splits.values():
        rng.shuffle(questions)
    return splits


def _rows(split: str, questions: Iterable[Choices]) -> Iterable[dict]:
    databases = {database.db_id: database for database in DATABASES}
    seen = {template.name: template.seen for template in TEMPLATES}
    for number, choices in enumerate(questions):
        database = databases[choices.db_id]
        yield {
            "question_id": f"{split}-{number:04d}",
            "db_id": choices.db_id,
            "question": render_question(database, choices),
            "evidence": "",
            "SQL": render_sql(database, choices),
            "difficulty": difficulty(choices),
            "grading_method": grading_method(choices),
            "template": choices.template,
            "seen_template": seen[choices.template],
        }


def _write_jsonl(path: Path, rows: Iterable[dict]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
