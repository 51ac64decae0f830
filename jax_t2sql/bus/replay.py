"""Training again what the log says was trained, after a checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass

from jax_t2sql.bus.entries import AnyEntry, Batch, BatchGroup, Publish, sha256_hex
from jax_t2sql.bus.faults import BadObject, LogError
from jax_t2sql.bus.groups import Group, decode_group
from jax_t2sql.bus.intake import read_group
from jax_t2sql.bus.keys import group_key
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.store import Store


@dataclass(frozen=True)
class ReplayStep:
    """A logged batch to train again. published: False if it is still open."""

    batch: Batch
    groups: list[Group]
    published: bool


def entries_after(log: Log, position: tuple[int, str] | None, *, floor: int) -> list[AnyEntry]:
    """The entries after a checkpoint's position; None: all of them.

    Raises:
        LogError: the log does not hold that position, or what they name may be collected already.
    """
    entries = list(log.entries) if position is None else log.since(*position)
    if log.head + 1 - len(entries) < floor:
        raise LogError(
            f"entries from {log.head + 1 - len(entries)} on cannot be replayed: garbage below "
            f"entry {floor} was released. Restore a newer checkpoint"
        )
    return entries


def replay(log: Log, position: tuple[int, str] | None, *, floor: int) -> Iterator[ReplayStep]:
    """Batches after `position` in order, without those whose update was skipped.

    Groups are fetched one batch at a time and compared with the sha256 in the log.
    """
    entries = entries_after(log, position, floor=floor)
    applied = {e.batch: e.applied for e in entries if isinstance(e, Publish)}
    for entry in entries:
        if isinstance(entry, Batch) and applied.get(entry.index, True):
            groups = batch_groups(log.store, entry)
            yield ReplayStep(entry, groups, published=entry.index in applied)


def batch_groups(store: Store, batch: Batch) -> list[Group]:
    """The groups of a logged batch, in its order, as the log has them.

    Raises:
        LogError: one is gone, or is not the one that was trained.
    """
    return [_fetch_trained(store, batch.index, wanted) for wanted in batch.groups]


def _fetch_trained(store: Store, batch: int, wanted: BatchGroup) -> Group:
    try:
        data = read_group(store, wanted.seq)
        if sha256_hex(data) != wanted.sha256:
            raise BadObject("corrupt", "its sha256 is not the one in the log")
        return decode_group(data)
    except (FileNotFoundError, BadObject) as error:
        raise LogError(
            f"batch entry {batch} cannot be replayed: {group_key(wanted.seq)}: {error}. Bring the "
            "object back from a copy of the bus, or restart from a later checkpoint"
        ) from error
