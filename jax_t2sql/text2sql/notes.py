"""What prompts say of a database beside its schema: notes by people who know it, or a legend."""

from collections.abc import Callable
from pathlib import Path

from jax_t2sql.errors import UserError

_MOST_BYTES = 256 * 1024


def read_notes(place: Path | str | None) -> Callable[[str], str]:
    """Gives the notes on a database by its id, "" where there are none.

    Args:
      place: a text file, for every database; or a folder with a file DB_ID.txt for each that has
        notes; or None.

    Raises:
      UserError: there is nothing at that place, or what is there cannot be read as text.
    """
    if place is None:
        return lambda db_id: ""
    path = Path(place)
    if path.is_file():
        text = _read(path)
        return lambda db_id: text
    if not path.is_dir():
        raise UserError(f"notes {str(path)!r} do not exist; give a text file, or a folder")
    found = {file.stem: _read(file) for file in sorted(path.glob("*.txt"))}
    if not found:
        raise UserError(f"notes {str(path)!r}: the folder has no DB_ID.txt")
    return lambda db_id: found.get(db_id, "")


def _read(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise UserError(f"notes {str(path)!r}: {size:,} bytes, the limit is {_MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"notes {str(path)!r} cannot be read: {error}") from error
    if not text:
        raise UserError(f"notes {str(path)!r} are empty; leave the option out")
    return text
