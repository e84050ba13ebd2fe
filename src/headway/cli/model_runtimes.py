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
from headway.core.config import ModelConfig
from headway.executor.pool import WorkerPool
from headway.server.clock import LoopClock
from headway.server.monitor import Monitor

OnPhase = Callable[[ModelConfig, int, str, float, str], None]
"""Model, worker, phase, share of it done, detail."""


@dataclass(slots=True, eq=False)
class ModelRuntime:
    """One model being served."""

    config: ModelConfig
    pool: WorkerPool
    driver: BatchDriver
    clock: LoopClock
    monitor: Monitor


def start(
    models: Sequence[ModelConfig], loop: asyncio.AbstractEventLoop, on_phase: OnPhase
) -> list[ModelRuntime]:
    """Begin starting every model's workers; returns at once. Models on one device share a slot."""
    slots: dict[str, ComputeSlot] = {}
    found = []
    for config in models:
        slot = slots.setdefault(config.device, ComputeSlot())
        clock = LoopClock(loop)
        pool = WorkerPool(config)
        driver = BatchDriver(Batcher(config, slot), pool, clock)
        monitor = Monitor(driver, config.workers)
        driver.on_phase = _fan_out(config, monitor, on_phase)
        found.append(ModelRuntime(config, pool, driver, clock, monitor))
    for runtime in found:
        runtime.driver.neighbours = [
            other.driver
            for other in found
            if other is not runtime and other.config.device == runtime.config.device
        ]
        runtime.pool.start(runtime.driver)
    return found


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
