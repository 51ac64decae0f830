"""What training a model takes on every device of a mesh, and on which accelerators it fits.

    python -m jax_t2sql.plan --model config.json --mesh fsdp=16,expert=4 --rows 64 --length 8192

Reads nothing but the shapes. Weights, adapter, gradients and optimizer are exact; activations are
estimated: one hidden state a token and layer is kept, one layer at a time is recomputed. A device
counts as large enough if the total stays within 92 % of its memory; the rest is the runtime's.
"""

import dataclasses
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.meshes import parse_mesh
from jax_t2sql.programs import run_program

# Memory of one device in bytes, as its maker or its driver states it.
DEVICES = {
    "TPU v5e": 16 << 30,
    "TPU v5p": 95 << 30,
    "TPU v6e": 32 << 30,
    "H100 80GB": 81_559 << 20,
    "H200 141GB": 143_771 << 20,
}
USABLE = 0.92


@dataclass(frozen=True, kw_only=True)
class PlanArgs:
    """Options of the program."""

    model: Path
    """A model's config.json, or the directory that holds it."""
    mesh: str = "fsdp=1"
    """Sizes of the mesh's axes, such as fsdp=8,tensor=2; those of data, fsdp, tensor and expert
    that are not named are 1."""
    rows: int | None = None
    """Sequences in a micro-batch, over all devices; one a batch shard by default."""
    length: int = 4096
    """Tokens of a row."""
    rank: int = 32
    """Rank of the adapter."""
    targets: tuple[str, ...] = ("all-linear",)
    """What is adapted: all-linear, or regular expressions found in the modules' paths."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the frozen base and the activations."""
    bits: Literal[4, 8] | None = None
    """Store the kernels of the base in so many bits."""
    group: int = 128
    """With --bits: numbers that share a scale."""
    quantize: str = ""
    """With --bits: regular expression found in the paths of the modules to quantise, such as
    expert_; all of them by default."""
    json: bool = False
    """Print one JSON object instead of text."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status: 0 whether or not the model fits anywhere."""
    args = tyro.cli(
        PlanArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.plan",
        description=__doc__,
    )
    facts = plan(args)
    print(json.dumps(facts, indent=2) if args.json else text(facts))
    return 0


def plan(args: PlanArgs) -> dict[str, Any]:
    """Bytes by purpose, and the devices that hold them.

    Raises:
      UserError: bad input.
    """
    from jax_t2sql.learner import LoraSpec
    from jax_t2sql.models import ModelConfig, Quantization, count_params
    from jax_t2sql.models.files import read_json
    from jax_t2sql.models.memory import active_params, plan_memory

    path = args.model / "config.json" if args.model.is_dir() else args.model
    config = ModelConfig.from_hf(read_json(path))
    mesh = parse_mesh(args.mesh)
    batch_shards = mesh["data"] * mesh["fsdp"]
    rows = batch_shards if args.rows is None else args.rows
    for name, value in (("--rows", rows), ("--length", args.length)):
        if value < 1:
            raise UserError(f"{name} is {value}; it must be at least 1")
    quantization = None
    if args.bits is not None:
        quantization = Quantization(bits=args.bits, group=args.group, targets=args.quantize)
    try:
        memory = plan_memory(
            config,
            mesh,
            adapter=LoraSpec(
                targets="all-linear" if args.targets == ("all-linear",) else args.targets,
                rank=args.rank,
                alpha=args.rank,
            ),
            rows=rows,
            length=args.length,
            dtype=args.dtype,
            quantization=quantization,
        )
    except (ValueError, re.error) as error:
        raise UserError(str(error)) from error
    return {
        "architecture": config.architecture,
        "parameters": count_params(config),
        "parameters_per_token": active_params(config),
        "mesh": mesh,
        "devices": math.prod(mesh.values()),
        "rows": rows,
        "length": args.length,
        "bytes_per_device": {
            **dataclasses.asdict(memory),
            "activations": memory.activations,
            "total": memory.total,
        },
        "fits": {name: memory.total <= USABLE * size for name, size in DEVICES.items()},
    }


def text(facts: dict[str, Any]) -> str:
    """The plan for people."""
    size = {name: f"{value / 2**30:9.2f}" for name, value in facts["bytes_per_device"].items()}
    mesh = " ".join(f"{name}={count}" for name, count in facts["mesh"].items())
    lines = [
        f"model: {facts['architecture']}, {facts['parameters'] / 1e9:.2f} billion parameters, "
        f"{facts['parameters_per_token'] / 1e9:.2f} used by a token",
        f"mesh: {mesh}, {facts['devices']} devices",
        f"micro-batch: {facts['rows']} rows of {facts['length']} tokens",
        "",
        "GiB on each device:",
        f"  weights     {size['weights']}",
        f"  adapter     {size['adapter']}",
        f"  gradients   {size['gradients']}",
        f"  optimizer   {size['optimizer']}",
        f"  activations {size['activations']}  (estimate: hidden states {size['kept'].strip()}, "
        f"one layer {size['layer'].strip()}, gathered weights {size['gathered'].strip()}, "
        f"logits {size['logits'].strip()})",
        f"  total       {size['total']}",
        "",
    ]
    for name, fits in facts["fits"].items():
        memory = DEVICES[name] / 2**30
        lines.append(f"{name:<11} {memory:6.1f} GiB  {'fits' if fits else 'too small'}")
    return "\n".join(lines)


if __name__ == "__main__":
    run_program(main)
