"""A bus in a bucket or in memory, through obstore."""

import contextlib
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import from_url

from jax_t2sql.bus import keys as names
from jax_t2sql.bus.store import MAX_OBJECT_BYTES
from jax_t2sql.errors import StoreAway, UserError

# The client's own tries of one request; `put_once` comes back to a store that stays down longer.
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


@contextlib.contextmanager
def _answering(key: str):
    """Faults of network and server as OSError, like a disk's; absence as FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise FileNotFoundError(f"no such object: {key}") from error
    except AlreadyExistsError as error:
        raise FileExistsError(key) from error
    except BaseError as error:
        raise StoreAway(
            f"{key!r} on the bus: {_first_line(error)}; check address, network and credentials"
        ) from error


def _first_line(error: Exception) -> str:
    """What failed; the lines after it are the store's own data structures."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:500]


class ObstoreStore:
    """Any obstore store with conditional puts: creation is atomic and durable there by itself."""

    def __init__(self, raw, *, url: str = "memory:///"):
        self.raw, self.url = raw, url

    @classmethod
    def from_url(cls, url: str) -> "ObstoreStore":
        try:
            options = {} if url.startswith("memory:") else {"retry_config": _RETRIES}
            return cls(from_url(url, **options), url=url)
        except (BaseError, ValueError) as error:
            raise UserError(
                f"bus {url!r} cannot be opened ({_first_line(error)}); give a directory, "
                "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
            ) from error

    def __repr__(self) -> str:
        return f"ObstoreStore({self.url!r})"

    def __str__(self) -> str:
        return self.url

    def create(self, key: str, data: bytes, *, durable: bool = True) -> None:
        with _answering(key):
            obstore.put(self.raw, names.check_key(key), data, mode="create")

    def overwrite(self, key: str, data: bytes) -> None:
        with _answering(key):
            obstore.put(self.raw, names.check_key(key), data, mode="overwrite")

    def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        with _answering(key):
            answer = obstore.get(self.raw, names.check_key(key))
            # The size comes with the headers: too large an object is refused before its body.
            size = answer.meta["size"]
            if size > max_bytes:
                raise ValueError(f"{key!r} has {size} bytes, the limit is {max_bytes}")
            return bytes(answer.bytes())

    def keys(self, prefix: str, *, start: str = "") -> list[str]:
        # An offset excludes itself; the longest prefix of `start` below it includes `start`.
        with _answering(prefix):
            pages = obstore.list(self.raw, prefix=prefix, offset=start[:-1] or None)
            found = [meta["path"] for page in pages for meta in page]
        return sorted(key for key in found if key >= start)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with contextlib.suppress(FileNotFoundError), _answering(key):
                obstore.delete(self.raw, names.check_key(key))

    def local_path(self, key: str) -> Path | None:
        return None
