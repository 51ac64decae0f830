"""What a sampler says about itself: the only object on the bus that is ever overwritten."""

from typing import Annotated

import msgspec
from msgspec import Meta

from jax_t2sql.bus.keys import SAMPLERS, sampler_key
from jax_t2sql.bus.store import Store

_MAX_HEARTBEAT_BYTES = 1 << 20


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Proof of life. Readers compare counters with earlier counters, never times with times.

    incarnation: random, new with each process. counter: grows with each heartbeat.
    held: seqs being worked on. served: adapter version in use; proven: the newest version whose
    log-probs this sampler has checked; None before the first. left: this incarnation is over, and
    works on nothing any more.
    """

    sampler: str
    incarnation: str
    counter: int
    held: tuple[int, ...] = ()
    served: int | None = None
    proven: int | None = None
    tokens_per_second: float = 0.0
    last_error: Annotated[str, Meta(max_length=4096)] = ""
    left: bool = False


def write_heartbeat(store: Store, heartbeat: Heartbeat) -> None:
    store.overwrite(sampler_key(heartbeat.sampler), msgspec.json.encode(heartbeat))


def read_heartbeats(store: Store) -> dict[str, Heartbeat]:
    """Heartbeats by sampler id. Unreadable ones are left out: they prove no life."""
    beats = (_read(store, key) for key in store.keys(SAMPLERS))
    return {beat.sampler: beat for beat in beats if beat is not None}


def read_heartbeat(store: Store, sampler: str) -> Heartbeat | None:
    """That of one sampler; None where it is missing or unreadable."""
    return _read(store, sampler_key(sampler))


def _read(store: Store, key: str) -> Heartbeat | None:
    try:
        data = store.read(key, max_bytes=_MAX_HEARTBEAT_BYTES)
        heartbeat = msgspec.json.decode(data, type=Heartbeat)
    except (FileNotFoundError, ValueError):
        return None
    return heartbeat if sampler_key(heartbeat.sampler) == key else None
