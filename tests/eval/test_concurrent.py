"""Answers in the making side by side: bounded, in bursts, and ended together."""

import asyncio
import gc
import logging

import pytest

from jax_t2sql.eval.concurrent import answered_in_bursts


def test_all_are_answered_and_never_more_than_allowed_at_once():
    under_way, most = 0, 0

    async def answer(task):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(task % 3 + 1):
            await asyncio.sleep(0)
        under_way -= 1
        return task

    with asyncio.Runner() as runner:
        bursts = list(answered_in_bursts(range(50), answer, runner=runner, concurrency=7))
    assert sorted(sum(bursts, [])) == list(range(50)) and most == 7


def test_the_first_fault_ends_all_without_a_word(caplog):
    ended = []

    async def answer(task):
        if task < 3:
            raise ValueError(f"task {task}")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(task)

    with caplog.at_level(logging.ERROR), asyncio.Runner() as runner:
        with pytest.raises(ValueError, match="task"):
            list(answered_in_bursts(range(9), answer, runner=runner, concurrency=6))
        gc.collect()
    assert sorted(ended) == [3, 4, 5] and not caplog.records


def test_who_stops_early_leaves_nothing_behind():
    ended = []

    async def answer(task):
        try:
            if task:
                await asyncio.Event().wait()
            return task
        finally:
            ended.append(task)

    with asyncio.Runner() as runner:
        bursts = answered_in_bursts(range(4), answer, runner=runner, concurrency=4)
        assert next(bursts) == [0]
        bursts.close()
        assert sorted(ended) == [0, 1, 2, 3]
