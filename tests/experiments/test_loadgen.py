"""The load generator against tiny local servers that behave as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headway.core.errors import ConfigError
from headway.core.slo import Objective
from headway.experiments import loadgen
from headway.experiments.http_client import Address, fetch
from headway.experiments.load_report import Report, quantile, rows, spread_ms
from headway.experiments.loadgen import LoadPlan, Unreachable

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\n\r\nok"

Answer = Callable[[int, bytes], bytes | None]


class Server:
    """Counts requests; what it answers is decided by a function of their number."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[bytes] = []
        self.connections = 0
        self.stalled = asyncio.Event()
        self.stalled.set()

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                self.bodies.append(await reader.readexactly(length))
                await self.stalled.wait()
                out = self.answer(len(self.bodies), head)
                if out is None:
                    writer.close()
                    return
                writer.write(out)
                if out.startswith(b"HTTP/1.0"):
                    writer.close()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[tuple[Server, str]]:
    server = Server(answer)
    listener = await asyncio.start_server(server.client, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield server, f"http://127.0.0.1:{port}/predict"
    finally:
        listener.close()


async def run(url: str, **settings: object) -> Report:
    plan = {"duration_s": 0.4, "warmup_s": 0.0, "timeout_s": 5.0, "bodies": (b"{}",)} | settings
    return await loadgen.run_load(LoadPlan(url=url, **plan))  # type: ignore[arg-type]


async def test_closed_loop_counts_what_the_server_saw() -> None:
    async with serving(lambda n, head: OK) as (server, url):
        report = await run(url, concurrency=4, bodies=(b"a", b"bb"))
    assert report.ok == report.sent == len(server.bodies) > 50
    assert server.connections == 4
    assert {b"a", b"bb"} == set(server.bodies)
    assert report.statuses == {200: report.ok} and report.errors == {}
    ms = report.latency_ms
    assert 0 < ms["p50"] <= ms["p90"] <= ms["p99"] <= ms["max"] < 1000


async def test_open_loop_sends_at_the_rate_asked() -> None:
    async with serving(lambda n, head: OK) as (_, url):
        report = await run(url, rate=500.0, duration_s=1.0)
    assert 400 < report.sent < 600
    assert report.ok == report.sent


async def test_open_loop_latency_counts_from_the_scheduled_arrival() -> None:
    """A stall of 300 ms is felt by all who would have come meanwhile, not by one request."""

    async def stall(server: Server) -> None:
        await asyncio.sleep(0.1)
        server.stalled.clear()
        await asyncio.sleep(0.3)
        server.stalled.set()

    async with serving(lambda n, head: OK) as (server, url):
        task = asyncio.create_task(stall(server))
        report = await run(url, rate=300.0, duration_s=0.6, connections=1)
        await task
    # About half of the arrivals fall into the stall and wait 150 ms on average ...
    assert report.latency_ms["p90"] > 100
    # ... which a generator that counts from sending does not see: one request was out.
    assert report.service_ms["p90"] < 50
    assert "from sending" in "".join(name for name, _ in rows(report))


async def test_refusals_errors_and_broken_connections_are_told_apart() -> None:
    answers: dict[int, bytes | None] = {0: OK, 1: REFUSED, 2: None}
    async with serving(lambda n, head: answers[n % 3]) as (_, url):
        report = await run(url, concurrency=3)
    assert set(report.statuses) == {200, 429}
    assert report.errors.keys() == {"connection closed"}
    assert report.ok + report.statuses[429] + report.errors["connection closed"] == report.sent
    assert report.refusal_ms["p50"] > 0


@pytest.mark.parametrize("answer", [CHUNKED, UNTIL_CLOSE], ids=["chunked", "until close"])
async def test_answers_however_framed(answer: bytes) -> None:
    async with serving(lambda n, head: answer) as (_, url):
        report = await run(url, concurrency=2, duration_s=0.2)
    assert report.ok == report.sent > 2 and report.errors == {}


async def test_nonsense_is_an_error_not_a_hang() -> None:
    async with serving(lambda n, head: b"nonsense\r\n\r\n") as (_, url):
        report = await run(url, concurrency=2, duration_s=0.1)
    assert report.ok == 0 and report.errors


async def test_a_client_gives_up_at_its_time_out() -> None:
    async with serving(lambda n, head: b"") as (_, url):
        report = await run(url, rate=50.0, duration_s=0.2, timeout_s=0.3)
    assert report.ok == 0 and report.errors == {"timeout": report.sent}


async def test_goodput_and_attainment_count_all_that_was_sent() -> None:
    answers = {0: OK, 1: REFUSED}
    async with serving(lambda n, head: answers[n % 2]) as (_, url):
        report = await run(url, concurrency=1, objective=Objective.parse("p90<1s"))
    assert report.attainment == pytest.approx(0.5, abs=0.02)
    assert report.met is False
    assert report.goodput_per_s == pytest.approx(report.throughput_per_s)


async def test_warm_up_is_sent_but_not_counted() -> None:
    async with serving(lambda n, head: OK) as (server, url):
        report = await run(url, rate=200.0, warmup_s=0.5, duration_s=0.2)
    assert report.sent < len(server.bodies) / 2


async def test_nobody_there_is_said_at_once() -> None:
    listener = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    with pytest.raises(Unreachable, match=f"nothing answers at 127.0.0.1:{port}"):
        await run(f"http://127.0.0.1:{port}/predict", concurrency=1)


async def test_fetch_returns_status_and_body() -> None:
    async with serving(lambda n, head: CHUNKED) as (server, url):
        assert await fetch(url) == (200, b"ok")
    assert server.bodies == [b""]


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "http://h:port/"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Address(url)


def test_quantiles_never_understate() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert [quantile(ordered, q) for q in (0.5, 0.9, 0.99, 0.999)] == [50, 90, 99, 100]
    assert quantile([7.0], 0.99) == 7
    assert spread_ms([]) == {}
