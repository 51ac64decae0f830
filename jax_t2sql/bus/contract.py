"""What must stay the same for a run to be one run."""

import hashlib

import msgspec


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hashes (or exact names) of everything that gives rollouts their meaning.

    Groups carry `sha256`; the log's first entry holds the parts, so that a difference has a name.
    """

    config: str
    code: str
    base_model: str
    tokenizer: str
    prompt: str
    grader: str
    data: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    def differences(self, other: "Contract") -> list[str]:
        """One phrase for each part in which `other` differs from this one."""
        return [
            f"{name} (run: {_short(getattr(self, name))}, now: {_short(getattr(other, name))})"
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(other, name)
        ]


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers that bus rules use; in the log, because every process must use the same ones.

    vocab_size: ids lie in [0, vocab_size).
    groups_per_batch: B. Outstanding training tasks are at most (max_staleness + 1) * B.
    max_staleness: k, in versions; 0 is on-policy.
    max_attempts: A, offers of one task before its fate is "failed".
    max_eval_tasks: outstanding eval tasks, counted apart.
    experts: layers with experts, experts of a token in each, and how many a layer has, which bound
        the records of mixtures of experts. None: groups hold no such record.
    """

    vocab_size: int
    groups_per_batch: int
    max_staleness: int = 0
    max_attempts: int = 5
    max_eval_tasks: int = 0
    experts: tuple[int, int, int] | None = None

    def __post_init__(self):
        for name, low in (
            ("vocab_size", 1),
            ("groups_per_batch", 1),
            ("max_staleness", 0),
            ("max_attempts", 1),
            ("max_eval_tasks", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {low}")

    @property
    def max_outstanding(self) -> int:
        return (self.max_staleness + 1) * self.groups_per_batch


def idle_pause(bounds: Bounds, *, groups_in_flight: int) -> float:
    """Seconds between two looks at the log of a sampler that finds nothing new.

    Longer in a large fleet, which would else mostly ask a bucket for news. The size of the fleet is
    the window's, since no more samplers than that can be busy.
    """
    fleet = bounds.max_outstanding / groups_in_flight
    return min(max(0.5, fleet / 25), 20.0)


def beat_pause(bounds: Bounds, *, groups_in_flight: int, still_seconds: float) -> float:
    """Seconds between two heartbeats, and between the learner's looks at them; see `idle_pause`.

    Four at least may be lost before a sampler counts as dead after `still_seconds`.
    """
    pause = max(5.0, 4 * idle_pause(bounds, groups_in_flight=groups_in_flight))
    return min(pause, still_seconds / 5)


def claim_step(groups_in_flight: int) -> int:
    """How many groups a sampler claims at a time, as soon as it has a place for one.

    Each time costs a listing. Those beyond its places wait their turn for a moment.
    """
    return max(1, groups_in_flight // 4)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:12]}…{text[-4:]}"
