"""The driver and real workers together: what a client of either would notice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import ModelConfig
from headway.core.request import ItemResult, Request
from headway.executor.function_batch import LoopScheduler
from headway.executor.pool import Pool

from .sink import APPS, until


class Client:
    """Sends requests and keeps every answer."""

    def __init__(self, driver: BatchDriver) -> None:
        self.driver = driver
        self.sent = 0

    def send(self, item: Any) -> Answer:
        self.sent += 1
        answer = Answer()
        now = asyncio.get_running_loop().time()
        answer.request = Request(self.sent, msgspec.json.encode(item), now, answer)
        self.driver.submit(answer.request)
        return answer


class Answer:
    request: Request

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.future: asyncio.Future[ItemResult] = asyncio.get_running_loop().create_future()

    def chunk(self, body: bytes) -> None:
        self.chunks.append(body)

    def done(self, result: ItemResult) -> None:
        self.future.set_result(result)  # a second answer would raise


@asynccontextmanager
async def serving(model: str, **settings: Any) -> AsyncIterator[tuple[Client, Pool]]:
    config = ModelConfig(name="m", path=f"{APPS}:{model}", **settings)
    pool = Pool(config)
    scheduler = LoopScheduler(asyncio.get_running_loop())
    driver = BatchDriver(Batcher(config), pool, scheduler)
    up = asyncio.Event()
    driver.on_phase = lambda worker, phase, share, detail: up.set() if phase == "ready" else None
    pool.start(driver)
    try:
        await asyncio.wait_for(up.wait(), 5)
        yield Client(driver), pool
    finally:
        await pool.close()


async def statuses(answers: list[Answer]) -> list[int]:
    async with asyncio.timeout(8):
        return [(await answer.future).status for answer in answers]


async def test_every_request_is_answered_once_with_its_own_answer() -> None:
    async with serving("Typed", workers=2) as (client, _):
        answers = [client.send({"x": n}) for n in range(1000)]
        assert await statuses(answers) == [200] * 1000
        bodies = [msgspec.json.decode(answer.future.result().body) for answer in answers]
        assert [body["x"] for body in bodies] == list(range(1, 1001))


async def test_c9_a_batch_over_its_time_gets_504_and_the_next_is_served() -> None:
    async with serving("Stuck", run_s_max=0.3, max_batch_size=1) as (client, _):
        answers = [client.send("stuck"), client.send("fine")]
        assert await statuses(answers) == [504, 200]


async def test_h3_a_killed_worker_loses_only_its_own_batch() -> None:
    async with serving("Stuck", max_batch_size=2) as (client, pool):
        first = [client.send("stuck"), client.send("with it")]
        rest = [client.send(n) for n in range(20)]
        await asyncio.sleep(0.05)
        os.kill(pool.pids()[0], signal.SIGKILL)
        got = await statuses([*first, *rest])
        assert got[2:] == [200] * 20 and 500 in got[:2]


async def test_b24_c2_streams_end_and_are_cancelled_one_by_one() -> None:
    async with serving("Streams") as (client, _):
        short, long = client.send(3), client.send(10**7)
        assert await statuses([short]) == [200]
        assert short.chunks == [b"0", b"1", b"2"]
        client.driver.cancel(long.request)
        await until(client.driver.idle)
        assert not long.future.done()
