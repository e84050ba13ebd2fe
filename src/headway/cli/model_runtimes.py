"""Every model's worker pool, batcher and driver, started before the front end is imported.

Workers import the user's model while this process imports the web server. Knows how a model's parts
fit together; must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.batcher.slot import ComputeSlot
from headway.core.config import Config, ModelConfig
from headway.executor.pool import Pool
from headway.server.clock import LoopClock
from headway.server.monitor import Monitor

OnPhase = Callable[[ModelConfig, int, str, float, str], None]
"""Model, worker, phase, share of it done, detail."""


@dataclass(slots=True, eq=False)
class ModelRuntime:
    """One model being served."""

    config: ModelConfig
    pool: Pool
    driver: WatchedDriver
    clock: LoopClock
    monitor: Monitor


class WatchedDriver(BatchDriver):
    """A driver that is not ready while every worker is silent, be it frozen or stopped (H1)."""

    def __init__(
        self, batcher: Batcher, pool: Pool, clock: LoopClock, *, silent_s_max: float
    ) -> None:
        super().__init__(batcher, pool, clock)
        self._pool = pool
        self._silent_s_max = silent_s_max

    def ready(self) -> bool:
        """Can a request be served now?"""
        lanes = self.batcher.lanes.all.values()
        return any(
            lane.up and self._pool.silent_s(lane.worker) <= self._silent_s_max for lane in lanes
        )


def start(config: Config, loop: asyncio.AbstractEventLoop, on_phase: OnPhase) -> list[ModelRuntime]:
    """Begin starting every model's workers; returns at once. Models on one device share a slot."""
    slots: dict[str, ComputeSlot] = {}
    found = []
    for model in config.models:
        slot = slots.setdefault(model.device, ComputeSlot())
        found.append(_make(model, config.server.ready_stall_s, slot, loop, on_phase))
    for runtime in found:
        runtime.driver.neighbours = [
            other.driver
            for other in found
            if other is not runtime and other.config.device == runtime.config.device
        ]
        runtime.pool.start(runtime.driver)
    return found


def _make(
    model: ModelConfig,
    silent_s_max: float,
    slot: ComputeSlot,
    loop: asyncio.AbstractEventLoop,
    on_phase: OnPhase,
) -> ModelRuntime:
    clock = LoopClock(loop)
    pool = Pool(model, on_failed=lambda text: driver.on_phase(0, "failed", 1.0, text))
    driver = WatchedDriver(Batcher(model, slot), pool, clock, silent_s_max=silent_s_max)
    monitor = Monitor(driver, model.workers)
    driver.on_phase = _fan_out(model, monitor, on_phase)
    return ModelRuntime(model, pool, driver, clock, monitor)


async def close(runtimes: Sequence[ModelRuntime]) -> None:
    """End every worker and leave nothing behind."""
    await asyncio.gather(*(r.pool.close() for r in runtimes))
    for r in runtimes:
        r.clock.close()


def _fan_out(
    config: ModelConfig, monitor: Monitor, on_phase: OnPhase
) -> Callable[[int, str, float, str], None]:
    def told(worker: int, phase: str, share: float, detail: str) -> None:
        monitor.phase(worker, phase, share, detail)
        on_phase(config, worker, phase, share, detail)

    return told
