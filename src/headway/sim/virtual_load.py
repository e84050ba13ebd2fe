"""Load in virtual time: Poisson arrivals or a fixed number of clients on the real batching core.

The batcher and its driver are the ones that serve; only time and compute are simulated. Knows
arrivals and how to sum answers up; must not know how anything is decided.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from math import ceil, exp, inf, log

from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import ModelConfig
from headway.core.events import BatchClosed, BatchFinished, Event
from headway.core.ports import ModelInfo
from headway.core.request import ItemResult, Request
from headway.core.slo import Objective
from headway.sim.compute import SimExecutor
from headway.sim.service import ServiceTime
from headway.sim.world import World

_BACK_OFF_S = 0.01
"""A refused client asks again after this, or after the time the refusal names if that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualLoad:
    """One run. Exactly one of `rate` and `clients` is set."""

    rate: float | None = None
    """Mean Poisson arrivals per second."""
    clients: int | None = None
    """Clients that each send when answered."""
    duration_s: float = 60.0
    sizes: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest size of an item, log-uniform between."""
    objective: Objective | None = None
    """Counts answers in time; the policy's own objective is in the configuration."""
    hop_s: float = 0.0
    """Time from the front end to an idle worker."""
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """What happened, in virtual time."""

    sent: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    """Of answers with status 200, in the order they came."""
    batches: int = 0
    rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    padded: float = 0.0
    useful: float = 0.0
    busy_s: float = 0.0
    span_s: float = 0.0
    in_time: int = 0
    advice: str = ""

    def quantile_s(self, q: float) -> float:
        """The smallest latency that a share `q` of answers does not exceed; `inf` without any."""
        if not self.latencies_s:
            return inf
        ordered = sorted(self.latencies_s)
        return ordered[max(0, ceil(q * len(ordered)) - 1)]

    def heard(self, event: Event) -> None:
        """Count one record of the batcher."""
        if isinstance(event, BatchClosed):
            self.batches += 1
            self.rows += event.rows
            self.reasons[event.reason.value] += 1
        elif isinstance(event, BatchFinished):
            self.padded += event.padded
            self.useful += event.useful


class _Caller:
    """Who waits for one request."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._since_s = run.world.time_s

    def chunk(self, body: bytes) -> None:
        """Nothing streams here."""

    def done(self, result: ItemResult) -> None:
        """The answer, or a refusal."""
        run = self._run
        run.last_s = run.world.time_s
        if result.status == 200:
            latency_s = run.world.time_s - self._since_s
            run.outcome.latencies_s.append(latency_s)
            run.outcome.in_time += latency_s <= run.limit_s
        else:
            run.outcome.refused[result.code or str(result.status)] += 1
        if run.load.clients is not None:
            pause_s = 0.0 if result.status == 200 else max(result.retry_after_s or 0, _BACK_OFF_S)
            run.world.plan(run.world.time_s + pause_s, run.send)


class _Run:
    """One simulation in progress."""

    def __init__(self, config: ModelConfig, service: ServiceTime, load: VirtualLoad) -> None:
        self.load = load
        self.limit_s = load.objective.limit_s if load.objective else inf
        self.world = World()
        self.outcome = Outcome()
        self.last_s = 0.0
        """When the last answer came; idle timers may run on after it."""
        self.random = random.Random(load.seed)
        self.executor = SimExecutor(
            self.world,
            service,
            workers=config.workers,
            info=ModelInfo(name=config.name, form=service.form, size_unit="units"),
            hop_s=load.hop_s,
        )
        self.driver = BatchDriver(Batcher(config), self.executor, self.world.scheduler())
        self.driver.listeners.append(self.outcome.heard)
        self.executor.start(self.driver)

    def play(self) -> Outcome:
        """Until the time is over and everything sent has its answer."""
        load = self.load
        if load.rate is not None:
            self.world.plan(self.random.expovariate(load.rate), self._arrive)
        for _ in range(load.clients or 0):
            self.world.plan(0.0, self.send)
        self.world.run(load.duration_s)
        self.driver.drain()
        self.world.run()
        outcome = self.outcome
        outcome.span_s = max(self.last_s, load.duration_s)
        outcome.busy_s = self.executor.busy_s
        outcome.advice = self.driver.batcher.advice() or ""
        return outcome

    def _arrive(self) -> None:
        self.send()
        assert self.load.rate is not None
        when_s = self.world.time_s + self.random.expovariate(self.load.rate)
        if when_s < self.load.duration_s:
            self.world.plan(when_s, self._arrive)

    def send(self) -> None:
        """One request, unless the time is over."""
        now = self.world.time_s
        if now >= self.load.duration_s:
            return
        self.outcome.sent += 1
        low, high = self.load.sizes
        size = low if low == high else exp(self.random.uniform(log(low), log(high)))
        self.driver.submit(Request(self.outcome.sent, b"", now, _Caller(self), size=size))


def simulate(config: ModelConfig, service: ServiceTime, load: VirtualLoad) -> Outcome:
    """Play one load on one model; the same arguments give the same outcome."""
    assert (load.rate is None) != (load.clients is None), "one of rate and clients"
    return _Run(config, service, load).play()
