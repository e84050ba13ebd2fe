"""Overload rows: more than the server can do, and the moments after.

Useful answers are the 200s a client that waits 5 s gets, as a share of what the same server answers
when it is not overloaded. The connection count is the same before, during and after.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.client import Load, Outcome
from benchmarks.harness.rows import Bar, Row
from benchmarks.harness.server_process import Server

CONNECTIONS = 2048
"""More than either server lets wait (1,024), so that refusing is up to the server."""
PATIENCE_MS = 5000.0
_WINDOW_S = 0.25
_WINDOWS = 12
_NORMAL = 2.0
"""Normal again: a median within this factor of what it was. Eight closed-loop clients may share one
batch or alternate between two, so a factor below 2 would ask about that instead."""
_MEMORY_AT = 0.8
"""Memory is read when this share of a load has passed."""


@dataclass(slots=True)
class Ordeal:
    """One server through calm, overload and after."""

    useful_pct: float
    refusals_p99_ms: float
    normal_after_s: float
    memory_growth_pct: float
    offered_rps: float
    peak_rps: float
    refused: int


def overload(bench: Bench, server: Server, factor: float, peak_connections: int) -> Ordeal:
    """Peak by closed loop, then half of it and `factor` times it over the same connections."""
    quiet = Load(seconds=_WINDOW_S * 2, connections=8, warm_s=0.2)
    normal_ms = server.load(quiet).p50
    peak = server.load(bench.load(4, peak_connections)).rps
    calm = _open(bench, peak * 0.5)
    _, calm_mb = _with_memory(server, calm)
    stormy = _open(bench, peak * factor)
    storm, storm_mb = _with_memory(server, stormy)
    return Ordeal(
        useful_pct=storm.rps / max(peak, 1e-9) * 100,
        refusals_p99_ms=max(0.0, storm.ref_p99),
        normal_after_s=_until_normal(server, normal_ms),
        memory_growth_pct=(storm_mb / calm_mb - 1) * 100,
        offered_rps=storm.sent / storm.secs,
        peak_rps=peak,
        refused=storm.refused,
    )


def _open(bench: Bench, rate: float) -> Load:
    return bench.load(
        6, CONNECTIONS, rate=rate, keep_open=True, timeout_ms=PATIENCE_MS, limit_ms=PATIENCE_MS
    )


def _with_memory(server: Server, load: Load) -> tuple[Outcome, float]:
    running = server.begin(load)
    running.sleep(load.warm_s + load.seconds * _MEMORY_AT)
    memory = server.pss_mb()
    return running.outcome(), memory


def _until_normal(server: Server, normal_ms: float) -> float:
    """Seconds until a window's median is normal again; windows are 0.25 s. 3 s
    stands for 3 s or longer."""
    for i in range(_WINDOWS):
        seen = server.load(Load(seconds=_WINDOW_S, connections=8, warm_s=0, timeout_ms=1000))
        if seen.ok and 0 <= seen.p50 <= normal_ms * _NORMAL:
            return (i + 1) * _WINDOW_S
    return _WINDOWS * _WINDOW_S


def with_5_ms(bench: Bench) -> list[Row]:
    """Twice what batches of 5 ms can do."""
    with bench.side_by_side("noop5", bench.subject, "mosec") as servers:
        runs = bench.alternate(servers, lambda s: overload(bench, s, 2.0, 64))
    name = "overload, no-op + 5 ms at 2x: "
    offered = _offered(runs[0])
    rows = [
        _row(name + "useful answers, of its own peak", "%", runs, "useful_pct", Bar(">=", 90)),
        _row(name + "refusals p99", "ms", runs, "refusals_p99_ms", Bar("<", 50)),
        _row(name + "back to normal after", "s", runs, "normal_after_s", Bar("<=", 1)),
        _row(name + "memory growth", "%", runs, "memory_growth_pct", Bar("<", 20)),
    ]
    return [_noted(rows[0], offered), *rows[1:]]


def without_work(bench: Bench) -> list[Row]:
    """One and a half times what the no-op can do: client and server fight for the same cores."""
    with bench.side_by_side("noop", bench.subject, "mosec") as servers:
        runs = bench.alternate(servers, lambda s: overload(bench, s, 1.5, 128))
    name = "overload, no-op at 1.5x: useful answers, of its own peak"
    row = _row(name, "%", runs, "useful_pct", Bar(">=", 50))
    return [_noted(row, _offered(runs[0]))]


def _offered(runs: list[Ordeal]) -> str:
    """What was sent, for a note."""
    rate = median([o.offered_rps for o in runs])
    refused = median([float(o.refused) for o in runs])
    peak = median([o.peak_rps for o in runs])
    return f"offered {rate:,.0f}/s of a peak of {peak:,.0f}/s, {refused:,.0f} refused"


def _row(name: str, unit: str, runs: list[list[Ordeal]], key: str, bar: Bar) -> Row:
    ours, theirs = ([float(getattr(o, key)) for o in each] for each in runs)
    return Row(
        name=name,
        value=median(ours),
        unit=unit,
        peer="mosec",
        peer_value=median(theirs),
        bar=bar,
        note=spread(ours),
    )


def _noted(row: Row, text: str) -> Row:
    return Row(
        name=row.name,
        value=row.value,
        unit=row.unit,
        peer=row.peer,
        peer_value=row.peer_value,
        bar=row.bar,
        note=f"{text}; {row.note}",
    )
