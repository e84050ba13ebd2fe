"""A replica's life: listen, become ready, linger, drain, leave with an exit code.

Knows signals, the listening socket and the sweep over connections; must not know routes or how
models run. Order at the end (H7): readiness off, linger while balancers notice, stop accepting,
drain, and only then may the caller end the workers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config as UvicornConfig
from uvicorn.server import ServerState

from headway.core.errors import ConfigError
from headway.server.app import App
from headway.server.clock import Heartbeat
from headway.server.lane_state import LaneState
from headway.server.routes import hot_table
from headway.server.service import Service
from headway.server.sweep import sweep
from headway.server.uvicorn_names import missing_names

try:
    from headway.server.fast_lane import FastLane
except ImportError:  # uvicorn moved a name; `missing_names` says which
    FastLane = None  # type: ignore[assignment, misc]

log = logging.getLogger("headway.server")
_BEAT_S = 0.1
_BACKLOG = 2048
EXIT_OK = 0
EXIT_FAILED = 1
"""A model failed to start, or requests were cut at `drain_s_max`."""


class Replica:
    """One listening front end."""

    def __init__(self, service: Service, *, fast: bool | None = None) -> None:
        self.service = service
        self.lanes = LaneState(service)
        service.hot.update(hot_table(service))
        self.state = ServerState()
        self.port = 0
        missing = missing_names()
        if missing:
            log.warning("uvicorn lacks %s: serving without the fast lane", ", ".join(missing))
        self.fast = not missing if fast is None else fast
        self._uvicorn = UvicornConfig(
            App(service),
            http=FastLane if self.fast and FastLane is not None else "auto",
            interface="asgi3",
            lifespan="off",
            loop="none",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            date_header=False,
        )
        self._uvicorn.load()
        self._server: asyncio.Server | None = None
        self._beat: Heartbeat | None = None
        self._swept_s = 0.0
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._code = EXIT_OK
        self._skip_linger = False

    async def listen(self) -> None:
        """Bind and accept. Raises ConfigError when the address is taken."""
        loop = asyncio.get_running_loop()
        settings = self.service.config.server
        try:
            self._server = await loop.create_server(
                self._connection, settings.host, settings.port, backlog=_BACKLOG
            )
        except OSError as exc:
            raise ConfigError(
                f"cannot listen on {settings.host}:{settings.port}: {exc.strerror or exc}",
                param="port",
                hint="another program may use it; --port 0 picks a free one",
            ) from exc
        self.port = self._server.sockets[0].getsockname()[1]
        self._swept_s = self.service.now()
        self._beat = Heartbeat(loop, min(_BEAT_S, self.lanes.sweep_s), self._on_beat)
        self._beat.start()

    def models_changed(self) -> None:
        """Models were added to or removed from the service: take the routes anew."""
        self.service.settle()
        self.service.hot.clear()
        self.lanes.known.forget()
        self.service.hot.update(hot_table(self.service))

    def stop(self, *, linger: bool = True) -> None:
        """Begin to leave; a second call forces it."""
        if self._stop.is_set():
            self._force.set()
            return
        self.service.phase = "lingering"
        self.lanes.closing = True
        self._skip_linger = not linger
        self._stop.set()

    def fail(self, message: str) -> None:
        """A model will never be ready: leave with an exit code that says so (H5)."""
        self.service.failure = message
        self.service.phase = "failed"
        self._code = EXIT_FAILED
        self._stop.set()

    async def run(self, report: Callable[[str], None] = log.info) -> int:
        """Serve until told to stop, then leave in order. Returns the exit code."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            await self._stop.wait()
            if self._code == EXIT_OK:
                await self._leave(report)
            return self._code
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
            await self.close()

    async def close(self) -> None:
        """Stop listening and cut what is left."""
        if self._beat is not None:
            self._beat.stop()
        if self._server is not None:
            self._server.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            self._code = 128 + number
        self.stop(linger=number != signal.SIGINT)

    async def _leave(self, report: Callable[[str], None]) -> None:
        settings = self.service.config.server
        never = not self.service.started()  # nobody sent us traffic yet
        if not (self._skip_linger or never) and settings.linger_s > 0:
            report(f"not ready any more; still serving for {settings.linger_s:g} s")
            if await self._forced(settings.linger_s):
                return
        self.service.phase = "draining"
        if self._server is not None:
            self._server.close()
        for served in self.service.models.values():
            served.runtime.drain()
        for connection in list(self.state.connections):
            connection.shutdown()
        await self._drain(report, settings.drain_s_max)

    async def _drain(self, report: Callable[[str], None], limit_s: float) -> None:
        ends_s = self.service.now() + limit_s
        told = -1
        while left := self._left():
            if left != told:
                report(f"draining: {left} in flight")
                told = left
            rest_s = ends_s - self.service.now()
            if rest_s <= 0:
                report(f"drain_s_max ({limit_s:g} s) is over: {left} cut")
                self._code = EXIT_FAILED
                return
            if await self._forced(min(_BEAT_S / 2, rest_s)):
                report(f"forced: {left} cut")
                return
        report("drained")

    def _left(self) -> int:
        """Requests without an answer, and answers not yet taken by their clients."""
        unsent = sum(1 for c in self.state.connections if c.transport.get_write_buffer_size())
        asgi = len(self.state.tasks)
        return self.service.in_flight + unsent + (asgi if self.fast else 0)

    async def _forced(self, wait_s: float) -> bool:
        try:
            await asyncio.wait_for(self._force.wait(), wait_s)
        except TimeoutError:
            return False
        return True

    def _connection(self) -> Any:
        state: dict[str, Any] = {"lane": self.lanes}
        made: Any = self._uvicorn.http_protocol_class
        return made(config=self._uvicorn, server_state=self.state, app_state=state)

    def _on_beat(self, lag_s: float) -> None:
        service = self.service
        service.loop_lag_s = lag_s
        service.late = lag_s > service.config.server.loop_lag_s_max
        service.pump()
        service.settle()
        self.state.total_requests = sum(service.answers.values())
        now_s = service.now()
        if now_s - self._swept_s < self.lanes.sweep_s:
            return
        self._swept_s = now_s
        self.lanes.refresh()
        self.state.default_headers = [(b"date", self.lanes.date)]
        if self.fast:
            for connection in list(self.state.connections):
                sweep(connection, self.lanes.now_s)  # type: ignore[arg-type]


async def serve(
    service: Service,
    *,
    ready: Callable[[Replica], None] | None = None,
    report: Callable[[str], None] = log.info,
) -> int:
    """Listen and serve until a signal; returns the exit code.

    `ready` is called once the socket listens (models may still be loading); it gets the replica,
    for its port and for `fail` and `stop`.
    """
    replica = Replica(service)
    await replica.listen()
    if ready is not None:
        ready(replica)
    return await replica.run(report)
