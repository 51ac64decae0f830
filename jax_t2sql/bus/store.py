"""Objects by name: what the bus asks of a store, and the one safe way to create an object.

Two backends hold the same names and bytes: `DirectoryStore` (this machine or a shared file system)
and `ObstoreStore` (``memory://``, ``s3://``, ``gs://``).
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from jax_t2sql.errors import StoreAway, UserError

MAX_OBJECT_BYTES = 256 * 2**20
_WRITERS = 8
_FIRST_PAUSE_SECONDS = 0.05


class Store(Protocol):
    """Whole objects under the names of `bus.keys`; every method refuses any other name.

    A store that cannot be reached, or will not, is an OSError in all of them.
    """

    def create(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Create `key` at once and whole. FileExistsError if it is there, by whomever.

        durable: on return the object outlives a power cut. Claims and heartbeats do without.
        """

    def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """All bytes. FileNotFoundError if absent, ValueError if larger or not a plain object."""

    def overwrite(self, key: str, data: bytes) -> None:
        """Create or replace, at once and whole. Only heartbeats are ever replaced."""

    def keys(self, prefix: str, *, start: str = "") -> list[str]:
        """Sorted keys under one of `bus.keys.PREFIXES`, those in its folders included, or under
        one folder of these.

        start: leave out keys before this one.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; absent ones are no error. Only garbage collection calls this."""

    def local_path(self, key: str) -> Path | None:
        """Where the object lies as a file, None where it is not one."""


def open_store(location: str | Path, *, create: bool = True) -> Store:
    """Open a bus: a directory or a URL: ``s3://``, ``gs://``, ``memory://``.

    create: make a directory that is missing; False, for programs that come to a run of another
    process, refuses it, and what another process could not see.

    Each opening of ``memory://`` is a new, empty store: keep the object to share it.
    """
    from jax_t2sql.bus.bucket import ObstoreStore
    from jax_t2sql.bus.directory import DirectoryStore

    text = str(location)
    if "://" not in text:
        return DirectoryStore(Path(location), create=create)
    if text.startswith("file://"):
        raise UserError(f"bus {text!r}: give a local directory as a plain path, not as a URL")
    if text.startswith(("http://", "https://")):
        raise UserError(
            f"bus {text!r}: a web server takes no writes; give a directory, s3:// or gs://"
        )
    if text.startswith("memory:") and not create:
        raise UserError(
            f"bus {text!r} is seen by no process but the one that made it; give the run's "
            "directory, s3:// or gs://"
        )
    return ObstoreStore.from_url(text)


def put_once(
    store: Store, key: str, data: bytes, *, durable: bool = True, attempts: int = 5
) -> bool:
    """Create `key`; True if it now holds `data`, False if somebody else's bytes.

    `data` must be unlike any other writer's (a nonce inside, or a name that is its hash): after
    "already exists", a time-out or any unknown error the object is read back, and equal bytes mean
    that this writer's put arrived after all. An absent object is put again, with doubling pauses.

    Raises:
        StoreAway: the store failed `attempts` times; the last cause is chained.
    """
    pause = _FIRST_PAUSE_SECONDS
    for attempt in range(attempts):
        try:
            store.create(key, data, durable=durable)
            return True
        except ValueError:
            raise  # a name or a file system that can never work
        except Exception as error:
            cause = error
        try:
            return store.read(key) == data
        except FileNotFoundError:
            pass
        except ValueError:
            return False  # there is an object, and it is not ours: too large, or a link
        except Exception as error:
            cause = error
        if attempt + 1 < attempts:
            time.sleep(pause)
            pause *= 2
    raise StoreAway(
        f"could not create {key!r} on the bus in {attempts} attempts ({cause}); "
        "check that the store is reachable and has space, then restart: nothing is lost"
    ) from cause


def put_all_once(store: Store, objects: Sequence[tuple[str, bytes]]) -> list[bool]:
    """`put_once` for many objects, durable, in order of `objects`.

    Several threads, because a put waits (for fsync on a disk, about 0.2 to 1 ms; for the network
    in a bucket), and the file system commits waiting writers together.
    """
    if len(objects) < 2:
        return [put_once(store, key, data) for key, data in objects]
    with ThreadPoolExecutor(min(_WRITERS, len(objects)), "bus-put") as pool:
        return list(pool.map(lambda item: put_once(store, *item), objects))
