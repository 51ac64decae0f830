"""The rows of a Parquet file, as public question sets are often published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_t2sql.errors import UserError


def is_parquet(path: Path) -> bool:
    """Whether a file's name says that it is Parquet."""
    return path.suffix.lower() in (".parquet", ".pq")


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row from 1, fields) for each row of a file.

    Raises:
      UserError: the file cannot be read, or pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(
            f"{path}: Parquet needs pyarrow; install jax_t2sql[data], or convert the file to JSON"
            " lines"
        ) from None
    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except ArrowException as error:
        raise UserError(
            f"{path}: is no Parquet file that can be read: {str(error).splitlines()[0]}"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); give a question file") from None
