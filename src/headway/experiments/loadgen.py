"""The load generator: open loop (Poisson arrivals) or closed loop (a fixed number of clients).

In the open loop a request's latency counts from its *scheduled* arrival, so a server that stalls
cannot hide the requests that would have come meanwhile. Knows one URL and sends nowhere else; must
not know what serves there.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from headway.core.errors import UserError
from headway.core.slo import Objective
from headway.experiments.http_client import Address, Connection, open_connection
from headway.experiments.load_report import Report, Samples, report
from headway.experiments.pacer import Pacer

_SWEEP_S = 0.1
_BURST = 64
"""Arrivals sent before the loop looks at sockets again."""


class Unreachable(UserError):
    """Nothing accepts connections at the URL."""

    def __init__(self, address: Address, error: str) -> None:
        super().__init__(
            503,
            "unreachable",
            f"nothing answers at {address.host}:{address.port}: {error}",
            hint="is the server up, and is this its port?",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run. Exactly one of `rate` and `concurrency` is set."""

    url: str
    rate: float | None = None
    """Mean arrivals per second of a Poisson process."""
    concurrency: int | None = None
    """Clients that each send the next request when the last was answered."""
    duration_s: float = 10.0
    warmup_s: float = 0.5
    """Sent before the measured window and not counted."""
    timeout_s: float = 30.0
    """From the scheduled arrival; then the connection is closed."""
    connections: int = 1024
    """Most open connections; arrivals beyond wait here, and their latency runs."""
    bodies: Sequence[bytes] = (b"",)
    """Sent in order, again from the start when used up."""
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    objective: Objective | None = None
    seed: int = 0


Progress = Callable[[float, int, int], None]
"""Called with the share of the run that is done, answers so far, and requests without one."""


async def run_load(plan: LoadPlan, progress: Progress | None = None) -> Report:
    """Run a plan. Raises Unreachable when nothing accepts the first connection."""
    assert (plan.rate is None) != (plan.concurrency is None), "one of rate and concurrency"
    run = LoadRun(plan, progress)
    samples = await run.whole()
    return report(
        samples,
        url=plan.url,
        rate=plan.rate,
        concurrency=plan.concurrency,
        objective=plan.objective,
    )


