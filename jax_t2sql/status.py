"""Show a run's fleet as its bus has it: who works, on which version, how fast, and what went wrong.

    python -m jax_t2sql.status --bus B [--watch SECONDS] [--json]

Reads only; may be asked from any machine that sees the bus. A sampler counts as moving if its
counter grew while this program watched (no clocks are compared): with one look nobody can be said
to be dead.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass

import tyro

from jax_t2sql.bus import (
    Batch,
    Decision,
    End,
    Heartbeat,
    Log,
    Publish,
    RunState,
    Store,
    Takeover,
    open_store,
    read_heartbeats,
)
from jax_t2sql.bus.offers import undelivered
from jax_t2sql.errors import UserError
from jax_t2sql.programs import run_program

_RECENT = 200  # fates
_REFUSED = ("invalid", "corrupt", "failed")
_REFUSALS = 3  # that are shown
_SHOWN = 40  # samplers, in text


@dataclass(frozen=True, kw_only=True)
class StatusArgs:
    """Options of the program."""

    bus: str
    """Directory or URL of the run's bus, usually WORKDIR/bus."""
    watch: float = 0.0
    """Look again every so many seconds, until Ctrl-C or the end of the run; 0: look once."""
    json: bool = False
    """One JSON object a look instead of text."""


@dataclass(frozen=True)
class SamplerStatus:
    """One sampler. moving: None if it has been seen once only."""

    name: str
    served: int | None
    held: int
    tokens_per_second: float
    state: str
    moving: bool | None
    last_error: str


@dataclass(frozen=True)
class Status:
    """One look at a bus.

    Attributes:
      version: batches applied. step_open: a batch is logged and not published yet.
      outstanding, window: training tasks under way, and how many may be.
      queue: open tasks by kind that no sampler names among those it holds, nor has handed over.
      delivered: groups handed over that no entry has decided on yet.
      fates, recent: how many tasks ended how, in all and among the last decided.
      staleness: versions behind the newest, by how many samplers serve them.
      length_ratio: of the last batch; see `bus.entries.Batch`.
      new_entries: in the log since the look before; None at the first.
      refusals: the last tasks that ended without use, and why.
      quarantined: samplers of which nothing is trained on any more, and why.
    """

    run: str
    epoch: int
    entries: int
    takeovers: int
    version: int
    step_open: bool
    outstanding: int
    window: int
    max_staleness: int
    queue: dict[str, int]
    delivered: int
    fates: dict[str, int]
    recent: dict[str, int]
    staleness: dict[int, int]
    length_ratio: float | None
    new_entries: int | None
    refusals: tuple[str, ...]
    quarantined: dict[str, str]
    tokens_per_second: float
    adapter: str | None
    ended: str | None
    samplers: tuple[SamplerStatus, ...]


class Watcher:
    """Follows one bus; each look reads only what is new.

    Raises:
      UserError: the log is damaged.
    """

    def __init__(self, store: Store):
        self.store, self.log, self.state = store, Log.open(store), RunState()
        self._news = list(self.log.entries)
        self._counters: dict[str, tuple[str, int]] = {}
        self._decided: list[str] = []
        self._ratio: float | None = None
        self._takeovers = 0
        self._refusals: list[str] = []
        self._seen: int | None = None

    def look(self) -> Status:
        """The bus as it is now. Raises UserError if there is no run in it."""
        news, self._news = [*self._news, *self.log.follow()], []
        for entry in news:
            self.state.apply(entry)
            self._takeovers += isinstance(entry, Takeover)
            if isinstance(entry, Batch):
                self._ratio = entry.length_ratio
            if isinstance(entry, Batch | End):
                self._decided = [*self._decided, *(d.fate for d in entry.fates)][-_RECENT:]
                refused = (_refusal(d) for d in entry.fates if d.fate in _REFUSED)
                self._refusals = [*self._refusals, *refused][-_REFUSALS:]
        if self.state.start is None:
            raise UserError(f"no run in {self.store} yet: its log is empty")
        beats = read_heartbeats(self.store)
        samplers = tuple(self._sampler(beat) for _, beat in sorted(beats.items()))
        self._counters = {name: (b.incarnation, b.counter) for name, b in beats.items()}
        status = self._status(beats, samplers)
        self._seen = len(self.log.entries)
        return status

    def _status(self, beats: dict[str, Heartbeat], samplers: tuple[SamplerStatus, ...]) -> Status:
        state = self.state
        held = {seq for beat in beats.values() if not beat.left for seq in beat.held}
        waiting = undelivered(self.store, state)
        queue = Counter(task.kind for task in waiting if task.seq not in held)
        unpublished = len(state.open_batch.groups) if state.open_batch else 0
        training = sum(task.kind != "eval" for task in state.open_tasks.values())
        working = [s for s in samplers if s.state == "works"]
        behind = Counter(state.version - s.served for s in working if s.served is not None)
        publish: Publish | None = state.last_publish
        return Status(
            run=state.start.run,
            epoch=state.epoch,
            entries=len(self.log.entries),
            takeovers=self._takeovers,
            version=state.version,
            step_open=state.open_batch is not None,
            outstanding=training + unpublished,
            window=state.start.bounds.max_outstanding,
            max_staleness=state.start.bounds.max_staleness,
            queue=dict(queue),
            delivered=len(state.open_tasks) - len(waiting),
            fates=dict(Counter(fate for fate, _ in state.fates.values())),
            recent=dict(Counter(self._decided)),
            staleness=dict(sorted(behind.items())),
            length_ratio=self._ratio,
            new_entries=None if self._seen is None else len(self.log.entries) - self._seen,
            refusals=tuple(self._refusals),
            quarantined={name: reason for name, (reason, _) in state.quarantined.items()},
            tokens_per_second=sum(s.tokens_per_second for s in working),
            adapter=publish.adapter.name if publish and publish.adapter else None,
            ended=state.end.reason if state.end else None,
            samplers=samplers,
        )

    def _sampler(self, beat: Heartbeat) -> SamplerStatus:
        before = self._counters.get(beat.sampler)
        moving = None if before is None else before != (beat.incarnation, beat.counter)
        state = "left" if beat.left else "stands still" if moving is False else "works"
        if state == "works" and beat.sampler in self.state.quarantined:
            state = "quarantined"
        return SamplerStatus(
            name=beat.sampler,
            served=beat.served,
            held=len(beat.held),
            tokens_per_second=0.0 if beat.left else beat.tokens_per_second,
            state=state,
            moving=moving,
            last_error=" ".join(beat.last_error.split()),
        )


