"""Two models on one device: does a heavy one spoil a light one's tail?"""

from __future__ import annotations

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.catalog import BENCHMARKS
from benchmarks.harness.rows import Bar, Row
from benchmarks.harness.server_process import Server

SLOT_MS = 20.0
"""The default of slot_time_ms_max."""
LIGHT_RPS, HEAVY_RPS = 100.0, 50.0
"""50 items a second of 10 ms each are half of the device."""


def shared_device(bench: Bench) -> list[Row]:
    """p99 of a 1 ms model at 100/s, alone and beside a model of 10 ms an item at 50/s."""
    apps = [f"{name}={BENCHMARKS / 'apps' / name}.py" for name in ("light", "heavy")]
    flags = ("--set", "heavy.class=heavy")
    with bench.headway_apps(apps, "/predict/light", *flags) as server:
        pairs = [
            (_light(bench, server, 0), _light(bench, server, HEAVY_RPS))
            for _ in range(bench.rounds)
        ]
    alone, beside = median([a for a, _ in pairs]), median([b for _, b in pairs])
    return [
        Row(
            name="a 1 ms model at 100/s beside a 10 ms-per-item model at 50 %: p99",
            value=beside,
            unit="ms",
            peer="alone",
            peer_value=alone,
            bar=Bar("<=", alone + 1.25 * SLOT_MS),
            note=f"bar: alone + 1.25 x {SLOT_MS:g} ms; {spread([b for _, b in pairs])}",
        )
    ]


def _light(bench: Bench, server: Server, heavy_rps: float) -> float:
    load = bench.load(10, rate=LIGHT_RPS, connections=64)
    if not heavy_rps:
        return server.load(load).p99
    heavy = bench.load(10, rate=heavy_rps, connections=64, path="/predict/heavy", seed=5)
    running = server.begin(heavy)
    p99 = server.load(load).p99
    done = running.outcome()
    if done.ok < 0.95 * done.sent:
        bench.say(f"the heavy model answered {done.ok} of {done.sent}: {done.err}")
    return p99
