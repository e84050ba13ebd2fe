"""A stage for core tests: one model in virtual time, with every answer kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from headway.core.batch import Batch
from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.batcher.slot import ComputeSlot
from headway.core.config import ModelConfig
from headway.core.events import Event
from headway.core.ports import ModelInfo
from headway.core.request import ItemResult, Request
from headway.sim.compute import SimExecutor
from headway.sim.run_time import ServiceTime
from headway.sim.world import World


class Answer:
    """Keeps what a request was told, and when."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.chunks: list[bytes] = []
        self.result: ItemResult | None = None
        self.at_s = -1.0

    def chunk(self, body: bytes) -> None:
        self.chunks.append(body)

    def done(self, result: ItemResult) -> None:
        assert self.result is None, "answered twice"
        self.result = result
        self.at_s = self.stage.world.time_s


class Stage:
    """A batcher, its driver and simulated workers in one world."""

    def __init__(
        self,
        service: Callable[[Batch], float] | str = "5",
        *,
        world: World | None = None,
        slot: ComputeSlot | None = None,
        workers: int = 1,
        info: ModelInfo | None = None,
        start: bool = True,
        hop_s: float = 0.0,
        **settings: Any,
    ) -> None:
        self.world = world or World()
        settings.setdefault("name", "m")
        self.config = ModelConfig(**settings)
        self.info = info or ModelInfo(name=self.config.name)
        if isinstance(service, str):
            service = ServiceTime.parse(service, self.info.form)
        self.executor = SimExecutor(
            self.world, service, workers=workers, info=self.info, hop_s=hop_s
        )
        self.batcher = Batcher(self.config, slot)
        self.driver = BatchDriver(self.batcher, self.executor, self.world.scheduler())
        self.events: list[Event] = []
        self.driver.listeners.append(self.events.append)
        self.batches: list[Batch] = []
        run = self.executor.run

        def keep(batch: Batch) -> None:
            self.batches.append(batch)
            run(batch)

        self.executor.run = keep  # type: ignore[method-assign]
        self.next_id = 0
        if start:
            self.executor.start(self.driver)

    def ask(self, **fields: Any) -> tuple[Request, Answer]:
        """A request arrives now."""
        self.next_id += 1
        answer = Answer(self)
        request = Request(
            id=self.next_id,
            payload=fields.pop("payload", b"{}"),
            arrival_s=self.world.time_s,
            reply=answer,
            **fields,
        )
        self.driver.submit(request)
        return request, answer

    def ask_at(self, when_s: float, **fields: Any) -> list[tuple[Request, Answer]]:
        """A request arrives later; the returned list is filled then."""
        box: list[tuple[Request, Answer]] = []
        self.world.plan(when_s, lambda: box.append(self.ask(**fields)))
        return box

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch, in order."""
        return [batch.rows for batch in self.batches]


def pair(light: str, heavy: str, **heavy_settings: object) -> tuple[World, Stage, Stage]:
    """Two models that share one device."""
    world, slot = World(), ComputeSlot()
    a = Stage(light, world=world, slot=slot, name="light", start=False)
    b = Stage(heavy, world=world, slot=slot, name="heavy", start=False, **heavy_settings)
    for mine, other in ((a, b), (b, a)):
        mine.driver.neighbours.append(other.driver)
    for stage in (a, b):
        stage.executor.start(stage.driver)
    return world, a, b


def overlaps(*stages: Stage) -> int:
    """Pairs of batches that ran at the same time."""
    spans = []
    for stage in stages:
        finished = {e.batch_id: e.now for e in stage.events if hasattr(e, "run_s")}
        spans += [(b.closed_s, finished[b.id]) for b in stage.batches if b.id in finished]
    spans.sort()
    return sum(later[0] < sooner[1] - 1e-12 for sooner, later in pairwise(spans))
