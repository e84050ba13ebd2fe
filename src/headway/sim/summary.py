"""What a simulated run says in numbers: latency, goodput, refusals, batches.

Knows a run's log; must not know how it came about. Quantiles are samples, never interpolated: the
smallest latency that at least that share of answers do not exceed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from headway.core.batch import padding_waste
from headway.core.slo import Objective
from headway.sim.replica import Log, SimRequest

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999))


@dataclass(slots=True)
class Summary:
    """One run. Times in seconds of virtual time; `answered` counts status 200 only."""

    span_s: float
    asked: int
    answered: int
    refused: int
    failed: int
    """Lost with a worker."""
    cancelled: int
    throughput_per_s: float
    latency_s: dict[str, float]
    """mean, std, p50 to p99.9 and max of answered requests; empty without any."""
    wait_s: dict[str, float]
    """The same for the time before a batch began."""
    objective: str
    attainment: float | None
    """Share of all who asked and did not hang up that were answered inside the objective and
    before their own deadline; None where there is neither."""
    goodput_per_s: float | None
    """How many those are a second."""
    met: bool | None
    refusals: dict[str, int]
    """By code; failures too."""
    utilisation: float
    """Share of worker time spent on batches."""
    batches: int
    batch_rows_mean: float
    batch_rows: dict[int, int]
    """Batches by row count."""
    padding_waste: float
    """Share of computed size units that carried no data."""
    reasons: dict[str, int]
    """Batches by why they closed."""

    def conserved(self) -> bool:
        """Did everyone who asked get exactly one ending?"""
        return self.asked == self.answered + self.refused + self.failed + self.cancelled


def summarize(log: Log, objective: Objective | None = None, *, since_s: float = 0.0) -> Summary:
    """Sum a run up. Requests that arrived before `since_s` are left out, batches are not."""
    asked = [r for r in log.requests if r.arrival_s >= since_s]
    answered = [r for r in asked if r.status == 200]
    refusals = Counter(r.code for r in asked if r.status not in {0, 200})
    failed = sum(r.status >= 400 and r.started_s >= 0.0 and r.status != 429 for r in asked)
    cancelled = sum(r.status == 0 and r.code == "cancelled" for r in asked)
    span_s = max(log.end_s - since_s, 1e-9)
    attainment, goodput = _promise(asked, answered, cancelled, objective)
    return Summary(
        span_s=span_s,
        asked=len(asked),
        answered=len(answered),
        refused=sum(refusals.values()) - failed,
        failed=failed,
        cancelled=cancelled,
        throughput_per_s=len(answered) / span_s,
        latency_s=spread([r.end_s - r.arrival_s for r in answered]),
        wait_s=spread([r.started_s - r.arrival_s for r in answered]),
        objective=str(objective or ""),
        attainment=attainment,
        goodput_per_s=None if goodput is None else goodput / span_s,
        met=None if objective is None else (attainment or 0.0) >= objective.quantile,
        refusals=dict(sorted(refusals.items())),
        utilisation=log.busy_s / (log.workers * max(log.end_s, 1e-9)),
        **_batches(log),  # type: ignore[arg-type]
    )


def spread(samples: Iterable[float]) -> dict[str, float]:
    """Mean, standard deviation, quantiles and maximum; empty without samples."""
    ordered = np.sort(np.fromiter(samples, dtype=np.float64))
    n = len(ordered)
    if n == 0:
        return {}
    found = {"mean": float(ordered.mean()), "std": float(ordered.std())}
    for name, q in QUANTILES:
        found[name] = float(ordered[max(0, ceil(q * n) - 1)])
    found["max"] = float(ordered[-1])
    return found


def _promise(
    asked: list[SimRequest], answered: list[SimRequest], cancelled: int, objective: Objective | None
) -> tuple[float | None, int | None]:
    """Attainment and how many were answered in time; None where nothing was promised."""
    if objective is None and all(r.deadline_s == inf for r in asked):
        return None, None
    limit_s = objective.limit_s if objective is not None else inf
    good = sum(r.end_s - r.arrival_s <= limit_s and r.end_s <= r.deadline_s for r in answered)
    stayed = len(asked) - cancelled
    return (good / stayed if stayed else 0.0), good


def _batches(log: Log) -> dict[str, object]:
    rows = Counter(e.rows for e in log.closed)
    padded = sum(e.padded for e in log.finished if e.ok)
    useful = sum(e.useful for e in log.finished if e.ok)
    total = sum(n * count for n, count in rows.items())
    return {
        "batches": len(log.closed),
        "batch_rows_mean": total / len(log.closed) if log.closed else 0.0,
        "batch_rows": dict(sorted(rows.items())),
        "padding_waste": padding_waste(padded, useful),
        "reasons": dict(Counter(str(e.reason) for e in log.closed).most_common()),
    }
