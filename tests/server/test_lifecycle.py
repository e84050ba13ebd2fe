"""A replica on real sockets: keep-alive, slow clients, shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headway.core.errors import ConfigError
from headway.core.request import ItemResult, Request
from headway.server import lifecycle, uvicorn_names
from headway.server.lifecycle import Replica, serve
from headway.server.service import Service
from tests.server.toy import ToyRuntime, make_service
from tests.server.wires import answers, post

pytestmark = pytest.mark.asyncio
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def running(service: Service, **more: Any) -> AsyncIterator[Replica]:
    replica = Replica(service, **more)
    await replica.listen()
    try:
        yield replica
    finally:
        await replica.close()


async def connect(replica: Replica) -> Streams:
    return await asyncio.open_connection("127.0.0.1", replica.port)


async def one(streams: Streams) -> tuple[int, dict[str, str], bytes]:
    """Read one answer."""
    reader = streams[0]
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    size = [
        int(s.split(b":")[1]) for s in head.lower().split(b"\r\n") if s[:14] == b"content-length"
    ]
    body = await reader.readexactly(size[0]) if size else b""
    return answers(head + body)[0]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in 5 s")


@pytest.mark.parametrize("fast", [True, False])
async def test_both_lanes_serve_the_same(fast: bool) -> None:
    async with running(make_service(ToyRuntime()), fast=fast) as replica:
        streams = await connect(replica)
        for body in (b"1", b"2"):
            streams[1].write(post(body))
            status, headers, told = await one(streams)
            assert (status, told) == (200, body)
            assert headers["x-request-id"]
        streams[1].write(b"GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n")
        assert (await one(streams))[0] == 200
        streams[1].write(post(b"3", "/v2/models/zz/infer"))
        assert (await one(streams))[0] == 404
        streams[1].write(post(b"4", "/predict?trace=1"))
        assert (await one(streams))[2] == b"4"
        streams[1].close()


async def test_pipelined_documents_and_predictions_come_in_order() -> None:
    async with running(make_service(ToyRuntime())) as replica:
        streams = await connect(replica)
        get = b"GET /v2/health/live HTTP/1.1\r\nhost: h\r\n\r\n"
        streams[1].write(post(b"1") + get + post(b"2") + get + post(b"3"))
        told = [(await one(streams))[2] for _ in range(5)]
        assert told == [b"1", b'{"live":true}', b"2", b'{"live":true}', b"3"]
        streams[1].close()


async def test_slow_loris_and_half_open_connections_end_by_a_limit() -> None:
    limits = {"header_s_max": 0.1, "body_gap_s_max": 0.1, "keep_alive_s": 0.15}
    runtime = ToyRuntime()
    async with running(make_service(runtime, **limits)) as replica:
        head, body, idle = [await connect(replica) for _ in range(3)]
        head[1].write(b"POST /predict HTT")
        body[1].write(post(b"abc")[:-1])
        assert (await one(head))[0] == 408
        assert (await one(body))[0] == 408
        assert await asyncio.wait_for(idle[0].read(), 5) == b""
        head[1].close()
        body[1].close()
        await until(lambda: replica.service.connections == 0)
        assert runtime.seen == []


async def test_c1_closing_a_socket_cancels_what_it_queued() -> None:
    runtime = ToyRuntime()
    runtime.hold = True
    async with running(make_service(runtime)) as replica:
        three = [await connect(replica) for _ in range(3)]
        for i, streams in enumerate(three):
            streams[1].write(post(b"%d" % i))
            await until(lambda n=i: len(runtime.seen) == n + 1)  # type: ignore[misc]
        three[1][1].close()
        await until(lambda: bool(runtime.cancelled))
        assert [r.payload for r in runtime.cancelled] == [b"1"]
        runtime.release()
        runtime.release()
        assert (await one(three[0]))[2] == b"0"
        assert (await one(three[2]))[2] == b"2"


async def test_s11_a_large_upload_reads_its_413() -> None:
    async with running(make_service(ToyRuntime(), body_bytes_max=1000)) as replica:
        streams = await connect(replica)
        streams[1].write(post(b"x" * 3_000_000))
        status, _, body = await one(streams)
        assert status == 413
        assert b"3000000" in body
        streams[1].close()


async def test_h15_a_stream_nobody_reads_is_cut_and_its_memory_bounded() -> None:
    runtime = ToyRuntime()
    runtime.hold = True
    service = make_service(runtime, stream_buffer_bytes_max=100_000)
    async with running(service) as replica:
        streams = await connect(replica)
        streams[1].write(post(b"1"))
        await until(lambda: bool(runtime.waiting))
        request = runtime.waiting[0]
        for _ in range(2000):
            request.reply.chunk(b"x" * 10_000)
            if runtime.cancelled:
                break
            await asyncio.sleep(0)
        assert runtime.cancelled == [request]
        assert service.in_flight == 0
        streams[1].close()


async def test_an_address_in_use_is_named() -> None:
    async with running(make_service(ToyRuntime())) as replica:
        other = Replica(make_service(ToyRuntime(), port=replica.port))
        with pytest.raises(ConfigError, match=f"{replica.port}") as caught:
            await other.listen()
        assert "--port 0" in caught.value.hint


class Run:
    """`serve` as a task, and what it said."""

    def __init__(self, service: Service) -> None:
        self.said: list[str] = []
        self.replica: Replica | None = None
        self.task = asyncio.ensure_future(
            serve(service, ready=self._ready, report=self.said.append)
        )

    def _ready(self, replica: Replica) -> None:
        self.replica = replica

    async def up(self) -> Replica:
        await until(lambda: self.replica is not None)
        assert self.replica is not None
        await until(lambda: self.replica.service.phase == "serving")  # type: ignore[union-attr]
        return self.replica

    async def code(self) -> int:
        return await asyncio.wait_for(self.task, 5)


async def status(replica: Replica, path: str) -> int:
    streams = await connect(replica)
    streams[1].write(f"GET {path} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
    code = (await one(streams))[0]
    streams[1].close()
    return code


async def test_h7_sigterm_readiness_off_at_once_and_requests_still_succeed() -> None:
    runtime = ToyRuntime()
    run = Run(make_service(runtime, linger_s=0.3))
    replica = await run.up()
    assert await status(replica, "/readyz") == 200
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.01)
    assert await status(replica, "/readyz") == 503
    streams = await connect(replica)
    streams[1].write(post(b"late"))
    code, headers, body = await one(streams)
    assert (code, body, headers["connection"]) == (200, b"late", "close")
    assert not runtime.drained
    assert await run.code() == 0
    assert runtime.drained
    assert run.said[-1] == "drained"


async def test_h9_an_idle_server_still_lingers_and_sigint_does_not() -> None:
    loop = asyncio.get_running_loop()
    run = Run(make_service(ToyRuntime(), linger_s=0.2))
    await run.up()
    began = loop.time()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await run.code() == 0
    assert loop.time() - began >= 0.19
    run = Run(make_service(ToyRuntime(), linger_s=30))
    await run.up()
    os.kill(os.getpid(), signal.SIGINT)
    assert await run.code() == 0


async def test_h8_streams_in_flight_complete_before_the_exit() -> None:
    runtime = ToyRuntime()
    runtime.hold = True
    run = Run(make_service(runtime, linger_s=0))
    replica = await run.up()
    clients = [await connect(replica) for _ in range(5)]
    for streams in clients:
        streams[1].write(post(b"1"))
    await until(lambda: len(runtime.waiting) == 5)
    held = list(runtime.waiting)
    for request in held:
        request.reply.chunk(b"abc")
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: "draining: 5 in flight" in run.said)
    assert not run.task.done()
    for request in held:
        request.reply.done(ItemResult(200, b""))
    for streams in clients:
        assert (await asyncio.wait_for(streams[0].read(), 5)).endswith(b"3\r\nabc\r\n0\r\n\r\n")
        streams[1].close()
    assert await run.code() == 0


async def test_a_second_signal_forces_and_the_drain_has_a_limit() -> None:
    runtime = ToyRuntime()
    runtime.hold = True
    run = Run(make_service(runtime, linger_s=0, drain_s_max=30))
    streams = await connect(await run.up())
    streams[1].write(post(b"1"))
    await until(lambda: bool(runtime.waiting))
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: any("draining" in s for s in run.said))
    os.kill(os.getpid(), signal.SIGTERM)
    assert await run.code() == 128 + signal.SIGTERM
    assert run.said[-1] == "forced: 1 cut"
    run = Run(make_service(runtime, linger_s=0, drain_s_max=0.1))
    streams = await connect(await run.up())
    streams[1].write(post(b"1"))
    await until(lambda: len(runtime.waiting) == 1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await run.code() == lifecycle.EXIT_FAILED
    assert "drain_s_max" in run.said[-1]


async def test_h5_a_model_that_cannot_start_ends_the_server_with_a_code() -> None:
    runtime = ToyRuntime()
    runtime.up = False
    service = make_service(runtime)
    run = Run(service)
    await until(lambda: run.replica is not None)
    assert run.replica is not None
    run.replica.fail("load raised: no such file")
    assert await run.code() == lifecycle.EXIT_FAILED
    assert service.failure == "load raised: no such file"


async def test_models_may_be_added_while_serving() -> None:
    service = make_service(ToyRuntime())
    async with running(service) as replica:
        more = make_service(ToyRuntime(), names="n")
        service.models["n"] = more.models["n"]
        replica.models_changed()
        streams = await connect(replica)
        streams[1].write(post(b"1", "/predict/n"))
        assert (await one(streams))[2] == b"1"
        streams[1].write(post(b"1"))
        assert (await one(streams))[0] == 404
        assert service.front_status().answers["predict", 200] == 1
        streams[1].close()


async def test_a_changed_uvicorn_falls_back_to_plain_asgi(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uvicorn_names.missing_names() == []
    monkeypatch.delattr(uvicorn_names.httptools_impl.HttpToolsProtocol, "_start_asgi_task")
    assert uvicorn_names.missing_names() == ["_start_asgi_task"]
    replica = Replica(make_service(ToyRuntime()))
    assert not replica.fast
    monkeypatch.undo()
    monkeypatch.setattr(uvicorn_names.uvicorn, "__version__", "9.9.9")
    assert uvicorn_names.missing_names() == ["a tested version (it is 9.9.9)"]


async def test_h2_health_is_quick_while_everything_is_saturated() -> None:
    def slow(request: Request) -> ItemResult:
        return ItemResult(200, request.payload)

    runtime = ToyRuntime(slow)
    runtime.hold = True
    async with running(make_service(runtime)) as replica:
        clients = [await connect(replica) for _ in range(50)]
        for streams in clients:
            streams[1].write(post(b"1") * 8)
        loop = asyncio.get_running_loop()
        for _ in range(10):
            began = loop.time()
            assert await status(replica, "/livez") == 200
            assert loop.time() - began < 0.2
        for streams in clients:
            streams[1].close()
