"""A sink that remembers what an executor said, and a pool that is ready."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from headway.core.batch import Batch, BatchResult, Close
from headway.core.config import ModelConfig
from headway.core.ports import Executor, ModelInfo
from headway.core.request import Codec, ItemResult, Request
from headway.executor.pool import Pool

APPS = str(Path(__file__).with_name("apps.py"))
_ids = itertools.count(1)


class NoReply:
    def chunk(self, body: bytes) -> None: ...

    def done(self, result: ItemResult) -> None: ...


class Sink:
    """Events as tuples, in order. `chunks` and `ends` by (batch, item)."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.results: dict[int, BatchResult] = {}
        self.chunks: dict[tuple[int, int], list[bytes]] = {}
        self.ends: dict[tuple[int, int], ItemResult] = {}
        self._news = asyncio.Event()

    def _say(self, *event: Any) -> None:
        self.events.append(event)
        self._news.set()

    def worker_phase(self, worker: int, phase: str, share: float, detail: str) -> None:
        self._say("phase", worker, phase, share, detail)

    def worker_ready(self, worker: int, info: ModelInfo) -> None:
        self._say("ready", worker, info)

    def worker_lost(self, worker: int, code: str, message: str) -> None:
        self._say("lost", worker, code, message)

    def batch_started(self, batch_id: int) -> None:
        self._say("started", batch_id)

    def batch_done(self, batch_id: int, result: BatchResult) -> None:
        self.results[batch_id] = result
        self._say("done", batch_id)

    def chunk(self, batch_id: int, index: int, body: bytes) -> None:
        self.chunks.setdefault((batch_id, index), []).append(body)
        self._say("chunk", batch_id, index)

    def item_done(self, batch_id: int, index: int, result: ItemResult) -> None:
        assert (batch_id, index) not in self.ends, "an item ended twice"
        self.ends[batch_id, index] = result
        self._say("end", batch_id, index)

    def measured(self, request_ids: Sequence[int], sizes: Sequence[float]) -> None:
        self._say("measured", list(request_ids), list(sizes))

    def count(self, kind: str) -> int:
        return sum(event[0] == kind for event in self.events)

    def last(self, kind: str) -> tuple[Any, ...]:
        return next(event for event in reversed(self.events) if event[0] == kind)

    async def until(self, true: Callable[[], bool], within_s: float = 5.0) -> None:
        async with asyncio.timeout(within_s):
            while not true():
                self._news.clear()
                await self._news.wait()


async def until(true: Callable[[], bool], within_s: float = 3.0) -> None:
    """Poll what no event tells: the life of a process that is not our child."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


@asynccontextmanager
async def pool_of(path: str, **settings: Any) -> AsyncIterator[tuple[Pool, Sink]]:
    """A pool whose workers are all ready."""
    if path and path[0].isupper():
        path = f"{APPS}:{path}"
    pool = Pool(ModelConfig(path=path, **settings))
    sink = Sink()
    pool.start(sink)
    try:
        await sink.until(lambda: sink.count("ready") == pool.workers)
        yield pool, sink
    finally:
        await pool.close()


def batch_of(
    *items: Any, codec: Codec = Codec.JSON, kind: str = "application/json", worker: int = 0
) -> Batch:
    """A batch; items that are not bytes are sent as JSON."""
    requests = [
        Request(
            next(_ids),
            item if isinstance(item, bytes) else msgspec.json.encode(item),
            0.0,
            NoReply(),
            codec=codec,
            content_type=kind,
        )
        for item in items
    ]
    return Batch(next(_ids), "m", worker, requests, len(items), 1, 1, 0.0, 0.0, Close.IDLE)


async def answers(executor: Executor, sink: Sink, *items: Any, **more: Any) -> list[Any]:
    """(status, decoded body) of each item of one batch."""
    batch = batch_of(*items, **more)
    return await run(executor, sink, batch)


async def run(executor: Executor, sink: Sink, batch: Batch) -> list[Any]:
    """Run a batch that does not stream: (status, body) each, JSON decoded where it succeeded."""
    executor.run(batch)
    await sink.until(lambda: batch.id in sink.results)
    return [
        (
            r.status,
            msgspec.json.decode(r.body) if "json" in r.content_type and r.status == 200 else r.body,
        )
        for r in sink.results[batch.id].items
    ]
