"""Compute in virtual time: workers that take as long as a service time says.

Knows batches and time; must not know how anything is decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from headway.core.batch import Batch, BatchResult
from headway.core.ports import ModelInfo, WorkerSink
from headway.core.request import ItemResult, Request
from headway.sim.world import Timeline

_OK = ItemResult(200, b"")
"""Every item's answer: nothing here looks at its body."""


class SimExecutor:
    """The port `Executor` in virtual time. A worker runs its batches one after the other."""

    def __init__(
        self,
        world: Timeline,
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
        """Device time used so far, also by batches that were lost."""
        self._sink: WorkerSink | None = None
        self._queues: list[deque[Batch]] = [deque() for _ in range(workers)]
        self._began_s = [0.0] * workers
        self._up = [False] * workers
        self._epoch = [0] * workers

    def start(self, sink: WorkerSink) -> None:
        """All workers are ready at once."""
        self._sink = sink
        for worker in range(self.workers):
            self.revive(worker)

    def run(self, batch: Batch) -> None:
        """Queue a batch on its worker."""
        queue = self._queues[batch.worker]
        queue.append(batch)
        if len(queue) == 1:
            self._begin(batch, self.hop_s)

    def hear(self) -> None:
        """Workers here are heard the moment they speak."""

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Work that has begun goes on."""

    def measure(self, requests: Sequence[Request]) -> None:
        """Sizes are known from the start here."""

    def restart(self, worker: int, code: str, message: str) -> None:
        """The worker dies and a fresh one is there at once."""
        self.crash(worker, code, message)
        self.revive(worker)

    def crash(self, worker: int, code: str = "worker_crashed", message: str = "crash") -> None:
        """The worker dies with what it holds; a no-op on one that is down."""
        if not self._up[worker]:
            return
        if self._queues[worker]:
            self.busy_s += max(0.0, self.world.time_s - self._began_s[worker])
        self._queues[worker].clear()
        self._epoch[worker] += 1
        self._up[worker] = False
        assert self._sink is not None
        self._sink.worker_lost(worker, code, message)

    def revive(self, worker: int) -> None:
        """The worker is ready; a no-op on one that is up."""
        if not self._up[worker]:
            self._up[worker] = True
            assert self._sink is not None
            self._sink.worker_ready(worker, self.info)

    async def close(self) -> None:
        """Nothing to end."""

    def _begin(self, batch: Batch, hop_s: float) -> None:
        run_s = self.service_s(batch)
        epoch = self._epoch[batch.worker]
        begin_s = self.world.time_s + hop_s
        self._began_s[batch.worker] = begin_s
        self.world.plan(begin_s + run_s, lambda: self._end(batch, run_s, epoch))

    def _end(self, batch: Batch, run_s: float, epoch: int) -> None:
        if epoch != self._epoch[batch.worker]:
            return
        self.busy_s += run_s
        queue = self._queues[batch.worker]
        queue.popleft()
        if queue:
            self._begin(queue[0], 0.0)
        assert self._sink is not None
        self._sink.batch_done(batch.id, BatchResult([_OK] * len(batch.requests), run_s))
