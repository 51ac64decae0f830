"""What programs print of scores."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jax_t2sql.errors import UserError

_LONGEST = 100


def console() -> Console:
    """Standard output."""
    return Console(markup=False, highlight=False)


def table(headings: Sequence[str], *, title: str | None = None) -> Table:
    """A table whose first column is a name and whose others are numbers."""
    made = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="right" if number else "left")
    return made


def percent(value: float | None) -> str:
    """A share in per cent; empty where there is none."""
    return "" if value is None else f"{value:.1%}"


def interval(figures: Mapping[str, Any]) -> str:
    """The 95 % interval of figures made by `summary.share`."""
    if figures.get("accuracy") is None:
        return ""
    return f"{figures['wilson_low']:.1%} to {figures['wilson_high']:.1%}"


def printable(text: str) -> str:
    """One line without characters that a terminal would act on, cut where it is long."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, whole or not at all.

    Raises:
      UserError: it cannot be written.
    """
    draft = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(value, indent=2, ensure_ascii=True) + "\n")
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); name another file") from None
