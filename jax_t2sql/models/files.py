"""Reading files with one clear error for each way in which they can be wrong."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
      UserError: missing, unreadable, not JSON, or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds a {type(value).__name__}; an object is needed")
    return value


def digest_files(paths: Iterable[Path]) -> str:
    """SHA-256 over names and contents of files, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
