"""A sampler's end of the bus, the same for one inside the learner's process and one elsewhere."""

import random
import secrets
from collections.abc import Sequence

from jax_t2sql.bus.claims import put_claim
from jax_t2sql.bus.contract import Contract
from jax_t2sql.bus.entries import AdapterRef, AnyEntry, Issue, Task
from jax_t2sql.bus.faults import BadObject, ContractError, LostLeadership
from jax_t2sql.bus.free_offers import FreeOffers
from jax_t2sql.bus.groups import Group, check_group, encode_group
from jax_t2sql.bus.keys import check_name, group_key
from jax_t2sql.bus.log import Log
from jax_t2sql.bus.samplers import Heartbeat, read_heartbeat, write_heartbeat
from jax_t2sql.bus.state import RunState
from jax_t2sql.bus.store import Store, put_all_once
from jax_t2sql.errors import UserError

_PASSES = 3
_BEATS_A_LOOK = 8  # at who else beats under this name; each look costs a read


class SamplerBus:
    """One incarnation of one sampler. `refresh` reads the log; nothing here writes to it.

    sampler: its id, unique among samplers. contract: what this sampler itself would run under.
    learner_epoch: the learner's epoch if this sampler lives in the learner's process, else None;
    its unfinished claims then end with that process.

    Raises:
        UserError: there is no run yet. ContractError: the run has another contract.
    """

    def __init__(
        self, store: Store, *, sampler: str, contract: Contract, learner_epoch: int | None = None
    ):
        self.store = store
        self.sampler = check_name(sampler)
        self.incarnation = secrets.token_hex(8)
        self.learner_epoch = learner_epoch
        self.log = Log.open(store)
        self.state = RunState()
        self.state.apply_all(self.log.entries)
        if self.state.start is None:
            raise UserError(f"no run in {store} yet: start the learner first")
        if different := self.state.start.contract.differences(contract):
            raise ContractError(
                f"sampler {sampler!r} cannot work for the run in {store}; these differ: "
                f"{', '.join(different)}. Start it with the code, model and data of the run"
            )
        self._held: set[int] = set()
        self._free = FreeOffers()
        self._free.follow(self.log.entries)
        self._pass = 0  # refreshes until `claim` looks again, since it found nothing
        self._counter = 0

    @property
    def ended(self) -> bool:
        """The run is over: stop."""
        return self.state.end is not None

    @property
    def quarantined(self) -> str | None:
        """Why the learner takes no more groups of this sampler: stop. None: it does."""
        reason, _ = self.state.quarantined.get(self.sampler, (None, 0))
        return reason

    @property
    def version(self) -> int:
        """The version last published (0 before the first publish)."""
        return self.state.version

    @property
    def adapter(self) -> AdapterRef | None:
        """The adapter last published, None if the last publish had none."""
        return self.state.last_publish.adapter if self.state.last_publish else None

    def refresh(self) -> list[AnyEntry]:
        """Read what the learner appended since; returns it."""
        entries = self.log.follow()
        self.state.apply_all(entries)
        self._free.follow(entries)
        news = any(isinstance(entry, Issue) for entry in entries)
        self._pass = 0 if news else max(self._pass - 1, 0)
        self._held &= self.state.open_tasks.keys()
        return entries

    def open_tasks(self) -> list[Task]:
        """Offers of the log, as last refreshed, that nobody has claimed, oldest first."""
        return [task for part in self._free.parts(self.store, None) for task in part]

    def claim(self, limit: int, *, rng: random.Random | None = None) -> list[Task]:
        """Up to `limit` open tasks that are this sampler's from now on; may be fewer, or none.

        A quarantined sampler gets none.

        rng: picks at random, so that many samplers rarely try for the same task (pause for a
        jittered time when nothing was won), and gives up at a shard without a free offer; one that
        holds something then waits for a few refreshes or until the log offers more. None takes the
        oldest, right for a single sampler.

        Raises:
            LostLeadership: this sampler lives inside a learner that no longer leads.
        """
        if self.learner_epoch not in (None, self.state.epoch):
            raise LostLeadership(
                f"the learner of epoch {self.learner_epoch}, which this sampler lives in, was "
                f"taken over by that of epoch {self.state.epoch}; it stops"
            )
        if (
            limit < 1
            or self.quarantined is not None
            or (rng is not None and self._held and self._pass > 0)
        ):
            return []
        if self._counter == 0 and self.learner_epoch is None:
            self.heartbeat()  # before the first claim: see `ClaimWatch`
        won = []
        for part in self._free.parts(self.store, rng):
            won += self._claim_of(part, limit - len(won))
            if len(won) >= limit:
                break
            if rng is not None and not part:
                # Where others pick at random too, what is left elsewhere is as little.
                self._pass = _PASSES
                break
        return won

    def _claim_of(self, free: Sequence[Task], limit: int) -> list[Task]:
        won = []
        for task in free:
            # Held from before the put: a heartbeat by another thread must not seem to give it back.
            self._held.add(task.seq)
            if put_claim(
                self.store,
                task,
                sampler=self.sampler,
                incarnation=self.incarnation,
                learner_epoch=self.learner_epoch,
            ):
                won.append(task)
            else:
                self._held.discard(task.seq)
            self._free.taken(task)
            if len(won) >= limit:
                break
        return won

    def give_back(self, task: Task) -> None:
        """Stop working on a claimed task; the learner offers it again, as the next attempt."""
        self._held.discard(task.seq)

    def make_group(self, task: Task, rollouts) -> Group:
        """The group of `bus.groups.Rollout`s that answers `task`."""
        contract = self.state.start.contract.sha256
        return Group.make(task, contract=contract, sampler=self.sampler, rollouts=rollouts)

    def put_groups(self, groups: Sequence[Group]) -> list[bool]:
        """Hand groups over, each fsynced on return. False: another sampler's group came first.

        Raises:
            ValueError: a group that no learner would accept; none of them is put.
        """
        if any(self._is_ahead(group) for group in groups):
            self.refresh()
        objects = []
        for group in groups:
            task = self.state.open_tasks.get(group.seq)
            if task is not None:  # decided since: the learner ignores what comes now
                self._check(group, task)
            objects.append((group_key(group.seq), encode_group(group)))
        results = put_all_once(self.store, objects)
        self._held.difference_update(group.seq for group in groups)
        return results

    def _is_ahead(self, group: Group) -> bool:
        """Whether a group knows more of the run than this has read."""
        versions = [int(r.versions_T.max(initial=0)) for r in group.rollouts]
        return group.seq >= self.state.next_seq or max(versions, default=0) > self.version

    def heartbeat(
        self,
        *,
        served: int | None = None,
        proven: int | None = None,
        tokens_per_second: float = 0.0,
        last_error: str = "",
        left: bool = False,
    ) -> Heartbeat:
        """Say that this sampler lives; see `bus.samplers.Heartbeat` for the arguments.

        Raises:
            UserError: another process beats under this name, and has done so since this one began.
        """
        if left or self._counter % _BEATS_A_LOOK == 1:
            self._check_name_is_ours()
        self._counter += 1
        beat = Heartbeat(
            sampler=self.sampler,
            incarnation=self.incarnation,
            counter=self._counter,
            held=tuple(sorted(self._held.copy())),
            served=served,
            proven=proven,
            tokens_per_second=tokens_per_second,
            last_error=last_error[:4096],
            left=left,
        )
        write_heartbeat(self.store, beat)
        return beat

    def _check_name_is_ours(self) -> None:
        """Of two processes with one name, each takes the other's groups for those of a dead one."""
        if self._counter == 0:
            return
        beat = read_heartbeat(self.store, self.sampler)
        if beat is not None and beat.incarnation != self.incarnation:
            raise UserError(
                f"another process samples under the name {self.sampler} now; this one stops. Give "
                "each its own --name, or none"
            )

    def _check(self, group: Group, task: Task) -> None:
        try:
            check_group(
                group,
                task,
                contract=self.state.start.contract.sha256,
                bounds=self.state.start.bounds,
                version=self.state.version,
            )
        except BadObject as error:
            raise ValueError(f"this sampler made a group that cannot be used: {error}") from error