class LoadRun:
    """One run in progress. It owns every connection; one that is neither idle nor busy is gone."""

    def __init__(self, plan: LoadPlan, progress: Progress | None) -> None:
        self.plan = plan
        self.address = Address(plan.url)
        self.requests = [
            self.address.request(body, method=plan.method, headers=plan.headers)
            for body in plan.bodies
        ]
        self.samples = Samples()
        self.loop = asyncio.get_running_loop()
        self.random = random.Random(plan.seed)
        self.progress = progress
        self.idle: list[Connection] = []
        self.waiting: deque[float] = deque()
        """Scheduled arrivals that no connection was free for."""
        self.in_flight: deque[tuple[Connection, int]] = deque()
        """In the order of sending; entries of answered requests are skipped."""
        self.open = 0
        self.opening: set[asyncio.Task[None]] = set()
        self.busy = 0
        self.sent = 0
        self.answers = 0
        self.failures = 0
        self.next_s = inf
        self.done = asyncio.Event()
        self.pacer = Pacer(self.loop, self._arrivals)
        self.start_s = self.measure_s = self.end_s = 0.0

    async def whole(self) -> Samples:
        """Connect, send until the end, wait for the answers still due."""
        plan = self.plan
        try:
            await self._connect_first()
            self.start_s = time.monotonic()
            self.measure_s = self.start_s + plan.warmup_s
            self.end_s = self.measure_s + plan.duration_s
            self.samples.first_s = self.measure_s
            self.samples.window_s = plan.duration_s
            self.loop.call_later(_SWEEP_S, self._sweep)
            if plan.rate is not None:
                self.next_s = self.start_s + self.random.expovariate(plan.rate)
                self.pacer.at(self.next_s)
            else:
                while self.idle:
                    self._closed_next(self.idle.pop())
            await self.done.wait()
        finally:
            self._close()
        self.samples.last_s = max(self.samples.last_s, self.end_s)
        return self.samples

    async def _connect_first(self) -> None:
        count = self.plan.concurrency or min(16, self.plan.connections)
        try:
            self.idle.append(await self._connect())
        except OSError as e:
            raise Unreachable(self.address, e.strerror or str(e) or type(e).__name__) from e
        for _ in range(count - 1):
            try:
                self.idle.append(await self._connect())
            except OSError as e:
                self._failed(self.measure_s, f"connect: {e.strerror or type(e).__name__}")

    async def _connect(self) -> Connection:
        self.open += 1
        try:
            return await open_connection(self.address, self, limit_s=self.plan.timeout_s)
        except OSError:
            self.open -= 1
            raise

    # sending

    def _arrivals(self) -> None:
        """Open loop: everything that is due by now goes out."""
        now_s = time.monotonic()
        rate = self.plan.rate or 1.0
        for _ in range(_BURST):
            if self.next_s > now_s or self.next_s >= self.end_s:
                break
            self._arrive(self.next_s, now_s)
            self.next_s += self.random.expovariate(rate)
        if self.next_s < self.end_s:
            self.pacer.at(self.next_s)
        else:
            self.next_s = inf

    def _arrive(self, scheduled_s: float, now_s: float) -> None:
        if scheduled_s >= self.measure_s:
            self.samples.sent += 1
        while self.idle:
            connection = self.idle.pop()
            if connection.transport is not None:
                self._send(connection, scheduled_s, now_s)
                return
        self.waiting.append(scheduled_s)
        if self.open < self.plan.connections:
            self._open_more()

    def _closed_next(self, connection: Connection) -> None:
        """Closed loop: the next request of a client that has its answer."""
        now_s = time.monotonic()
        if now_s >= self.end_s:
            connection.drop()
            return
        if now_s >= self.measure_s:
            self.samples.sent += 1
        self._send(connection, now_s, now_s)

    def _send(self, connection: Connection, scheduled_s: float, now_s: float) -> None:
        request = self.requests[self.sent % len(self.requests)]
        self.sent += 1
        self.busy += 1
        connection.send(request, scheduled_s, now_s)
        self.in_flight.append((connection, connection.serial))
        if scheduled_s >= self.measure_s:
            self.samples.late_sends_s.append(now_s - scheduled_s)

    def _open_more(self) -> None:
        task = self.loop.create_task(self._open_one())
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def _open_one(self) -> None:
        try:
            connection = await self._connect()
        except OSError as e:
            if self.waiting:
                error = f"connect: {e.strerror or type(e).__name__}"
                self._failed(self.waiting.popleft(), error)
            elif self.plan.concurrency and time.monotonic() < self.end_s:
                # A client that cannot connect tries again, but not in a tight loop.
                self._failed(time.monotonic(), f"connect: {e.strerror or type(e).__name__}")
                self.loop.call_later(_SWEEP_S, self._open_more)
            return
        self._free(connection)

    def _free(self, connection: Connection) -> None:
        """A connection can take a request."""
        if self.plan.rate is None:
            self._closed_next(connection)
        elif self.waiting:
            self._send(connection, self.waiting.popleft(), time.monotonic())
        else:
            self.idle.append(connection)

    # what connections report

    def answered(self, connection: Connection, status: int, at_s: float) -> None:
        """An answer is complete."""
        self.busy -= 1
        self.answers += 1
        scheduled_s = connection.scheduled_s
        if scheduled_s >= self.measure_s:
            samples = self.samples
            samples.statuses[status] = samples.statuses.get(status, 0) + 1
            if 200 <= status < 300:
                samples.ok_s.append(at_s - scheduled_s)
                samples.service_s.append(at_s - connection.sent_s)
            else:
                samples.other_s.append(at_s - scheduled_s)
            samples.last_s = at_s
        if connection.transport is None:
            self._replace()
        else:
            self._free(connection)

    def broken(self, connection: Connection, error: str) -> None:
        """A request got no answer."""
        self.busy -= 1
        self._failed(connection.scheduled_s, error)
        self._replace()

    def closed(self, connection: Connection) -> None:
        """An idle connection ended, or one that was counted out before."""
        if connection in self.idle:
            self.idle.remove(connection)
            self.open -= 1

    def _replace(self) -> None:
        """A connection is gone: the client it stood for comes back."""
        self.open -= 1
        if time.monotonic() < self.end_s and (self.plan.rate is None or self.waiting):
            self._open_more()

    def _failed(self, scheduled_s: float, error: str) -> None:
        self.failures += 1
        if scheduled_s >= self.measure_s:
            self.samples.errors[error] = self.samples.errors.get(error, 0) + 1

    # time

    def _sweep(self) -> None:
        """Ten times a second: time-outs, progress, the end."""
        now_s = time.monotonic()
        oldest_s = now_s - self.plan.timeout_s
        while self.waiting and self.waiting[0] < oldest_s:
            self._failed(self.waiting.popleft(), "timeout")
        self._expire(oldest_s)
        if self.progress is not None:
            share = min(1.0, (now_s - self.start_s) / (self.end_s - self.start_s))
            self.progress(share, self.answers, self.failures)
        if now_s >= self.end_s and not self.busy and not self.waiting and self.next_s == inf:
            self.done.set()
            return
        self.loop.call_later(_SWEEP_S, self._sweep)

    def _expire(self, oldest_s: float) -> None:
        in_flight = self.in_flight
        while in_flight:
            connection, serial = in_flight[0]
            current = connection.busy and connection.serial == serial
            if current and connection.scheduled_s >= oldest_s:
                return
            in_flight.popleft()
            if current:
                connection.drop()
                self.broken(connection, "timeout")

    def _close(self) -> None:
        self.pacer.close()
        for task in self.opening:
            task.cancel()
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.drop()
