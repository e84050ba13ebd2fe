"""A runtime that answers inline or when told, for tests of the front end."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.config import Config, ModelConfig, ServerConfig
from headway.core.events import Event
from headway.core.ports import ModelInfo, ModelStatus
from headway.core.request import ItemResult, Request
from headway.obs.prometheus import Meters
from headway.server.service import Served, Service


class ToyRuntime:
    """Answers with the body unless `hold` is set; then tests answer through `waiting`."""

    def __init__(self, answer: Callable[[Request], ItemResult] | None = None) -> None:
        self.answer = answer or (lambda r: ItemResult(200, r.payload))
        self.hold = False
        self.up = True
        self.drained = False
        self.waiting: list[Request] = []
        self.cancelled: list[Request] = []
        self.seen: list[Request] = []
        self.records: list[Event] = []
        self.info: ModelInfo | None = ModelInfo("m")
        self.rows_max = 64
        self.phase = "ready"
        self.stalled_s = 0.0

    def submit(self, request: Request) -> None:
        self.seen.append(request)
        if self.hold:
            self.waiting.append(request)
        else:
            request.reply.done(self.answer(request))

    def cancel(self, request: Request) -> None:
        self.cancelled.append(request)
        if request in self.waiting:
            self.waiting.remove(request)

    def release(self, at: int = 0, result: ItemResult | None = None) -> None:
        request = self.waiting.pop(at)
        request.reply.done(result or self.answer(request))

    def ready(self) -> bool:
        return self.up

    def saturating_rows(self) -> int:
        return 1

    def drain(self) -> None:
        self.drained = True

    def idle(self) -> bool:
        return not self.waiting

    def events(self) -> list[Event]:
        records, self.records = self.records, []
        return records

    def status(self) -> ModelStatus:
        return ModelStatus(
            self.phase,
            self.up,
            info=self.info,
            workers=1,
            workers_up=int(self.up),
            waiting_requests=len(self.waiting),
            rows_max=self.rows_max,
            stalled_s=self.stalled_s,
        )


def make_service(*runtimes: ToyRuntime, names: str = "m", **settings: object) -> Service:
    """A service of models called `m`, `n`, ... over these runtimes."""
    server = ServerConfig(**{"port": 0, **settings})  # type: ignore[arg-type]
    models = {}
    for name, runtime in zip(names, runtimes, strict=False):
        models[name] = Served(ModelConfig(name=name), runtime, runtime)
    config = Config(server, tuple(s.config for s in models.values()))
    return Service(config, models, Meters(), "0.1")
