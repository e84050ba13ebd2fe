"""One replica in virtual time: a model's real batcher and driver, simulated workers, a load.

Knows how the parts are joined, who asks and what was answered; must not know how anything is
decided. The same class runs on any `Timeline` with any `Scheduler`, so a live event loop on a
virtual clock can be compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from headway.core.batch import Batch, Close
from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import ModelConfig
from headway.core.events import BatchClosed, BatchFinished, Event
from headway.core.ports import ModelInfo, Scheduler, WarmRun
from headway.core.request import ItemResult, Request, State
from headway.sim.arrivals import Arrival, ClosedLoop, Marks
from headway.sim.compute import SimExecutor
from headway.sim.world import Timeline, World

RETRY_S = 0.01
"""A closed-loop client's pause after a failure that names none."""


class SimRequest(Request):
    """A request that keeps its own answer."""

    __slots__ = ("code", "end_s", "replica", "status")

    replica: Replica
    end_s: float
    """When it was answered, or its client hung up; -1 before."""
    status: int
    """HTTP status; 0 before the answer and for clients that hung up."""
    code: str

    def chunk(self, body: bytes) -> None:
        """Simulated models do not stream."""

    def done(self, result: ItemResult) -> None:
        """The answer."""
        assert self.end_s < 0.0, "a request was answered twice"
        replica = self.replica
        self.end_s = replica.timeline.time_s
        self.status = result.status
        self.code = result.code
        if replica.loop is not None:
            replica.ask_again(0.0 if result.status == 200 else result.retry_after_s or RETRY_S)

    @property
    def latency_s(self) -> float:
        """Arrival to answer."""
        return self.end_s - self.arrival_s

    @property
    def waited_s(self) -> float:
        """Arrival to its batch's start; for one that never ran, to its answer."""
        return (self.started_s if self.started_s >= 0.0 else self.end_s) - self.arrival_s


@dataclass(slots=True)
class Crashes:
    """When workers die, and how long they stay away."""

    times: Sequence[tuple[float, int]] = ()
    """(time, worker)"""
    away_s: float = 1.0

    @classmethod
    def seeded(
        cls, rng: random.Random, *, every_s: float, until_s: float, workers: int, away_s: float
    ) -> Crashes:
        """One crash every `every_s` seconds on average, of any worker."""
        times: list[tuple[float, int]] = []
        at_s = rng.expovariate(1.0 / every_s)
        while at_s < until_s:
            times.append((at_s, rng.randrange(workers)))
            at_s += rng.expovariate(1.0 / every_s)
        return cls(times, away_s)


@dataclass(slots=True)
class Log:
    """Everything that happened in one run."""

    requests: list[SimRequest] = field(default_factory=list)
    closed: list[BatchClosed] = field(default_factory=list)
    finished: list[BatchFinished] = field(default_factory=list)
    others: list[Event] = field(default_factory=list)
    busy_s: float = 0.0
    """Device time used by all workers."""
    workers: int = 1
    end_s: float = 0.0
    """Time of the last answer or of the load's end, whichever is later."""


