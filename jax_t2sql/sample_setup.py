"""What a sampler needs of a run: read from the log's first entry, found on this machine, compared.

A sampler loads no weights; it hashes the base's files all the same, so that a fleet never samples
from another model than the one that learns.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jax_t2sql.assembly import (
    Run,
    build_prompts,
    episode_config,
    load_base,
    make_pool,
)
from jax_t2sql.bus import Log, NoRun, Start, Store, open_store
from jax_t2sql.bus.entries import AnyEntry
from jax_t2sql.config import DataConfig, TrainConfig
from jax_t2sql.errors import UserError
from jax_t2sql.grading import GradingPool
from jax_t2sql.hints import read_hints
from jax_t2sql.models import LoadedModel, ModelConfig, Tokenizer, check_model
from jax_t2sql.models.checkpoints import weight_files
from jax_t2sql.models.files import digest_files, read_json
from jax_t2sql.question_set import load_questions
from jax_t2sql.sample_voice import Voice
from jax_t2sql.sampling.chat import ChatCodec


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where this machine has what the run's configuration names; None: at the same place.

    workdir: of the run, for the built-in world; by default the folder that the bus lies in.
    """

    workdir: Path | None = None
    model: Path | None = None
    data: Path | None = None
    databases: Path | None = None
    eval_data: Path | None = None
    eval_databases: Path | None = None
    hints: Path | None = None
    notes: Path | None = None


def await_run(
    location: str, *, seconds: float, say: Callable[[str], None] = print, pause: float = 1.0
) -> tuple[Store, list[AnyEntry]]:
    """The bus and the entries of its log. Samplers are often started before their learner.

    Args:
      seconds: how long to wait for a run to begin.
      pause: seconds between two looks.

    Raises:
      UserError: there is still none.
    """
    voice, until = Voice(say), time.monotonic() + seconds
    while True:
        try:
            store = open_store(location, create=False)
            if entries := Log.open(store).entries:
                return store, entries
            raise NoRun(f"no run in {location} yet: start the learner")
        except NoRun as none:
            if time.monotonic() >= until:
                raise
            voice.waits(str(none))
        time.sleep(pause)


def run_config(start: Start) -> TrainConfig:
    """The configuration that the learner put into the log.

    Raises:
      UserError: it is of another version of this program.
    """
    try:
        return msgspec.convert(start.config, TrainConfig)
    except msgspec.ValidationError as error:
        raise UserError(
            f"the run's configuration cannot be read ({error}); use the jax_t2sql of its learner"
        ) from error


def make_sampler_pool(config: TrainConfig, *, workers: int | None) -> GradingPool:
    """The SQL workers of this machine, with the limits of the run."""
    if workers is None:
        return make_pool(config)
    grading = dataclasses.replace(config.grading, workers=workers)
    return make_pool(dataclasses.replace(config, grading=grading))


def assemble_sampler(config: TrainConfig, places: Places, pool: GradingPool) -> tuple[Run, Path]:
    """The parts of a run that sampling needs, and the model's folder; `run.model` has no weights.

    Raises:
      UserError: model, questions or databases are not there or broken.
    """
    model, data, directory = _find_model(config, places)
    data = dataclasses.replace(
        data,
        train=_moved(places.data, data.train),
        databases=_moved(places.databases, data.databases),
        eval=_moved(places.eval_data, data.eval),
        eval_databases=_moved(places.eval_databases, data.eval_databases),
    )
    codec, episode = ChatCodec(model.tokenizer), episode_config(config.prompt, model)
    questions = load_questions(data, pool=pool, need_warmup=config.warmup.steps > 0)
    questions, prompts, heldout_prompts = build_prompts(
        questions,
        codec,
        episode,
        dataclasses.replace(config.prompt, notes=_moved(places.notes, config.prompt.notes)),
    )
    workdir = places.workdir or directory
    hints = None
    if config.hints.file is not None:  # the learner decides which of them are shown
        hints = read_hints(places.hints or config.hints.file, config.hints.strength)
    run = Run(config, workdir, model, questions, prompts, heldout_prompts, pool, hints)
    return run, directory


def _moved(here: Path | None, there: str | None) -> str | None:
    return there if here is None else str(here)


def _find_model(config: TrainConfig, places: Places) -> tuple[LoadedModel, DataConfig, Path]:
    """The model without weights, where its questions lie, and its folder."""
    if config.model == "tiny":
        if places.model is not None:
            raise UserError(
                f"--model {places.model}: the run trains the built-in tiny model, which lies in its"
                " workdir; leave the option out"
            )
        if places.workdir is None or not (places.workdir / "base").is_dir():
            raise UserError(
                "the run trains the built-in tiny model, which lies in its workdir: give --workdir"
            )
        # The learner's mesh is of the learner's machine.
        model, data = load_base(dataclasses.replace(config, mesh=None), places.workdir)
        return dataclasses.replace(model, params=None), data, places.workdir / "base"
    directory = places.model or Path(config.model)
    if not directory.is_dir():
        raise UserError(
            f"the run's base model: {str(directory)!r} is no folder on this machine; give --model, "
            "the folder with its config.json, tokenizer.json and safetensors"
        )
    check_model(directory)
    shape = ModelConfig.from_hf(read_json(directory / "config.json"))
    tokenizer = Tokenizer.from_directory(directory)
    sha256 = digest_files([*weight_files(directory), directory / "config.json"])
    return LoadedModel(shape, None, tokenizer, config.model, sha256), config.data, directory
