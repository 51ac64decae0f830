"""Train a model with SQL rewards.

    python -m jax_t2sql.train --config configs/NAME.py --workdir DIR [--model X
        --data questions.jsonl --databases DIR] [--seed N] [--any.field VALUE]

Run the same command again to resume an interrupted run from its last complete checkpoint; nothing
is lost or trained twice. SIGTERM ends the run after the present step, with a
checkpoint of it, and status 143.

With --fleet.workers N it trains on what N processes of python -m jax_t2sql.sample send through the
bus. On several hosts start the same command on each, with JAX_COORDINATOR_ADDRESS,
JAX_NUM_PROCESSES and JAX_PROCESS_ID set. At the end the workdir holds

    result.json    held-out accuracy before and after, minutes, seed
    report.html    curves and sampled episodes (also: python -m jax_t2sql.report DIR)
    best/          the weights with the best held-out accuracy (best.json says which)
    adapter/       the trained LoRA adapter in PEFT format, or model/ where all weights were trained
    metrics.jsonl, samples.jsonl, tensorboard/, checkpoints/, bus/, config.json,
    excluded.jsonl, gold_warnings.jsonl, cut_schemas.jsonl (where there are any)
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from jax_t2sql.config import TrainConfig
from jax_t2sql.config_loading import load_config, resolve, to_dict
from jax_t2sql.distributed import join_hosts, read_place
from jax_t2sql.programs import raise_disk_fault, run_program

EXIT_LOST_LEADERSHIP = 3


@dataclass(frozen=True, kw_only=True)
class TrainArgs:
    """Options of the program; those after them override the configuration file."""

    config: Path
    """Configuration file with a get_config(), such as configs/quickstart.py."""
    workdir: Path = Path("runs/quickstart")
    """Folder of the run. One that holds an unfinished run of the same configuration is resumed."""
    bus: str | None = None
    """Directory or URL (s3://, gs://) through which learner and samplers work together; by default
    the folder bus in the workdir."""
    fork_from: Path | None = None
    """Start a new run from the weights of another one: its workdir, or a folder with an adapter."""
    dry_run: bool = False
    """Print the resolved configuration and stop."""
    run: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    """The training run."""


def parse(argv: list[str]) -> TrainArgs:
    """Reads the configuration file that `argv` names, then the overrides.

    Raises:
      UserError: the configuration file is missing or broken.
      SystemExit: --help, or an unknown option (with a suggestion).
    """
    default = TrainConfig()
    path = _option(argv, "--config")
    if path is not None:
        default = load_config(path)
    description = __doc__ if path else f"{__doc__}\nGive --config FILE to see its values below."
    return tyro.cli(
        TrainArgs,
        args=argv,
        prog="python -m jax_t2sql.train",
        description=description,
        default=TrainArgs(config=path or tyro.MISSING, run=default),
    )


def _option(argv: list[str], name: str) -> Path | None:
    """Value of an option that must be known before the others can be parsed."""
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return Path(argv[index + 1])
        if word.startswith(f"{name}="):
            return Path(word.partition("=")[2])
    return None


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = parse(sys.argv[1:] if argv is None else argv)
    config = resolve(args.run)
    if args.dry_run:
        print(json.dumps(to_dict(config), indent=2))
        return 0
    place = read_place()
    # Only now the slow imports: help and refusals are immediate.
    join_hosts(place)
    from jax_t2sql.bus import LostLeadership
    from jax_t2sql.rl import Hosts
    from jax_t2sql.training import run_training

    hosts = Hosts(place.index, place.count)
    try:
        run_training(config, args.workdir, bus=args.bus, fork_from=args.fork_from, hosts=hosts)
    except LostLeadership as error:
        print(
            f"error: another process has taken over the run in {args.workdir}, and goes on with it"
            f" ({error}); this one stops",
            file=sys.stderr,
        )
        return EXIT_LOST_LEADERSHIP
    except OSError as error:
        raise_disk_fault(error, args.workdir, "it goes on from the last complete checkpoint")
        raise
    return 0


if __name__ == "__main__":
    run_program(main)
