"""Streams: pieces arrive as they are made, each item ends on its own, nobody is kept waiting."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from .sink import Sink, answers, batch_of, pool_of, run


def rss_kb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def ended(sink: Sink, batch_id: int, count: int) -> bool:
    return sum(key[0] == batch_id for key in sink.ends) == count


@pytest.mark.parametrize("model", ["Streams", "Steps", "AwaitsSteps"])
async def test_b24_a_short_stream_ends_before_the_long_one(model: str) -> None:
    async with pool_of(model) as (pool, sink):
        batch = batch_of(2, 50)
        pool.run(batch)
        await sink.until(lambda: ended(sink, batch.id, 2))
        order = [event for event in sink.events if event[0] in ("chunk", "end")]
        before = order[: order.index(("end", batch.id, 0))]
        assert before.count(("chunk", batch.id, 1)) < 5
        assert sink.chunks[batch.id, 0] == [b"0", b"1"]
        assert len(sink.chunks[batch.id, 1]) == 50
        assert sink.ends[batch.id, 0].status == 200


async def test_b24_a_second_batch_streams_beside_the_first() -> None:
    async with pool_of("Streams") as (pool, sink):
        first, second = batch_of(10**6), batch_of(3)
        pool.run(first)
        await sink.until(lambda: (first.id, 0) in sink.chunks)
        pool.run(second)
        await sink.until(lambda: ended(sink, second.id, 1))
        assert not ended(sink, first.id, 1)
        pool.cancel(0, first.id, 0)
        await sink.until(lambda: ended(sink, first.id, 1))


async def test_c2_c3_a_cancelled_stream_is_closed_within_a_step() -> None:
    async with pool_of("Streams") as (pool, sink):
        batch = batch_of(10**7)
        pool.run(batch)
        await sink.until(lambda: len(sink.chunks.get((batch.id, 0), ())) > 10)
        pool.cancel(0, batch.id, 0)
        await sink.until(lambda: ended(sink, batch.id, 1), within_s=1.0)
        sent = len(sink.chunks[batch.id, 0])
        assert sink.ends[batch.id, 0].status == 499
        [(_, closed)] = await answers(pool, sink, "closed")
        # The generator stood at the piece that was sent last.
        assert closed == [[10**7, sent - 1]]


async def test_c2_a_batch_generator_hears_who_left_and_closes_with_the_last() -> None:
    async with pool_of("Steps") as (pool, sink):
        batch = batch_of(10**7, 10**7)
        pool.run(batch)
        await sink.until(lambda: (batch.id, 1) in sink.chunks)
        pool.cancel(0, batch.id, 1)
        await sink.until(lambda: (batch.id, 1) in sink.ends, within_s=1.0)
        pool.cancel(0, batch.id, 0)
        await sink.until(lambda: ended(sink, batch.id, 2), within_s=1.0)
        told = batch_of("told")
        pool.run(told)
        await sink.until(lambda: ended(sink, told.id, 1))
        assert sink.chunks[told.id, 0] == [b'[[1],"closed"]']


async def test_c2_async_streams_close_too() -> None:
    async with pool_of("Awaits") as (pool, sink):
        batch = batch_of({"n": 3}, {"n": 10**6})
        pool.run(batch)
        await sink.until(lambda: (batch.id, 0) in sink.ends)
        assert sink.chunks[batch.id, 0] == [b"0", b"1", b"2"]
        pool.cancel(0, batch.id, 1)
        await sink.until(lambda: (batch.id, 1) in sink.ends, within_s=1.0)
        [(_, closed)] = await answers(pool, sink, "closed")
        assert len(closed) == 1 and closed[0][0] == 10**6


@pytest.mark.parametrize("model", ["StreamsAhead", "AwaitsSteps"])
async def test_c4_c8_a_cancelled_member_ends_whatever_its_place(model: str) -> None:
    async with pool_of(model) as (pool, sink):
        busy, batch = batch_of(0), batch_of(2, 10**7, 3)
        if model == "StreamsAhead":
            pool.run(busy)
        pool.run(batch)
        pool.cancel(0, batch.id, 1)
        await sink.until(lambda: ended(sink, batch.id, 3))
        assert [sink.ends[batch.id, n].status for n in range(3)] == [200, 499, 200]
        assert len(sink.chunks[batch.id, 2]) == 3


@pytest.mark.parametrize("model", ["Seen", "SeenAhead"])
async def test_c1_c4_a_cancelled_item_that_has_not_begun_never_runs(model: str) -> None:
    async with pool_of(model) as (pool, sink):
        busy, waiting, gone = (
            batch_of({"sleep": 0.1}),
            batch_of("a", "left", "c"),
            batch_of("alone"),
        )
        pool.run(busy)
        pool.run(waiting)
        pool.run(gone)
        pool.cancel(0, waiting.id, 1)
        pool.cancel(0, gone.id, 0)
        await sink.until(lambda: gone.id in sink.results)
        assert [r.status for r in sink.results[waiting.id].items] == [200, 499, 200]
        assert [r.status for r in sink.results[gone.id].items] == [499]
        [(_, seen)] = await run(pool, sink, batch_of("seen"))
        assert "left" not in str(seen) and "alone" not in str(seen) and "c" in str(seen)


async def test_h15_streams_hold_no_memory() -> None:
    async with pool_of("Streams") as (pool, sink):
        sizes = []
        for _ in range(4):
            batch = batch_of(10_000)
            pool.run(batch)
            await sink.until(lambda batch=batch: ended(sink, batch.id, 1), within_s=20.0)  # type: ignore[misc]
            sizes.append(rss_kb(pool.pids()[0]))
        assert sizes[-1] < sizes[0] * 1.02


async def test_h15_a_reader_that_stops_holds_the_stream_back() -> None:
    async with pool_of("Streams") as (pool, sink):
        batch = batch_of(10**7)
        pool.run(batch)
        await sink.until(lambda: (batch.id, 0) in sink.chunks)
        before = rss_kb(pool.pids()[0])
        loop = asyncio.get_running_loop()
        process = pool._seats[0].process
        assert process is not None
        loop.remove_reader(process._fd)
        await asyncio.sleep(0.15)
        assert rss_kb(pool.pids()[0]) < before + 1024
        loop.add_reader(process._fd, process._readable)
        pool.cancel(0, batch.id, 0)
        await sink.until(lambda: ended(sink, batch.id, 1))
        # The socket's buffer is all that was made ahead.
        assert len(sink.chunks[batch.id, 0]) < 50_000
