"""Write a model in Hugging Face's format, an adapter merged into it.

    python -m jax_t2sql.export --model BASE --adapter ADAPTER --out DIR [--dtype bfloat16]

BASE is a directory in Hugging Face's format or a .gguf file, ADAPTER one in PEFT's format, such as
a run publishes. The result loads in transformers and vLLM without peft, and here. Without an
adapter it is the base alone, which turns a .gguf file into a directory. Of a directory one tensor
is in memory at a time. The result appears only when it is complete.
"""

import dataclasses
import math
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from jax_t2sql.errors import UserError
from jax_t2sql.programs import raise_disk_fault, run_program


@dataclass(frozen=True, kw_only=True)
class ExportArgs:
    """Options of the program."""

    model: Path
    """The base: a directory with config.json and safetensors, or a .gguf file."""
    out: Path
    """Folder for the result. It must not exist, or be empty."""
    adapter: Path | None = None
    """Folder with adapter_config.json and adapter_model.safetensors."""
    dtype: Literal["bfloat16", "float16", "float32"] | None = None
    """Of all weights of the result; each keeps its own by default, and those of quantised bases
    become bfloat16, or float32 from a .gguf file."""


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        ExportArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.export",
        description=__doc__,
    )
    try:
        changed = export(args)
    except OSError as error:
        raise_disk_fault(error, args.out, "it starts anew")
        raise
    print(f"{args.out}: {changed} weights of {args.model} changed by {args.adapter or 'nothing'}")
    return 0


def export(args: ExportArgs) -> int:
    """Writes the result; how many weights differ from the base.

    Raises:
      UserError: bad input; then the result does not exist.
      OSError: the disk is full or fails; likewise.
    """
    _check(args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the result, so that the last step is a renaming.
    part = Path(tempfile.mkdtemp(prefix=f".{args.out.name}-", dir=args.out.parent))
    try:
        changed = _from_file(args, part) if args.model.is_file() else _from_directory(args, part)
        part.chmod(0o755)  # a temporary folder is the owner's alone
        part.replace(args.out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return changed


def _check(args: ExportArgs) -> None:
    from jax_t2sql.models import check_model

    if not args.model.exists():
        raise UserError(f"--model {args.model} does not exist; give a directory or a .gguf file")
    check_model(args.model)
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise UserError(f"--out {args.out} exists and is not empty; choose another")
    if args.model.is_dir() and args.adapter is None and args.dtype is None:
        raise UserError(
            f"{args.model} is already in Hugging Face's format; give --adapter, or --dtype"
        )


def _from_directory(args: ExportArgs, part: Path) -> int:
    from jax_t2sql.models import ModelConfig, load_adapter
    from jax_t2sql.models.files import read_json
    from jax_t2sql.models.merge import merge_directory

    config = ModelConfig.from_hf(read_json(args.model / "config.json"))
    adapter = None if args.adapter is None else load_adapter(args.adapter, config)
    return merge_directory(args.model, part, adapter, dtype=args.dtype)


def _from_file(args: ExportArgs, part: Path) -> int:
    import jax

    from jax_t2sql.learner import lora_pairs, merge_lora
    from jax_t2sql.models import load_adapter, load_model, save_hf

    model = load_model(args.model, dtype=args.dtype or "float32")
    adapter = {} if args.adapter is None else load_adapter(args.adapter, model.config)
    merged = merge_lora(model.params, adapter)
    params = jax.tree.map(lambda new, old: new.astype(old.dtype), merged, model.params)
    save_hf(dataclasses.replace(model, params=params), part)
    return sum(math.prod(pair.a.shape[:-2]) for _, pair in lora_pairs(adapter))


if __name__ == "__main__":
    run_program(main)
