"""Compute in virtual time: workers that take as long as a service time says.

Knows batches and the world; must not know how anything is decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from headway.core.batch import Batch, BatchResult
from headway.core.ports import ModelInfo, WorkerSink
from headway.core.request import ItemResult, Request
from headway.sim.world import World


class SimExecutor:
    """The port `Executor` in virtual time. A worker runs its batches one after the other."""

    def __init__(
        self,
        world: World,
        service_s: Callable[[Batch], float],
        *,
        workers: int = 1,
        info: ModelInfo | None = None,
        hop_s: float = 0.0,
    ) -> None:
        self.world = world
        self.service_s = service_s
        self.workers = workers
        self.info = info or ModelInfo(name="sim")
        self.hop_s = hop_s
        self.busy_s = 0.0
        """Device time used so far."""
        self._sink: WorkerSink | None = None
        self._queues: list[deque[Batch]] = [deque() for _ in range(workers)]
        self._epoch = [0] * workers

    def start(self, sink: WorkerSink) -> None:
        """All workers are ready at once."""
        self._sink = sink
        for worker in range(self.workers):
            sink.worker_ready(worker, self.info)

    def run(self, batch: Batch) -> None:
        """Queue a batch on its worker."""
        queue = self._queues[batch.worker]
        queue.append(batch)
        if len(queue) == 1:
            self._begin(batch, self.hop_s)

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Work that has begun goes on."""

    def measure(self, requests: Sequence[Request]) -> None:
        """Sizes are known from the start here."""

    def restart(self, worker: int, code: str, message: str) -> None:
        """The worker dies and a fresh one is there at once."""
        self.crash(worker, code, message)
        assert self._sink is not None
        self._sink.worker_ready(worker, self.info)

    def crash(self, worker: int, code: str = "worker_crashed", message: str = "crash") -> None:
        """The worker dies with what it holds."""
        self._queues[worker].clear()
        self._epoch[worker] += 1
        assert self._sink is not None
        self._sink.worker_lost(worker, code, message)

    async def close(self) -> None:
        """Nothing to end."""

    def _begin(self, batch: Batch, hop_s: float) -> None:
        run_s = self.service_s(batch)
        epoch = self._epoch[batch.worker]
        self.busy_s += run_s
        when_s = self.world.time_s + hop_s + run_s
        self.world.plan(when_s, lambda: self._end(batch, run_s, epoch))

    def _end(self, batch: Batch, run_s: float, epoch: int) -> None:
        if epoch != self._epoch[batch.worker]:
            return
        queue = self._queues[batch.worker]
        queue.popleft()
        if queue:
            self._begin(queue[0], 0.0)
        items = [ItemResult(200, b"") for _ in batch.requests]
        assert self._sink is not None
        self._sink.batch_done(batch.id, BatchResult(items, run_s))
