"""The six kinds of log entry. Their JSON is the run's permanent format.

An entry is written once and never changed. `previous` is the sha256 of the bytes of the entry
before it, so that one sha names the whole history up to an entry.
"""

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from jax_t2sql.bus.contract import Bounds, Contract
from jax_t2sql.bus.keys import is_adapter_name

FORMAT = 3
NO_ENTRY = "0" * 64
"""`previous` of the entry with index 0."""

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0)]
Kind = Literal["train", "hinted", "eval"]
Fate = Literal["trained", "zero-signal", "stale", "invalid", "corrupt", "failed", "unused"]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what entries consist of: immutable, and unknown fields are errors."""


class Entry(Part, frozen=True, kw_only=True, tag_field="kind"):
    """Fields of every entry.

    index: n of log/<n>.json. previous: sha256 of entry n-1. epoch: index of the entry by which
    the writing learner took the lead. nonce: makes the bytes unlike those of any other writer.
    """

    index: Count
    previous: Sha256
    epoch: Count
    nonce: Annotated[str, Meta(min_length=1, max_length=64)]


class Start(Entry, frozen=True, kw_only=True, tag="start"):
    """Entry 0: the run's name, contract and bounds.

    config: the resolved configuration, from which a sampler elsewhere configures itself.
    parent: where a forked run comes from (free text: location, index, sha256), else None.
    """

    format: int = FORMAT
    run: str
    learner: str
    contract: Contract
    bounds: Bounds
    config: dict[str, Any] = {}
    parent: str | None = None


class Takeover(Entry, frozen=True, kw_only=True, tag="takeover"):
    """A learner has read the log to here and leads from now on; `epoch` is this index."""

    learner: str


class Task(Part, frozen=True, kw_only=True):
    """One group to sample.

    seq: dense number of the task, from 0 over the whole run. seed: of its first rollout.
    attempt: 0 at the first offer; an offer with attempt+1 expires the claim on the last one.
    adapter, deadline: eval tasks only: the pinned adapter's name, and the version after which
    nobody waits for the result.
    origin: hinted tasks only: the seq of the task of which no rollout was right.
    """

    seq: Count
    problem: str
    group_size: Annotated[int, Meta(ge=1)]
    kind: Kind = "train"
    seed: int
    attempt: Count = 0
    adapter: str | None = None
    deadline: int | None = None
    origin: Count | None = None

    def __post_init__(self):
        pinned = self.adapter is not None and self.deadline is not None
        if (self.kind == "eval") != pinned or (self.adapter is None) != (self.deadline is None):
            raise ValueError(
                f"task {self.seq} of kind {self.kind!r}: eval tasks, and no others, name both the "
                "adapter they pin and their deadline"
            )
        is_sound = self.origin is None or self.origin < self.seq
        if (self.kind == "hinted") != (self.origin is not None) or not is_sound:
            raise ValueError(
                f"task {self.seq} of kind {self.kind!r}: hinted tasks, and no others, name the "
                f"earlier task that they offer again (origin: {self.origin})"
            )


class Issue(Entry, frozen=True, kw_only=True, tag="issue"):
    """Offers tasks. cursor: where the question stream stands after them (any JSON object)."""

    tasks: tuple[Task, ...]
    cursor: dict[str, Any]


class BatchGroup(Part, frozen=True, kw_only=True):
    """One trained group: sha256 of its object, and the ids in each of its rollouts."""

    seq: Count
    sha256: Sha256
    lengths: tuple[int, ...]


class Outcome(Part, frozen=True, kw_only=True):
    """What the rollouts of a group came to, counted: what later decisions rest on.

    valid: those with a reward. solved: of these, with a right result. cut_off, broken: that ended
    so. tokens: ids sampled. plain: the question was put as it is, its evidence unchanged.
    """

    rollouts: Count
    valid: Count
    solved: Count
    cut_off: Count
    broken: Count
    tokens: Count
    plain: bool = True


class Decision(Part, frozen=True, kw_only=True):
    """The fate of one task. reason: why, for a person; sampler: who made the group.

    outcome: of its group, where one that can be read came.
    """

    seq: Count
    fate: Fate
    reason: str = ""
    sampler: str | None = None
    outcome: Outcome | None = None


class Batch(Entry, frozen=True, kw_only=True, tag="batch"):
    """The groups of one update, in order, written before the update runs.

    step: batches applied before this one, i.e. the version of the weights that it changes.
    pack_seed: seed of the packing; with it a replay builds the same arrays.
    fates: of every task decided since the last batch, the groups' own ("trained") included.
    length_ratio: mean rollout length of the groups trained over that of all that came and that this
    entry decides; far below 1 means that long episodes are lost.
    """

    step: Count
    groups: tuple[BatchGroup, ...]
    pack_seed: int
    fates: tuple[Decision, ...]
    length_ratio: float


class AdapterRef(Part, frozen=True, kw_only=True):
    """An adapter by name, with the sha256 of each file and of the whole (see `bus.adapters`)."""

    name: str
    sha256: Sha256
    files: dict[str, Sha256]

    def __post_init__(self):
        if not is_adapter_name(self.name):
            raise ValueError(f"{self.name!r} is not an adapter name")


class Quarantine(Part, frozen=True, kw_only=True):
    """A sampler whose groups are not trained on any more. reason: for a person."""

    sampler: str
    reason: str


class Publish(Entry, frozen=True, kw_only=True, tag="publish"):
    """Concludes a batch, or publishes the present version (again): at the start, after a replay.

    batch: index of the batch entry that this concludes, None if none was open.
    applied: whether its update was applied; False: skipped (e.g. non-finite), version unchanged.
    step: batches applied so far, i.e. the version published.
    adapter: None where weights reach the samplers another way (an inline sampler).
    floor: entries below this index may lose what they name to garbage collection; never sinks.
    keep: adapters to keep below the floor, e.g. those of kept checkpoints.
    quarantined: samplers that were found out in the batch, from this entry on and for good.
    """

    step: Count
    batch: Count | None
    applied: bool
    adapter: AdapterRef | None
    floor: Count = 0
    keep: tuple[str, ...] = ()
    quarantined: tuple[Quarantine, ...] = ()


class End(Entry, frozen=True, kw_only=True, tag="end"):
    """The run is over: nothing follows. fates: of everything still undecided."""

    reason: str
    final: str | None
    best: str | None
    fates: tuple[Decision, ...]


AnyEntry = Start | Takeover | Issue | Batch | Publish | End

_decoder = msgspec.json.Decoder(AnyEntry)


def encode_entry(entry: AnyEntry) -> bytes:
    return msgspec.json.encode(entry)


def decode_entry(data: bytes) -> AnyEntry:
    """Raises msgspec.DecodeError (a ValueError) for anything but one well-formed entry."""
    return _decoder.decode(data)


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
