"""What Headway itself costs: deciding, starting, resting."""

from __future__ import annotations

import json
import subprocess
import time

from benchmarks.harness.bench import Bench, median, spread
from benchmarks.harness.catalog import environ_of, interpreter
from benchmarks.harness.environments import REPOSITORY
from benchmarks.harness.process_tree import user_and_kernel_s
from benchmarks.harness.rows import Bar, Row
from benchmarks.harness.server_process import Server

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


def spending(bench: Bench) -> list[Row]:
    """Where each microsecond of a no-op request goes at 32 connections. No bars."""
    products = (bench.subject, "mosec")
    with bench.side_by_side("noop", *products) as servers:
        runs = bench.alternate(servers, lambda s: _spend_us(bench, s))
    parts = {part: [median([run[part] for run in found]) for found in runs] for part in runs[0][0]}
    rows = [
        Row(name=f"no-op, 32 connections, {part}", value=a, unit="us", peer="mosec", peer_value=b)
        for part, (a, b) in parts.items()
    ]
    stages = _stages_us()
    return rows + [
        Row(name=f"front end in memory, {stage}", value=us, unit="us")
        for stage, us in stages.items()
    ]


def _spend_us(bench: Bench, server: Server) -> dict[str, float]:
    """Processor time a request, in us, by process and by side of the system call."""
    load = bench.load(5, 32, warm_s=0.0)
    pids = server.pids()
    before = [user_and_kernel_s(pid) for pid in pids]
    outcome = server.load(load)
    after = [user_and_kernel_s(pid) for pid in pids]
    spent = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(after, before, strict=True)]
    user_s, kernel_s = map(sum, zip(*spent, strict=True))
    count = max(outcome.ok, 1)
    return {
        "server, own code": user_s / count * 1e6,
        "server, kernel": kernel_s / count * 1e6,
        "busiest process": max(a + b for a, b in spent) / count * 1e6,
        "load client": outcome.client_cpu * outcome.secs / count * 1e6,
        "from one answer to the next": outcome.secs / count * 1e6,
    }


def _stages_us() -> dict[str, float]:
    """The front end's stages with no socket and no worker."""
    python = interpreter("headway")
    done = subprocess.run(
        [python, "-m", "benchmarks.harness.front_cost"],
        cwd=REPOSITORY,
        env=environ_of("headway", "noop", 0, python),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


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
