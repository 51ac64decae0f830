"""A bus in a bucket or in memory, through obstore."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import from_url

from jax_t2sql.bus import keys as names
from jax_t2sql.bus.store import MAX_OBJECT_BYTES
from jax_t2sql.errors import UserError

# The client's own tries of one request; `put_once` comes back to a store that stays down longer.
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


class ObstoreStore:
    """Any obstore store with conditional puts: creation is atomic and durable there by itself."""

    def __init__(self, raw):
        self.raw = raw

    @classmethod
    def from_url(cls, url: str) -> "ObstoreStore":
        try:
            options = {} if url.startswith("memory:") else {"retry_config": _RETRIES}
            return cls(from_url(url, **options))
        except (BaseError, ValueError) as error:
            raise UserError(
                f"bus {url!r} cannot be opened ({error}); give a directory, "
                "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or memory:///"
            ) from error

    def __repr__(self) -> str:
        return f"ObstoreStore({self.raw!r})"

    def create(self, key: str, data: bytes, *, durable: bool = True) -> None:
        try:
            obstore.put(self.raw, names.check_key(key), data, mode="create")
        except AlreadyExistsError as error:
            raise FileExistsError(key) from error

    def overwrite(self, key: str, data: bytes) -> None:
        obstore.put(self.raw, names.check_key(key), data, mode="overwrite")

    def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        try:
            answer = obstore.get(self.raw, names.check_key(key))
        except (FileNotFoundError, NotFoundError) as error:
            raise FileNotFoundError(f"no such object: {key}") from error
        # The size comes with the headers: an object too large is refused before its body is read.
        if answer.meta["size"] > max_bytes:
            raise ValueError(f"{key!r} has {answer.meta['size']} bytes, the limit is {max_bytes}")
        return bytes(answer.bytes())

    def keys(self, prefix: str, *, start: str = "") -> list[str]:
        # An offset excludes itself; the longest prefix of `start` below it includes `start`.
        pages = obstore.list(self.raw, prefix=prefix, offset=start[:-1] or None)
        found = (meta["path"] for page in pages for meta in page)
        return sorted(key for key in found if key >= start)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                obstore.delete(self.raw, names.check_key(key))
            except (FileNotFoundError, NotFoundError):
                continue

    def local_path(self, key: str) -> Path | None:
        return None
