"""Reading and writing files with one clear error for each way in which that can go wrong."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jax_t2sql.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
      UserError: missing, unreadable, not JSON, or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror or error}; check the folder's name"
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}; get the file again") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds a {type(value).__name__}; an object is needed")
    return value


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes a safetensors file.

    Raises:
      OSError: the disk is full or fails, with the system's code.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        # The library keeps the system's code in the text of its own kind of error only.
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path)) from error


def digest_files(paths: Iterable[Path]) -> str:
    """SHA-256 over names and contents of files, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
