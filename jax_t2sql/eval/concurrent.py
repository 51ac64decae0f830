"""Many answers in the making at once, handed over in bursts as they are finished."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from jax_t2sql.eval.tasks import Task
from jax_t2sql.scores.records import AnswerRow


def answered_in_bursts(
    tasks: Sequence[Task],
    answer: Callable[[Task], Awaitable[AnswerRow]],
    *,
    runner: asyncio.Runner,
    concurrency: int,
) -> Iterator[list[AnswerRow]]:
    """Yields what is finished, in whatever order; the first exception ends all.

    The event loop stands still while the caller holds a burst, so it should be quick.
    """
    waiting = list(reversed(tasks))
    pending: set[asyncio.Task[AnswerRow]] = set()

    async def next_burst() -> list[AnswerRow]:
        nonlocal pending
        while waiting and len(pending) < concurrency:
            pending.add(asyncio.ensure_future(answer(waiting.pop())))
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        faults = [fault for task in done if (fault := task.exception()) is not None]
        if faults:
            raise faults[0]
        return [task.result() for task in done]

    async def end() -> None:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    try:
        while waiting or pending:
            yield runner.run(next_burst())
    finally:
        runner.run(end())
