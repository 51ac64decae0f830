"""The experiments: which claim compares which runs, and what each run is given."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import data


@dataclass(frozen=True)
class Size:
    """How large the experiments are: RL steps of `groups` questions, 8 rollouts each."""

    steps: int = 150
    groups: int = 48
    warmup: int = 150
    heldout: int | None = None


@dataclass(frozen=True)
class Paths:
    """Where an experiment's inputs lie, for one seed."""

    start: Path  # folder of the run that made world, base and warm-up
    second: Path  # databases of another seed
    made: Path  # question files of ours

    @property
    def world(self) -> Path:
        return self.start / "world"

    @property
    def databases(self) -> Path:
        return self.world / "databases"


@dataclass(frozen=True)
class Arm:
    """One training run.

    Attributes:
      name: of the run's folder; arms of the same name are one run, shared by claims.
      options: of `python -m jax_t2sql.train`, besides those that all arms share.
      warm: which warm-up it starts from.
      train, heldout: question files, by their place under `Paths`.
      lag: updates by which the sampler's weights are older than the learner's.
    """

    name: str
    options: Callable[[Paths], tuple[str, ...]] = lambda paths: ()
    warm: str = "plain"
    train: Callable[[Paths], Path] = lambda paths: paths.world / "train.jsonl"
    heldout: Callable[[Paths], Path] = lambda paths: paths.world / "heldout.jsonl"
    lag: int = 0


@dataclass(frozen=True)
class Warm:
    """A supervised start: its pairs, and options besides."""

    pairs: Callable[[Paths], Path]
    options: Callable[[Paths], tuple[str, ...]] = lambda paths: ()


WARMS = {
    "reasoning": Warm(lambda paths: paths.made / "reasoning" / "warmup.jsonl"),
    "hints": Warm(
        lambda paths: paths.made / "hints" / "warmup.jsonl",
        lambda paths: (
            *("--hints.file", str(paths.made / "hints" / "hints.jsonl")),
            *("--hints.strength", "strong", "--warmup.hint-share", "0.5"),
        ),
    ),
}

PLAIN = Arm("plain")


def _coincidence(name: str, *options: str) -> Arm:
    return Arm(
        name,
        lambda paths: options,
        train=lambda paths: paths.made / "coincidences" / "train.jsonl",
        heldout=lambda paths: paths.made / "coincidences" / "heldout.jsonl",
    )


def _counting(name: str, train: str) -> Arm:
    return Arm(
        name,
        train=lambda paths: paths.made / "counting" / train,
        heldout=lambda paths: paths.made / "counting" / "heldout.jsonl",
    )


def _reasoning(name: str, cut_off: str) -> Arm:
    # The longest spans and queries of the warm-up fit; what runs on does not.
    limits = ("--prompt.max-tokens", "64", "--reward.cut-off", cut_off)
    return Arm(name, lambda paths: limits, warm="reasoning")


@dataclass(frozen=True)
class Claim:
    """What is compared. The first arm is what the claim's other arms are measured against."""

    letter: str
    says: str
    arms: tuple[Arm, ...]


CLAIMS = (
    Claim(
        "a",
        "wrong golds cost accuracy on clean questions, and the right use of DISTINCT",
        (_counting("clean", "train.jsonl"), _counting("corrupted", "corrupted.jsonl")),
    ),
    Claim(
        "b",
        "lenient grading of cut-off answers lets lengths run away, strict grading does not",
        (_reasoning("strict", "strict"), _reasoning("lenient", "lenient")),
    ),
    Claim(
        "c",
        "the equivalence reward lowers the share of lucky answers",
        (
            _coincidence("unchecked"),
            _coincidence("checked", "--reward.equivalence", "check"),
        ),
    ),
    Claim(
        "d",
        "hints give signal on questions that never had any, which end up solved without",
        (
            Arm("unhinted", warm="hints"),
            Arm(
                "hinted",
                lambda paths: (
                    *("--hints.file", str(paths.made / "hints" / "hints.jsonl")),
                    *("--hints.strength", "strong"),
                ),
                warm="hints",
            ),
        ),
    ),
    Claim(
        "e",
        "drawing questions by expected signal learns more from as many questions",
        (
            PLAIN,
            Arm("learnability", lambda paths: ("--learnability.enabled",)),
            Arm(
                "no solved",
                lambda paths: ("--learnability.enabled", "--learnability.floor", "0.001"),
            ),
        ),
    ),
    Claim(
        "f",
        "weights a few updates old cost little accuracy",
        (
            PLAIN,
            Arm("staleness 1", lambda paths: ("--rl.max-staleness", "1"), lag=1),
            Arm("staleness 4", lambda paths: ("--rl.max-staleness", "4"), lag=4),
        ),
    ),
)


def make_files(paths: Paths, letters: set[str], *, seed: int) -> None:
    """Writes the question files that the claims need and that are not there."""
    makers: dict[str, tuple[str, Callable[[Path], None]]] = {
        "a": ("counting/corrupted.jsonl", lambda out: _make_counting(paths, out, seed)),
        "b": (
            "reasoning/warmup.jsonl",
            lambda out: data.with_reasoning(paths.world / "warmup.jsonl", out),
        ),
        "c": (
            "coincidences/train.jsonl",
            lambda out: data.coincidences(paths.databases, paths.second, out.parent, seed=seed),
        ),
        "d": ("hints/hints.jsonl", lambda out: data.with_hints(paths.world, out.parent)),
    }
    for letter, (name, make) in makers.items():
        if letter in letters and not (paths.made / name).is_file():
            make(paths.made / name)


def _make_counting(paths: Paths, out: Path, seed: int) -> None:
    data.counting_doubles(paths.world, out.parent)
    data.with_wrong_golds(out.parent / "train.jsonl", paths.databases, out, seed=seed)
