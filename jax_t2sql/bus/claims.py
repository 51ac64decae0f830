"""Claims: which sampler works on which offer, and when the learner stops believing it."""

import secrets
from collections.abc import Mapping

import msgspec

from jax_t2sql.bus.entries import Task
from jax_t2sql.bus.keys import claim_key
from jax_t2sql.bus.samplers import Heartbeat
from jax_t2sql.bus.store import Store, put_once

_MAX_CLAIM_BYTES = 1 << 16


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One offer of one task, taken.

    learner_epoch: for a sampler inside a learner process, that learner's epoch: it dies with it.
    None for a sampler process, which is believed as long as its heartbeat counter moves.
    """

    seq: int
    attempt: int
    sampler: str
    incarnation: str
    learner_epoch: int | None
    nonce: str


def put_claim(
    store: Store, task: Task, *, sampler: str, incarnation: str, learner_epoch: int | None
) -> bool:
    """True if the offer is this sampler's now, False if it was taken before.

    Not fsynced: a claim lost in a power cut only means that work is done twice, and of two groups
    the bus keeps the first.
    """
    claim = Claim(
        seq=task.seq,
        attempt=task.attempt,
        sampler=sampler,
        incarnation=incarnation,
        learner_epoch=learner_epoch,
        nonce=secrets.token_hex(8),
    )
    key = claim_key(task.seq, task.attempt)
    return put_once(store, key, msgspec.json.encode(claim), durable=False)


def read_claim(store: Store, task: Task) -> Claim | None:
    """Who holds this offer; None if nobody does.

    Raises:
        ValueError: the object under that name is no claim on this offer.
    """
    key = claim_key(task.seq, task.attempt)
    try:
        data = store.read(key, max_bytes=_MAX_CLAIM_BYTES)
    except FileNotFoundError:
        return None
    claim = msgspec.json.decode(data, type=Claim)
    if (claim.seq, claim.attempt) != (task.seq, task.attempt):
        raise ValueError(f"claim {key!r} is for task {claim.seq} attempt {claim.attempt}")
    return claim


class ClaimWatch:
    """Finds holders that stand still, on the learner's own monotonic clock, or gave a task back."""

    def __init__(self):
        self._moved: dict[tuple[str, str], tuple[int | None, float]] = {}
        self._first_seen: dict[tuple[int, int], int] = {}  # offer to its holder's counter then

    def stalled(
        self,
        holders: Mapping[int, Claim],
        heartbeats: Mapping[str, Heartbeat],
        *,
        now: float,
        still_seconds: float,
    ) -> list[int]:
        """Seqs that nobody works on. Either their holder is dead: its counter (or lack of one) has
        stood for `still_seconds`, or its heartbeat comes from a later incarnation of the same
        sampler. Or it lives and does not name them among those it holds.

        now: seconds of any monotonic clock, the same one in every call.
        """
        dead = []
        current = {}
        first_seen = {}
        for seq, claim in holders.items():
            beat = heartbeats.get(claim.sampler)
            process = (claim.sampler, claim.incarnation)
            counter = beat.counter if beat and beat.incarnation == claim.incarnation else None
            last, since = self._moved.get(process, (None, now))
            if counter != last:
                since = now
            current[process] = (counter, since)
            # A process beats before its first claim, and who holds a claim is read at a later look
            # than heartbeats were (see `offers.holders`): this one's has been overwritten.
            replaced = beat is not None and counter is None
            # A claim is put before a heartbeat can name it, and the next one might be under way
            # at that moment: only the one after that was surely written by who knew of the claim.
            offer, given_back = (seq, claim.attempt), False
            if counter is not None:
                first_seen[offer] = self._first_seen.get(offer, counter)
                unheld = counter >= first_seen[offer] + 2 and seq not in beat.held
                given_back = beat.left or unheld
            if replaced or given_back or now - since >= still_seconds:
                dead.append(seq)
        self._moved = current
        self._first_seen = first_seen
        return dead
