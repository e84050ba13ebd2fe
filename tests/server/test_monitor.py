"""What the front end says of a real driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.core.batch import Batch, BatchResult
from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import ModelConfig
from headway.core.ports import ModelInfo, WorkerSink
from headway.core.request import ItemResult, Request
from headway.server.monitor import Monitor


class Still:
    """A clock that moves when told, and an executor that keeps what it is given."""

    workers = 1

    def __init__(self) -> None:
        self.time = 100.0
        self.calls: list[Callable[[], None]] = []
        self.batches: list[Batch] = []

    def now(self) -> float:
        return self.time

    def soon(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)

    def at(self, when_s: float, callback: Callable[[], None]) -> None: ...

    def start(self, sink: WorkerSink) -> None: ...

    def run(self, batch: Batch) -> None:
        self.batches.append(batch)

    def hear(self) -> None: ...
    def cancel(self, worker: int, batch_id: int, index: int) -> None: ...

    def measure(self, requests: Sequence[Request]) -> None: ...

    def restart(self, worker: int, code: str, message: str) -> None: ...

    async def close(self) -> None: ...


class Silent:
    def chunk(self, body: bytes) -> None: ...

    def done(self, result: ItemResult) -> None: ...


def test_phases_queue_and_stall_are_told() -> None:
    still = Still()
    driver = BatchDriver(Batcher(ModelConfig(name="m")), still, still)
    monitor = Monitor(driver, workers=1)
    assert (monitor.status().phase, monitor.info) == ("import", None)
    driver.worker_phase(0, "load", 0.5, "weights")
    status = monitor.status()
    assert (status.phase, status.share, status.detail, status.ready) == (
        "load",
        0.5,
        "weights",
        False,
    )
    driver.worker_ready(0, ModelInfo("m", version="3"))
    status = monitor.status()
    assert (status.phase, status.ready, status.workers_up) == ("ready", True, 1)
    assert monitor.info is not None
    assert monitor.info.version == "3"
    assert monitor.rows_max == 64
    driver.submit(Request(1, b"x", still.time, Silent()))
    assert monitor.status().waiting_requests == 1
    while still.calls:
        still.calls.pop()()
    still.time += 9.0
    status = monitor.status()
    assert (status.running_requests, status.waiting_requests) == (1, 0)
    assert status.stalled_s == 9.0
    driver.batch_done(still.batches[0].id, BatchResult([ItemResult(200, b"")], 0.1))
    assert monitor.status().stalled_s == 0.0


def test_a_lost_worker_and_a_failed_start_are_told() -> None:
    still = Still()
    driver = BatchDriver(Batcher(ModelConfig(name="m")), still, still)
    monitor = Monitor(driver, workers=1)
    driver.worker_ready(0, ModelInfo("m"))
    driver.worker_lost(0, "worker_crashed", "gone")
    assert monitor.status().phase == "lost"
    driver.worker_phase(0, "load", 0.1, "again")
    assert monitor.status().phase == "load"
    monitor.phase(0, "failed", 0.0, "no such file")
    status = monitor.status()
    assert (status.phase, status.error) == ("failed", "no such file")
