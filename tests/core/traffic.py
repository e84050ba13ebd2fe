"""Traffic for core tests: seeded Poisson arrivals, and what became of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headway.core.request import Request
from tests.core.stage import Answer, Stage


@dataclass
class Outcome:
    """Every request of a run, with what its client saw."""

    asked: list[tuple[Request, Answer]] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return sum(a.result is not None and a.result.status != 200 for _, a in self.asked)

    def latencies(self) -> list[float]:
        """Of the requests that were served, in rising order."""
        return sorted(
            a.at_s - r.arrival_s for r, a in self.asked if a.result and a.result.status == 200
        )

    def quantile(self, share: float) -> float:
        served = self.latencies()
        return served[min(int(share * len(served)), len(served) - 1)]

    def on_time(self, limit_s: float) -> int:
        """Answers within the limit."""
        return sum(latency_s <= limit_s + 1e-9 for latency_s in self.latencies())


def poisson(
    stage: Stage,
    rate_s: float,
    until_s: float,
    *,
    seed: int = 1,
    size: Callable[[random.Random], float] | None = None,
    fields: Callable[[float], dict[str, Any]] | None = None,
) -> Outcome:
    """Plan Poisson arrivals from now until `until_s`; run the world to see what happens."""
    rng = random.Random(seed)
    outcome = Outcome()

    def arrive() -> None:
        now = stage.world.time_s
        more: dict[str, Any] = fields(now) if fields else {}
        if size is not None:
            more["size"] = size(rng)
        outcome.asked.append(stage.ask(**more))
        plan()

    def plan() -> None:
        when_s = stage.world.time_s + rng.expovariate(rate_s)
        if when_s <= until_s:
            stage.world.plan(when_s, arrive)

    plan()
    return outcome
