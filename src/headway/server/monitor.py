"""A driver's state as the front end tells it: phase, queue, workers.

Knows `BatchDriver` from outside; must not change what it does.
"""

from __future__ import annotations

from headway.core.batcher.driver import BatchDriver
from headway.core.ports import ModelInfo, ModelStatus


class Monitor:
    """Watches one driver's start-up and makes snapshots of it."""

    def __init__(self, driver: BatchDriver, workers: int) -> None:
        self._driver = driver
        self._workers = workers
        self._phase = "import"
        self._share = 0.0
        self._detail = ""
        self._error = ""
        self._been_ready = False
        driver.on_phase = self.phase

    def phase(self, worker: int, phase: str, share: float, detail: str) -> None:
        """Start-up moved on. `failed` with the cause in `detail` is final."""
        if phase == "failed":
            self._error = detail
        self._phase, self._share, self._detail = phase, share, detail
        self._been_ready = self._been_ready or phase == "ready"

    @property
    def info(self) -> ModelInfo | None:
        """What the workers said of the model; None until one is ready."""
        return self._driver.batcher.info if self._been_ready else None

    @property
    def rows_max(self) -> int:
        """Rows one batch may hold."""
        return self._driver.batcher.sizing.rows_max

    def status(self) -> ModelStatus:
        """A snapshot."""
        driver = self._driver
        batcher = driver.batcher
        up = batcher.lanes.up
        phase = "failed" if self._error and not up else self._phase
        if up:
            phase = "ready"
        elif self._been_ready and phase == "ready":
            phase = "lost"
        running = sum(len(b.requests) for b in batcher.running.values())
        return ModelStatus(
            phase=phase,
            ready=up > 0,
            share=1.0 if up else self._share,
            detail=self._detail,
            error=self._error,
            info=self.info,
            workers=self._workers,
            workers_up=up,
            waiting_requests=batcher.room.requests,
            waiting_rows=batcher.room.rows,
            running_requests=running,
            rows_max=self.rows_max,
            stalled_s=batcher.stalled_s(driver.scheduler.now()),
            advice=batcher.advice() or "",
            curve={
                "policy": batcher.policy_name,
                "rows_max_origin": batcher.sizing.origin,
                "best_rows": batcher.sizing.best_rows(batcher.room.mean_size or 1.0),
                "rates": batcher.curve.rates(1.0, batcher.sizing.rows_max),
            },
        )
