"""The executor in this process behaves as the pool does, seen from the port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headway.core.config import ModelConfig
from headway.executor.inline import InlineExecutor
from headway.executor.toy import Counter, Moody

from .apps import Awaits, BadLoad, Streams, Warm, Words
from .sink import Sink, answers, batch_of, run

MODES = pytest.mark.parametrize("thread", [True, False])


@asynccontextmanager
async def inline(model: Any, **more: Any) -> AsyncIterator[tuple[InlineExecutor, Sink]]:
    executor, sink = InlineExecutor(model, ModelConfig(), **more), Sink()
    executor.start(sink)
    await sink.until(lambda: sink.count("ready") == 1)
    try:
        yield executor, sink
    finally:
        await executor.close()


@MODES
async def test_b9_one_item_fails_alone(thread: bool) -> None:
    async with inline(Moody, thread=thread) as (executor, sink):
        got = await answers(executor, sink, 1, {"fail": 422}, 3)
        assert [status for status, _ in got] == [200, 422, 200]
        got = await answers(executor, sink, {"raise": "x"}, b"{")
        assert [status for status, _ in got] == [500, 400]


@MODES
async def test_b24_streams_end_one_by_one(thread: bool) -> None:
    async with inline(Counter, thread=thread) as (executor, sink):
        batch = batch_of(1, 4)
        executor.run(batch)
        await sink.until(lambda: len(sink.ends) == 2)
        assert sink.chunks[batch.id, 1] == [b"0", b"1", b"2", b"3"]
        assert sink.events.index(("end", batch.id, 0)) < len(sink.events) - 3


@MODES
async def test_c2_cancel_closes_a_stream(thread: bool) -> None:
    async with inline(Streams, thread=thread) as (executor, sink):
        batch = batch_of(10**6)
        executor.run(batch)
        await sink.until(lambda: bool(sink.chunks))
        executor.cancel(0, batch.id, 0)
        await sink.until(lambda: bool(sink.ends))
        assert executor.served.model.closed[0][0] == 10**6


@MODES
async def test_c4_a_cancelled_item_is_skipped(thread: bool) -> None:
    async with inline(Words, thread=thread) as (executor, sink):
        batch = batch_of(b"a b", b"c")
        executor.run(batch)
        executor.cancel(0, batch.id, 0)
        executor.measure(batch.requests)
        await sink.until(lambda: batch.id in sink.results and sink.count("measured") == 1)
        assert sink.results[batch.id].items[1].status == 200
        assert sink.last("measured")[2] == [2.0, 1.0]


async def test_an_awaiting_model_runs_on_our_loop() -> None:
    async with inline(Awaits) as (executor, sink):
        assert await answers(executor, sink, 1, 2) == [(200, 1), (200, 2)]
        batch = batch_of({"n": 10**6})
        executor.run(batch)
        await sink.until(lambda: bool(sink.chunks))
        executor.cancel(0, batch.id, 0)
        await sink.until(lambda: bool(sink.ends))


async def test_h10_warm_up_is_reported() -> None:
    async with inline(Warm) as (_, sink):
        assert {run.rows for run in sink.last("ready")[2].warm} == {1, 2, 4, 8}


async def test_h5_a_load_that_fails_says_why() -> None:
    executor, sink = InlineExecutor(BadLoad), Sink()
    executor.start(sink)
    await sink.until(lambda: sink.count("lost") == 1)
    assert executor.failed == "RuntimeError: weights are missing"


async def test_c9_a_stuck_thread_is_left_behind() -> None:
    async with inline(Moody) as (executor, sink):
        executor.run(batch_of({"sleep": 0.2}))
        executor.restart(0, "timeout", "too long")
        await sink.until(lambda: sink.count("ready") == 2)
        assert await answers(executor, sink, 1) == [(200, 1)]
        await asyncio.sleep(0.25)
        assert len(sink.results) == 1, "what was given up says nothing"


async def test_a_function_with_the_default_settings() -> None:
    async with inline(lambda batch: [x + 1 for x in batch]) as (executor, sink):
        assert await run(executor, sink, batch_of(1, 2)) == [(200, 2), (200, 3)]
