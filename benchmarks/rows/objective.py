"""Rows under an objective of p99 < 200 ms: what can be promised, and what survives overload."""

from __future__ import annotations

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.client import Outcome
from benchmarks.harness.rows import Bar, Row
from benchmarks.harness.server_process import Server

LIMIT_MS = 200.0
_PATIENCE_MS = 6000.0
_PROBE_S = 10.0
_PROBES = 4
_LOW, _HIGH = 0.4, 1.15
"""The search's bounds, as shares of the closed-loop rate."""


def kept(outcome: Outcome) -> bool:
    """Nothing refused or lost, and 99 % inside the limit."""
    return outcome.all_answered and 0 <= outcome.p99 < LIMIT_MS


def highest_rate(bench: Bench, server: Server) -> float:
    """Highest Poisson rate at which the promise is kept, by bisection; 0 when it never is."""
    reach = server.load(bench.load(6, 8, warm_s=2)).rps
    low, high = 0.0, reach * _HIGH
    rate = reach * (_LOW + _HIGH) / 2
    for _ in range(_PROBES):
        load = bench.load(_PROBE_S, rate=round(rate, 2), timeout_ms=_PATIENCE_MS)
        good = kept(server.load(load))
        low, high = (rate, high) if good else (low, rate)
        rate = (max(low, reach * _LOW * 0.5) + high) / 2
    return low


def promise(bench: Bench) -> list[Row]:
    """(a) the highest rate that keeps the promise; (b) answers inside it under far more."""
    flags = ("--objective", "p99<200ms")
    with bench.side_by_side("embed", bench.subject, "mosec-off", flags=flags) as servers:
        rates = bench.alternate(servers, lambda s: highest_rate(bench, s))
        ours, theirs = median(rates[0]), median(rates[1])
        row = Row(
            name="embed int8, objective p99<200ms: highest rate that keeps it",
            value=ours,
            unit="/s",
            peer="mosec-off",
            peer_value=theirs,
            bar=Bar(">=", 1.0, times_peer=True),
            note=spread(rates[0]),
        )
        return [row, *(r for rate in (75, 150) for r in _offered(bench, servers, rate, theirs))]


def _offered(bench: Bench, servers: list[Server], rate: int, promised: float) -> list[Row]:
    """Answers inside the limit a second, with `rate` offered for 30 s."""
    # The peer's own rate is shown but is no bar, so one run of it is enough.
    load = bench.load(30, rate=float(rate), timeout_ms=_PATIENCE_MS, limit_ms=LIMIT_MS)
    runs = [servers[0].load(load) for _ in range(bench.rounds)]
    peer = servers[1].load(load)
    good = [o.in_limit_rps for o in runs]
    name = f"embed int8, objective p99<200ms, {rate}/s offered: "
    return [
        Row(
            name=name + "answers inside 200 ms",
            value=median(good),
            unit="/s",
            peer="mosec-off's highest rate",
            peer_value=promised,
            bar=Bar(">=", 1.25, times_peer=True),
            note=f"mosec-off at {rate}/s: {peer.in_limit_rps:.3g}/s inside; {spread(good)}",
        ),
        Row(
            name=name + "refusals p99",
            value=median([max(0.0, o.ref_p99) for o in runs]),
            unit="ms",
            peer="mosec-off",
            peer_value=max(0.0, peer.ref_p99),
            bar=Bar("<", 50),
            note=f"{median([float(o.refused) for o in runs]):.0f} refused of {runs[0].sent}",
        ),
    ]