class Replica:
    """Plays one load against one model."""

    def __init__(
        self,
        config: ModelConfig,
        service_s: Callable[[Batch], float],
        *,
        info: ModelInfo | None = None,
        crashes: Crashes | None = None,
        timeline: Timeline | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        world = World()
        self.timeline = timeline or world
        self.executor = SimExecutor(
            self.timeline,
            service_s,
            workers=config.workers,
            info=info or ModelInfo(name=config.name),
        )
        self.batcher = Batcher(config)
        self.driver = BatchDriver(self.batcher, self.executor, scheduler or world.scheduler())
        self.driver.listeners.append(self._hear)
        self.crashes = crashes or Crashes()
        self.loop: ClosedLoop | None = None
        self.log = Log(workers=config.workers)
        self._world = world
        self._arrivals: Iterator[Arrival] = iter(())
        self._marks = Marks()
        self._rng = random.Random(0)

    def play(
        self,
        load: Iterable[Arrival] | ClosedLoop,
        *,
        until_s: float = 0.0,
        marks: Marks | None = None,
        seed: int = 0,
    ) -> Log:
        """Run a load to its last answer in this replica's own world. `until_s` is when the load
        ends, if that is after its last arrival; `marks` and `seed` are for a closed loop."""
        self.begin(load, marks=marks, seed=seed)
        self._world.run()
        return self.end(until_s)

    def begin(
        self, load: Iterable[Arrival] | ClosedLoop, *, marks: Marks | None = None, seed: int = 0
    ) -> None:
        """Plan a load; whoever owns the timeline runs it."""
        self.executor.start(self.driver)
        for when_s, worker in self.crashes.times:
            self._plan_crash(when_s, worker)
        if isinstance(load, ClosedLoop):
            self.loop = load
            self._marks = marks or Marks()
            self._rng = random.Random(f"{seed} clients")
            for _ in range(load.clients):
                self.ask_again()
        else:
            self._arrivals = iter(load)
            self._next()

    def end(self, until_s: float = 0.0) -> Log:
        """What happened. Call once nothing is left to come."""
        log = self.log
        log.busy_s = self.executor.busy_s
        log.end_s = max([until_s, *(r.end_s for r in log.requests[-1:])])
        if log.finished:
            log.end_s = max(log.end_s, log.finished[-1].now)
        return log

    def ask_again(self, at_least_s: float = 0.0) -> None:
        """A client of the closed loop thinks, then asks. One that was refused waits as told."""
        loop = self.loop
        assert loop is not None
        pause_s = self._rng.expovariate(1.0 / loop.think_s) if loop.think_s > 0 else 0.0
        when_s = self.timeline.time_s + max(pause_s, at_least_s)
        if when_s < loop.until_s:
            arrival = self._marks.draw(when_s, self._rng)
            self.timeline.plan(when_s, lambda: self._ask(arrival))

    def _next(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self.timeline.plan(arrival.at_s, lambda: self._arrive(arrival))

    def _arrive(self, arrival: Arrival) -> None:
        # The one after is planned first: of equal times it comes before what this one causes.
        self._next()
        self._ask(arrival)

    def _ask(self, arrival: Arrival) -> None:
        requests = self.log.requests
        now = self.timeline.time_s
        request = SimRequest(
            len(requests) + 1,
            b"",
            now,
            None,  # type: ignore[arg-type]  # itself, below
            rows=arrival.rows,
            size=arrival.size,
            priority=arrival.priority,
            deadline_s=now + arrival.deadline_s,
            expires_s=now + arrival.deadline_s,
        )
        request.reply = request
        request.replica = self
        request.end_s = -1.0
        request.status = 0
        request.code = ""
        requests.append(request)
        if arrival.leave_s < inf:
            self.timeline.plan(now + arrival.leave_s, lambda: self._leave(request))
        self.driver.submit(request)

    def _leave(self, request: SimRequest) -> None:
        if request.end_s < 0.0:
            self.driver.cancel(request)
            assert request.state is State.CANCELLED
            request.end_s = self.timeline.time_s
            request.code = "cancelled"
            if self.loop is not None:
                self.ask_again()

    def _plan_crash(self, when_s: float, worker: int) -> None:
        executor, away_s = self.executor, self.crashes.away_s
        self.timeline.plan(when_s, lambda: executor.crash(worker))
        self.timeline.plan(when_s + away_s, lambda: executor.revive(worker))

    def _hear(self, event: Event) -> None:
        kind = type(event)
        if kind is BatchClosed:
            self.log.closed.append(event)  # type: ignore[arg-type]
        elif kind is BatchFinished:
            self.log.finished.append(event)  # type: ignore[arg-type]
        else:
            self.log.others.append(event)


def warm_runs(service_s: Callable[[Batch], float], rows_max: int, size: float) -> list[WarmRun]:
    """What warm-up at a real start would have measured: batches of 1, 2, 4 ... up to the cap."""
    found: list[WarmRun] = []
    rows = 1
    while rows < 2 * rows_max:
        n = min(rows, rows_max)
        found.append(WarmRun(n, size, n * size, service_s(_sample(n, size))))
        rows *= 2
    return found


def _sample(rows: int, size: float) -> Batch:
    return Batch(0, "", 0, [], rows, size, rows * size, 0.0, 0.0, Close.FULL)
