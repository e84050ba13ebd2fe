"""What Headway itself costs: deciding, starting, resting."""

from __future__ import annotations

import json
import subprocess
import time

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.catalog import environ_of, interpreter
from benchmarks.harness.environments import REPOSITORY
from benchmarks.harness.rows import Bar, Row

_IDLE_S = 10.0


def deciding(bench: Bench) -> list[Row]:
    """Time spent deciding and forming a batch, as a share of a request's latency (p50)."""
    rows = []
    for work, connections, share in (("embed", 32, 1.0), ("noop5", 64, 5.0)):
        costs = [_decide_us(work, connections) for _ in range(bench.rounds)]
        with bench.server(bench.subject, work) as server:
            seconds = 10 if work == "embed" else 3
            p50_ms = server.load(bench.load(seconds, connections, warm_s=2)).p50
        us = median(costs)
        rows.append(
            Row(
                name=f"decide and form a batch, {work}, of a request's p50",
                value=us / 10 / max(p50_ms, 1e-9),
                unit="%",
                bar=Bar("<=", share),
                note=f"{us:.0f} us a batch, all members together, of {p50_ms:.4g} ms",
            )
        )
    return rows


def _decide_us(work: str, connections: int) -> float:
    python = interpreter("headway")
    done = subprocess.run(
        [python, "-m", "benchmarks.harness.decide_cost", work, str(connections)],
        cwd=REPOSITORY,
        env=environ_of("headway", work, 0, python),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["us_per_batch"])


def resting(bench: Bench) -> list[Row]:
    """Start to the first 200, memory and processor time with nothing to do."""
    seen: dict[str, list[tuple[float, float, float]]] = {bench.subject: [], "mosec": []}
    for _ in range(bench.rounds):
        for product, found in seen.items():
            found.append(_rest(bench, product))
    rows = []
    for i, (what, unit, bar) in enumerate(
        (
            ("start to first 200, no-op", "s", Bar("<=", 0.5)),
            ("memory, front end and one worker (PSS)", "MB", Bar("<=", 110)),
            ("idle, of a core", "%", Bar("<", 0.5)),
        )
    ):
        ours, theirs = ([run[i] for run in found] for found in seen.values())
        rows.append(
            Row(
                name=what,
                value=median(ours),
                unit=unit,
                peer="mosec",
                peer_value=median(theirs),
                bar=bar,
                note=spread(ours),
            )
        )
    return rows


def _rest(bench: Bench, product: str) -> tuple[float, float, float]:
    with bench.server(product, "noop") as server:
        time.sleep(1.0)
        used = server.cpu_s()
        seconds = max(1.0, _IDLE_S * bench.scale)
        time.sleep(seconds)
        share = (server.cpu_s() - used) / seconds * 100
        return server.start_s, server.pss_mb(), share
