"""A host that does not lead: reads what it needs from the bus, and does what host 0 announces."""

from collections.abc import Sequence

from jax_t2sql.bus import Batch, Group, Log, Store
from jax_t2sql.bus.replay import batch_groups
from jax_t2sql.errors import UserError
from jax_t2sql.rl.checkpoints import restore_state
from jax_t2sql.rl.trainer import Trainer
from jax_t2sql.rl.update import update


def follow(trainer: Trainer, store: Store) -> None:
    """Takes part until host 0 says that the run is over, or stops.

    Raises:
      UserError: host 0 has failed, or a host cannot go on.
    """
    log = Log(store)
    while True:
        order = trainer.hosts.next_order(stop=trainer.preemption.requested)
        trainer.interrupted |= order.stop
        match order.kind:
            case "restore":
                restore_state(trainer)
            case "update":
                index = order.details["entry"]
                metrics, _ = update(
                    trainer, lambda index=index: _batch(log, index), order.details["pack_seed"]
                )
                trainer.version += metrics["skipped"] == 0.0
            case "save":
                trainer.checkpointer.save(trainer.version, trainer.state, order.details["meta"])
            case "export":
                trainer.hosts.whole(trainer.state.trainable)
            case "end":
                return
            case "fail":
                raise UserError(f"host 0 has stopped: {order.details['reason']}")


def _batch(log: Log, index: int) -> Sequence[Group]:
    """The groups of a batch entry, as this host reads them from the bus."""
    log.follow()
    entry = log.entries[index] if index <= log.head else None
    if not isinstance(entry, Batch):
        raise UserError(f"the bus as this host sees it has no batch entry {index}")
    return batch_groups(log.store, entry)
