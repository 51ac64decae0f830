"""The append-only chain of entries: read, verify, follow, append."""

import secrets
from collections.abc import Callable

import msgspec

from jax_t2sql.bus.entries import NO_ENTRY, AnyEntry, decode_entry, encode_entry, sha256_hex
from jax_t2sql.bus.faults import LogError, LostLeadership
from jax_t2sql.bus.keys import LOG, log_index, log_key
from jax_t2sql.bus.store import Store, put_once

MAX_ENTRY_BYTES = 64 * 2**20


class Log:
    """The entries read so far, in order, each verified against the one before.

    `shas[n]` is the sha256 of entry n. The log never decides anything: what the entries mean is
    `bus.state.RunState`'s business.
    """

    def __init__(self, store: Store):
        self.store = store
        self.entries: list[AnyEntry] = []
        self.shas: list[str] = []

    @classmethod
    def open(cls, store: Store) -> "Log":
        """Read a whole log, empty or not.

        Raises:
            LogError: a gap, a damaged or unknown entry, a broken chain; names the entry.
        """
        log = cls(store)
        present = {index for key in store.keys(LOG) if (index := log_index(key)) is not None}
        missing = set(range(max(present, default=-1) + 1)) - present
        if missing:
            raise LogError(
                f"the log has a gap: {log_key(min(missing))} is missing but "
                f"{log_key(max(present))} exists. Bring the file back (from a copy of the bus) or "
                "start a new run"
            )
        log.follow()
        return log

    @property
    def head(self) -> int:
        """Index of the last entry, -1 if there is none."""
        return len(self.entries) - 1

    @property
    def head_sha(self) -> str:
        return self.shas[-1] if self.shas else NO_ENTRY

    def follow(self) -> list[AnyEntry]:
        """Read the entries appended since; returns them."""
        first = len(self.entries)
        while True:
            key = log_key(self.head + 1)
            try:
                data = self.store.read(key, max_bytes=MAX_ENTRY_BYTES)
            except FileNotFoundError:
                return self.entries[first:]
            except ValueError as error:
                raise LogError(f"log entry {key}: {error}") from error
            self._accept(key, data)

    def append(self, make: Callable[..., AnyEntry]) -> AnyEntry:
        """Append ``make(index=, previous=, nonce=)`` at head+1, durably.

        Raises:
            LostLeadership: the slot holds another learner's entry.
        """
        entry = make(index=self.head + 1, previous=self.head_sha, nonce=secrets.token_hex(8))
        data, key = encode_entry(entry), log_key(entry.index)
        if len(data) > MAX_ENTRY_BYTES:
            raise ValueError(
                f"entry {key} would have {len(data)} bytes, the limit is {MAX_ENTRY_BYTES}; "
                "use smaller batches"
            )
        if not put_once(self.store, key, data):
            raise LostLeadership(
                f"{key} was written by another learner, which has taken over this run; "
                "this learner stops"
            )
        self._accept(key, data)
        return self.entries[-1]

    def since(self, index: int, sha256: str) -> list[AnyEntry]:
        """The entries after `index`, if entry `index` is the one with that sha256.

        Raises:
            LogError: it is not, so whoever remembers it belongs to another history.
        """
        if index > self.head:
            raise LogError(
                f"position {index} lies beyond the log's last entry ({self.head}): it belongs to "
                "another run, or the bus lost entries; use the workdir that it came from"
            )
        if index < 0 or self.shas[index] != sha256:
            found = self.shas[index][:12] if index >= 0 else "none"
            raise LogError(
                f"log entry {index} has sha256 {found}…, expected {sha256[:12]}…: the position "
                "belongs to another run; use the workdir that it came from"
            )
        return self.entries[index + 1 :]

    def _accept(self, key: str, data: bytes) -> None:
        try:
            entry = decode_entry(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogError(
                f"log entry {key} ({len(data)} bytes) cannot be read: {error}. It is damaged, or "
                "written by a newer version of jax_t2sql; bring it back from a copy or upgrade"
            ) from error
        index = self.head + 1
        if entry.index != index:
            raise LogError(f"log entry {key} calls itself {entry.index}; the file was moved")
        if entry.previous != self.head_sha:
            raise LogError(
                f"log entry {key} follows an entry with sha256 {entry.previous[:12]}…, but "
                f"{log_key(index - 1) if index else 'the empty log'} has {self.head_sha[:12]}…: "
                "one of the two was changed after it was written"
            )
        self.entries.append(entry)
        self.shas.append(sha256_hex(data))
