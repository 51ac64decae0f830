"""The sampler inside the learner's process: everything issued is sampled before the update."""

from collections.abc import Sequence

from jax_t2sql.assembly import equivalence_rule, reward_rule
from jax_t2sql.bus import Batch, Group, ReadyGroup, SamplerBus
from jax_t2sql.errors import UserError
from jax_t2sql.groups import sample_groups, sampled_tokens
from jax_t2sql.policies import serve
from jax_t2sql.rl.loop import Loop
from jax_t2sql.sampling.engine import Engine

# Looks in a row at a log whose tasks all belong to others. One or two come after a restart.
_IDLE_LOOKS = 10


class InlineSampling:
    """Claims what is open, plays and grades it, hands it over; the engine shares the weights."""

    def __init__(self, engine: Engine, bus: SamplerBus):
        self.engine, self.bus = engine, bus
        self._problems: dict = {}
        self._idle = self._tokens = 0

    def room(self, loop: Loop) -> int:
        return loop.run.config.rl.groups

    def work(self, loop: Loop) -> list[Group]:
        run = loop.run
        self._problems = self._problems or {p.question_id: p for p in run.questions.train}
        self.bus.refresh()
        tasks = self.bus.claim(run.config.rl.groups)
        self._idle = 0 if tasks else self._idle + 1
        if self._idle > _IDLE_LOOKS:
            raise UserError(
                f"no task of the run in {self.bus.store} is left to this process: other samplers"
                " have claimed them all. Stop those, then run the same command"
            )
        with loop.timed("sample"), loop.preemption.abortable():
            groups = sample_groups(
                tasks,
                self._problems,
                bus=self.bus,
                policy=self.engine,
                prompts=run.prompts,
                pool=run.pool,
                variants=run.variants,
                reward_empty=run.config.data.empty_gold == "keep",
                rule=reward_rule(run.config.reward),
                equivalence=equivalence_rule(run.config.reward),
            )
        self.bus.put_groups(groups)
        self._tokens += sampled_tokens(groups)
        return groups

    def choose(self, loop: Loop, ready: Sequence[ReadyGroup]) -> Sequence[ReadyGroup]:
        """All of them: there will not be more before the next update."""
        return ready

    def files_due(self, loop: Loop) -> bool:
        """Only with a checkpoint: they are for others to read."""
        return False

    def serve(self, loop: Loop) -> None:
        serve(self.engine, loop.spec, loop.base, loop.state, loop.version)

    def metrics(self, loop: Loop, batch: Batch) -> dict[str, float]:
        tokens, self._tokens = self._tokens, 0
        return {"tokens_per_second": tokens / max(loop.seconds.get("sample", 0.0), 1e-9)}
