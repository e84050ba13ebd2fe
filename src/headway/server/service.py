"""What one replica serves: its models, their state, and the counters every route shares.

Knows models as `core.ports.Runtime` plus a status call; must not know sockets, and must not know
how a runtime batches.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Protocol

from headway.core.config import Config, ModelConfig
from headway.core.errors import UserError
from headway.core.events import Advice, BatchClosed, BatchFinished, Event
from headway.core.ports import FrontStatus, ModelInfo, ModelStatus, Runtime
from headway.core.request import Request
from headway.core.wire.problem import Dialect
from headway.server.exchange import Exchange
from headway.server.model_stats import ModelStats

log = logging.getLogger("headway.server")


class Meters(Protocol):
    """Where event records become metrics (`obs.prometheus.Meters`)."""

    content_type: str

    def observe(self, events: Iterable[Event]) -> None:
        """Count some records, in order."""

    def render(self, models: dict[str, ModelStatus], front: FrontStatus) -> bytes:
        """The whole exposition."""


class ModelView(Protocol):
    """What the front end may know of a model (`monitor.Monitor`)."""

    @property
    def info(self) -> ModelInfo | None:
        """What the workers said of it; None until one has been ready."""

    @property
    def rows_max(self) -> int:
        """Rows one batch may hold; 0 when unknown."""

    def status(self) -> ModelStatus:
        """A snapshot of everything."""


@dataclass(slots=True, eq=False)
class Served:
    """One model as the front end sees it."""

    config: ModelConfig
    runtime: Runtime
    view: ModelView
    gates: bool = True
    """The server is ready only while this model is (H12: models loaded later do not gate)."""
    started: bool = False
    """It has been ready once."""
    stats: ModelStats = field(default_factory=ModelStats)

    @property
    def name(self) -> str:
        return self.config.name


@dataclass(slots=True, eq=False)
class HotRoute:
    """A route that hands a body to a model."""

    label: str
    """Its name in metrics."""
    dialect: Dialect
    handle: Callable[[Exchange], None]
    served: Served | None = None
    """None where the body names the model."""
    answered: int = 0
    """Plain 200s of the fast lane, counted here because it is cheapest."""


@dataclass(slots=True, eq=False)
class Record:
    """A recent batch: how it formed and, once it came back, how it ran."""

    closed: BatchClosed
    finished: BatchFinished | None = None


@dataclass(eq=False)
class Service:
    """Everything the routes of one replica share. All on the event loop's thread."""

    config: Config
    models: dict[str, Served]
    meters: Meters
    version: str = ""
    now: Callable[[], float] = time.monotonic
    phase: str = "starting"
    """`starting`, `serving`, `lingering` (not ready, still serving), `draining`, `failed`."""
    late: bool = False
    """The event loop runs later than `loop_lag_s_max`."""
    loop_lag_s: float = 0.0
    in_flight: int = 0
    connections: int = 0
    failure: str = ""
    answers: dict[tuple[str, int], int] = field(default_factory=dict)
    history: deque[Record] = field(default_factory=deque)
    advice: dict[tuple[str, str], str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Where each setting came from, by `server.key` or `model name.key`."""
    last_id: int = 0
    """The newest request's number."""
    hot: dict[bytes, HotRoute] = field(default_factory=dict)
    """Exact targets of the fast lane."""

    def __post_init__(self) -> None:
        self.empty_info = ModelInfo("")
        self.boot = token_hex(4) + "-"
        self.started_s = self.now()
        self.created_s = int(time.time())
        self.history = deque(maxlen=self.config.server.history_batches)
        self._open: dict[tuple[str, int], Record] = {}

    # hot path

    def next_trace(self) -> str:
        """A request id for a client that sent none."""
        self.last_id += 1
        return f"{self.boot}{self.last_id:x}"

    def submit(self, served: Served, request: Request) -> None:
        """Hand one request to its model."""
        if not served.started:
            self.check_started(served)
        served.runtime.submit(request)

    def count(self, label: str, status: int) -> None:
        """One more HTTP answer."""
        key = (label, status)
        self.answers[key] = self.answers.get(key, 0) + 1

    def refusal(self) -> UserError | None:
        """Why a new request must be refused before its body is read; None to let it in.

        A late loop takes no more than keeps the workers busy: shedding all would serve nobody for
        as long as the load lasts, since even refusing much can keep a loop late.
        """
        if self.phase == "draining":
            return UserError(
                503,
                "draining",
                "the server is shutting down",
                hint="use another replica",
                retry_after_s=1.0,
            )
        if self.late and self.in_flight >= self._saturating_rows():
            return UserError(
                503,
                "front_end_late",
                f"the front end runs {self.loop_lag_s:.2f} s late",
                hint="send less, or run more replicas (loop_lag_s_max)",
                retry_after_s=max(1.0, self.loop_lag_s),
            )
        return None

    def _saturating_rows(self) -> int:
        return sum(served.runtime.saturating_rows() for served in self.models.values())

    # models

    def find(self, name: str, version: str = "") -> Served:
        """The model of that name. Raises UserError 404 naming the models there are."""
        served = self.models.get(name)
        if served is None:
            raise unknown_model(name, self.models)
        if version:
            info = served.view.info
            have = info.version if info else ""
            if version != have:
                raise UserError(
                    404,
                    "model_not_found",
                    f"model {name!r} has no version {version!r}",
                    hint=f"it has version {have!r}" if have else "it has no versions",
                    param="model",
                )
        return served

    def only(self) -> Served:
        """The one model there is. Raises UserError 404 where the path must name one."""
        if len(self.models) == 1:
            return next(iter(self.models.values()))
        raise UserError(
            404,
            "model_not_named",
            "this server has several models",
            hint="POST /predict/{model} with one of: " + ", ".join(self.models),
        )

    def check_started(self, served: Served) -> None:
        """Raise UserError 503 with the phase while a model has not been ready yet."""
        if served.runtime.ready():
            served.started = True
            return
        raise not_ready(served.name, served.view.status())

    # health

    def model_ready(self, served: Served) -> bool:
        """Can this model serve now?"""
        ready = served.runtime.ready()
        served.started = served.started or ready
        return ready

    def ready(self) -> bool:
        """May balancers send work here? No model known is not ready (H4)."""
        if self.phase in {"lingering", "draining", "failed"}:
            return False
        gating = [s for s in self.models.values() if s.gates]
        return bool(gating) and all(self.model_ready(s) for s in gating)

    def stalled(self) -> list[str]:
        """Models with work pending and no progress for longer than `live_stall_s` (H1)."""
        limit = self.config.server.live_stall_s
        return [s.name for s in self.models.values() if s.view.status().stalled_s > limit]

    def started(self) -> bool:
        """Have all gating models been ready once?"""
        gating = [s for s in self.models.values() if s.gates]
        for s in gating:
            if not s.started:
                self.model_ready(s)
        return bool(gating) and all(s.started for s in gating)

    # records

    def pump(self) -> None:
        """Take the runtimes' event records: count them and keep the recent batches."""
        for served in self.models.values():
            events = served.runtime.events()
            if events:
                self.meters.observe(events)
                served.stats.observe(events)
                self._remember(events)
        if self.phase == "starting" and self.started():
            self.phase = "serving"

    def _remember(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, BatchClosed):
                record = Record(event)
                if self.history.maxlen and len(self.history) == self.history.maxlen:
                    gone = self.history[0].closed
                    self._open.pop((gone.model, gone.batch_id), None)
                self.history.append(record)
                if self.history:
                    self._open[event.model, event.batch_id] = record
            elif isinstance(event, BatchFinished):
                known = self._open.pop((event.model, event.batch_id), None)
                if known is not None:
                    known.finished = event
            elif isinstance(event, Advice):
                self.advice[event.model, event.code] = event.text

    def settle(self) -> None:
        """Move the fast lane's counts to where they outlive its routes."""
        for route in self.hot.values():
            if route.answered:
                key = (route.label, 200)
                self.answers[key] = self.answers.get(key, 0) + route.answered
                route.answered = 0

    def front_status(self) -> FrontStatus:
        """A snapshot for gauges."""
        self.settle()
        return FrontStatus(
            self.phase,
            self.now() - self.started_s,
            self.connections,
            self.in_flight,
            self.loop_lag_s,
            dict(self.answers),
        )

    def log_bug(self, label: str) -> None:
        """A fault of ours: the traceback goes to the log once, the client hears 500."""
        log.exception("unexpected error on route %s", label)


def unknown_model(name: str, models: Iterable[str]) -> UserError:
    """404 that names the models there are."""
    return UserError(
        404,
        "model_not_found",
        f"no model {name!r} here",
        hint="this server has: " + (", ".join(models) or "no model"),
        param="model",
    )


def not_ready(name: str, status: ModelStatus) -> UserError:
    """503 with the phase in words and in the hint."""
    if status.phase == "failed":
        return UserError(
            503,
            "model_failed",
            f"model {name!r} failed to start: {status.error}",
            hint="see the server's log",
            retry_after_s=30.0,
        )
    percent = round(status.share * 100)
    return UserError(
        503,
        "starting" if status.phase != "lost" else "not_ready",
        f"model {name!r} is not ready: {status.phase} {percent} %",
        hint="GET /startupz shows the phase",
        retry_after_s=1.0,
    )
