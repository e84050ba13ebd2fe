"""What a load run found: latencies, counts, goodput, in numbers and as a table.

Knows samples; must not know how they were taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from headway.core.slo import Objective

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))


@dataclass(slots=True)
class Samples:
    """Raw results of the measured part of a run."""

    sent: int = 0
    """Requests whose time to be sent lay in the measured window."""
    ok_s: array[float] = field(default_factory=lambda: array("d"))
    """Latency of each 2xx answer, from its scheduled arrival."""
    service_s: array[float] = field(default_factory=lambda: array("d"))
    """The same from when it was really sent."""
    other_s: array[float] = field(default_factory=lambda: array("d"))
    """Latency of every other answer (refusals)."""
    late_sends_s: array[float] = field(default_factory=lambda: array("d"))
    """How long after its scheduled arrival each request left this generator."""
    statuses: dict[int, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    """Requests without an answer, by cause."""
    first_s: float = 0.0
    last_s: float = 0.0
    """End of the measured window or the last answer, whichever is later."""
    window_s: float = 0.0
    """Length of the measured window."""


@dataclass(slots=True)
class Report:
    """Everything a load run says."""

    url: str
    mode: str
    """`open` (Poisson arrivals) or `closed` (fixed number of clients)."""
    offered_per_s: float | None
    concurrency: int | None
    window_s: float
    sent: int
    answered: int
    ok: int
    statuses: dict[int, int]
    errors: dict[str, int]
    throughput_per_s: float
    """2xx answers per second."""
    latency_ms: dict[str, float]
    """2xx answers, from the scheduled arrival."""
    service_ms: dict[str, float]
    """2xx answers, from the moment of sending; hides what a client waited to be sent."""
    refusal_ms: dict[str, float]
    send_lag_ms: dict[str, float]
    """How late this generator sent; large values mean it, not the server, is the limit."""
    objective: str
    attainment: float | None
    """Share of all requests sent that got a 2xx answer inside the objective's limit."""
    goodput_per_s: float | None
    met: bool | None


def quantile(ordered: Sequence[float], q: float) -> float:
    """The smallest sample that at least a share `q` of all samples do not exceed."""
    return ordered[max(0, ceil(q * len(ordered)) - 1)]


def spread_ms(samples: Sequence[float]) -> dict[str, float]:
    """Quantiles, maximum and mean in milliseconds; empty without samples."""
    if not samples:
        return {}
    ordered = sorted(samples)
    found = {name: round(quantile(ordered, q) * 1e3, 4) for name, q in QUANTILES}
    found["max"] = round(ordered[-1] * 1e3, 4)
    found["mean"] = round(sum(ordered) / len(ordered) * 1e3, 4)
    return found


def report(
    samples: Samples,
    *,
    url: str,
    rate: float | None,
    concurrency: int | None,
    objective: Objective | None,
) -> Report:
    """Sum a run up."""
    ok = len(samples.ok_s)
    span_s = max(samples.last_s - samples.first_s, samples.window_s, 1e-9)
    attainment = goodput = met = None
    if objective is not None:
        good = sum(1 for s in samples.ok_s if s <= objective.limit_s)
        attainment = good / samples.sent if samples.sent else 0.0
        goodput = good / span_s
        met = attainment >= objective.quantile
    return Report(
        url=url,
        mode="open" if rate is not None else "closed",
        offered_per_s=rate,
        concurrency=concurrency,
        window_s=round(samples.window_s, 3),
        sent=samples.sent,
        answered=sum(samples.statuses.values()),
        ok=ok,
        statuses=dict(sorted(samples.statuses.items())),
        errors=dict(sorted(samples.errors.items())),
        throughput_per_s=round(ok / span_s, 3),
        latency_ms=spread_ms(samples.ok_s),
        service_ms=spread_ms(samples.service_s),
        refusal_ms=spread_ms(samples.other_s),
        send_lag_ms=spread_ms(samples.late_sends_s),
        objective=str(objective or ""),
        attainment=attainment,
        goodput_per_s=None if goodput is None else round(goodput, 3),
        met=met,
    )


def rows(r: Report) -> list[tuple[str, str]]:
    """Lines of the table: name and value."""
    load = f"{r.offered_per_s:g}/s Poisson" if r.mode == "open" else f"{r.concurrency} clients"
    lines = [
        ("load", f"{load} for {r.window_s:g} s"),
        ("requests", f"{r.sent} sent, {r.ok} ok"),
        ("throughput", f"{r.throughput_per_s:,.1f} ok/s"),
    ]
    if r.latency_ms:
        lines.append(("latency", _spread(r.latency_ms)))
    if r.mode == "open" and r.latency_ms and r.latency_ms["p99"] > 1.05 * r.service_ms["p99"] + 1:
        lines.append(("  from sending", _spread(r.service_ms)))
    if len(r.statuses) > 1 or r.ok < r.answered:
        lines.append(("statuses", ", ".join(f"{n} x {s}" for s, n in r.statuses.items())))
    if r.refusal_ms:
        lines.append(("  not ok after", _spread(r.refusal_ms)))
    if r.errors:
        lines.append(("no answer", ", ".join(f"{n} x {e}" for e, n in r.errors.items())))
    if r.attainment is not None:
        verdict = "met" if r.met else "missed"
        lines.append(("objective", f"{r.objective}: {verdict}, {r.attainment:.2%} in time"))
        lines.append(("goodput", f"{r.goodput_per_s:,.1f} in time/s"))
    if r.mode == "open" and r.send_lag_ms and r.send_lag_ms["p99"] > 10:
        lines.append(
            ("generator", f"sent {r.send_lag_ms['p99']:.0f} ms late at p99: it is a limit")
        )
    return lines


def _spread(ms: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:,.2f}" for name, value in ms.items() if name != "mean") + " ms"