def describe(status: Status) -> str:
    """A look as text, for people."""
    news = "" if status.new_entries is None else f" ({status.new_entries} since the last look)"
    ratio = "" if status.length_ratio is None else f", used/all length {status.length_ratio:.2f}"
    lines = [
        f"run {status.run}: version {status.version}"
        f"{' (a batch is being trained)' if status.step_open else ''}, epoch {status.epoch} "
        f"({status.takeovers} takeovers), {status.entries} log entries{news}",
        f"adapter: {status.adapter or 'none (the learner samples by itself)'}",
        f"tasks: {status.outstanding} of {status.window} outstanding, waiting for a sampler: "
        f"{_counts(status.queue)}; handed over: {status.delivered}",
        f"fates: {_counts(status.fates)}; of the last {sum(status.recent.values())}: "
        f"{_counts(status.recent)}{ratio}",
        *(f"  refused: {line}" for line in status.refusals),
        *(f"  quarantined: {name}: {reason}" for name, reason in status.quarantined.items()),
    ]
    behind = ", ".join(f"{n} at {age} behind" for age, n in status.staleness.items())
    lines.append(
        f"samplers: {len(status.samplers)}, {status.tokens_per_second:.0f} tokens/s"
        + (f", serving: {behind} (bound {status.max_staleness})" if behind else "")
    )
    width = max((len(s.name) for s in status.samplers), default=0)
    # In a large fleet those first that one looks for.
    by_trouble = sorted(
        status.samplers, key=lambda s: (s.state != "stands still", not s.last_error)
    )
    for s in by_trouble[:_SHOWN]:
        served = "none" if s.served is None else str(s.served)
        error = f"  last error: {s.last_error[:120]}" if s.last_error else ""
        lines.append(
            f"  {s.name:{width}}  {s.state:12}  version {served:>4}  {s.held:>3} held"
            f"  {s.tokens_per_second:7.0f} tokens/s{error}"
        )
    if len(by_trouble) > _SHOWN:
        lines.append(f"  and {len(by_trouble) - _SHOWN} more (--json shows all)")
    if status.ended is not None:
        lines.append(f"the run has ended: {status.ended}")
    return "\n".join(lines)


def _refusal(decision: Decision) -> str:
    return f"task {decision.seq} is {decision.fate}: {' '.join(decision.reason.split())[:200]}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none"


def main(argv: list[str] | None = None) -> int:
    """The program. Returns the exit status."""
    args = tyro.cli(
        StatusArgs,
        args=sys.argv[1:] if argv is None else argv,
        prog="python -m jax_t2sql.status",
        description=__doc__,
    )
    if args.watch < 0:
        raise UserError(f"--watch is {args.watch:g}; give seconds, or 0 to look once")
    watcher = Watcher(open_store(args.bus, create=False))
    while True:
        status = watcher.look()
        print(json.dumps(asdict(status)) if args.json else describe(status), flush=True)
        if not args.watch or status.ended is not None:
            return 0
        time.sleep(args.watch)
        if not args.json:
            print()


if __name__ == "__main__":
    run_program(main, interrupted="")
