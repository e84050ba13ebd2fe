"""What deciding and forming a batch costs, in real microseconds, with compute in virtual time.

    python -m benchmarks.harness.decide_cost noop5|embed CONNECTIONS

Drives the very `BatchDriver` the server uses with closed-loop clients; real time is counted inside
the batcher's `add`, `poll` and `finish`, which is all the work batching adds to a request. Prints
one JSON object: `batches`, `requests`, `us_per_batch` (all members' share together), `mean_rows`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from headway.core.batch import Batch, BatchResult
from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import ModelConfig
from headway.core.ports import ModelInfo, WarmRun, WorkerSink
from headway.core.request import ItemResult, Request
from headway.sim.world import World

_BATCHES = 2000


class Timed:
    """Wraps a method and adds up the time spent in it."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def wrap(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The same method, timed."""

        def outer(*args: Any) -> Any:
            begun = time.perf_counter()
            try:
                return inner(*args)
            finally:
                self.total_s += time.perf_counter() - begun

        return outer


class Compute:
    """One worker whose batches take `seconds(batch)` of virtual time, one after another."""

    workers = 1

    def __init__(self, world: World, seconds: Callable[[Batch], float]) -> None:
        self._world = world
        self._seconds = seconds
        self._free_s = 0.0
        self.batches = 0
        self.rows = 0

    def start(self, sink: WorkerSink) -> None:
        """Where to report."""
        self._sink = sink

    def run(self, batch: Batch) -> None:
        """Finish it in time."""
        took = self._seconds(batch)
        self._free_s = max(self._free_s, self._world.time_s) + took
        self.batches += 1
        self.rows += batch.rows
        result = BatchResult([ItemResult(200, b"") for _ in batch.requests], took)
        self._world.plan(self._free_s, lambda: self._sink.batch_done(batch.id, result))

    def hear(self) -> None:
        """Nothing is said between events."""

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Nobody leaves here."""

    def measure(self, requests: Sequence[Request]) -> None:
        """Sizes are given."""

    def restart(self, worker: int, code: str, message: str) -> None:
        """Nothing hangs here."""

    async def close(self) -> None:
        """Nothing to leave behind."""


class Client:
    """Sends again as soon as it is answered."""

    def __init__(self, send: Callable[[Client], None]) -> None:
        self._send = send

    def chunk(self, body: bytes) -> None:
        """Nothing streams here."""

    def done(self, result: ItemResult) -> None:
        """Next, please."""
        self._send(self)


def measure(work: str, connections: int, batches: int = _BATCHES) -> dict[str, float]:
    """Run that many batches and count."""
    rng = random.Random(7)
    world = World()
    embed = work == "embed"

    def seconds(batch: Batch) -> float:
        return batch.padded("padded") * 0.00025 if embed else 0.005

    batcher = Batcher(ModelConfig(name="m", max_batch_size=None if embed else 32))
    compute = Compute(world, seconds)
    driver = BatchDriver(batcher, compute, world.scheduler())
    compute.start(driver)
    clock = Timed()
    for name in ("add", "poll", "finish"):
        setattr(batcher, name, clock.wrap(getattr(batcher, name)))
    warm = [WarmRun(n, 60, 60 * n, 60 * n * 0.00025 if embed else 0.005) for n in (1, 4, 16, 32)]
    driver.worker_ready(0, ModelInfo("m", form="padded" if embed else "list", warm=warm))
    sent = 0

    def send(client: Client) -> None:
        nonlocal sent
        if compute.batches < batches:
            sent += 1
            size = 5.0 * 40 ** rng.random() if embed else 1.0
            driver.submit(Request(sent, b"", world.time_s, client, size=size))

    for _ in range(connections):
        send(Client(send))
    world.run()
    return {
        "batches": compute.batches,
        "requests": sent,
        "us_per_batch": clock.total_s / compute.batches * 1e6,
        "mean_rows": compute.rows / compute.batches,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
