"""The seams between rooms: what a driver needs, what an executor offers, what a front end calls.

Types only. Rooms meet here as constructor arguments; nobody imports a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headway.core.batch import Batch, BatchResult, Form
from headway.core.events import Event
from headway.core.request import ItemResult, Request


class Scheduler(Protocol):
    """Time, as a driver is given it: the wall clock of an event loop, or a virtual one."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call once everything that is already due in this turn has been handled."""

    def at(self, when_s: float, callback: Callable[[], None]) -> None:
        """Arm the one timer of this driver, replacing an earlier one; `inf` disarms it."""


@dataclass(slots=True)
class TensorSpec:
    """One declared input or output. `shape` has the batch dimension first, -1 where any size will
    do."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class WarmRun:
    """One measured warm-up batch."""

    rows: int
    longest: float
    total: float
    run_s: float


@dataclass(slots=True)
class ModelInfo:
    """What a worker says of its model once it is loaded and warm."""

    name: str
    version: str = ""
    form: Form = "list"
    size_unit: str = "bytes"
    max_batch_size: int | None = None
    """The model's own word; the configuration wins over it."""
    padded_sizes: tuple[int, ...] = ()
    """Row counts the model can run (it pads up to the next); empty when any will do."""
    measures: bool = False
    """It has a `measure` of its own, so sizes are asked of a worker instead of counted in bytes."""
    streams: bool = False
    embeds: bool = False
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    schema_in: dict[str, object] = field(default_factory=dict)
    """JSON schema of one `/predict` body; empty when the model states none."""
    schema_out: dict[str, object] = field(default_factory=dict)
    warm: list[WarmRun] = field(default_factory=list)
    free_rows: int | None = None
    """floor(free memory after load / per-item memory / 1.2); None where it was not measured."""
    load_s: float = 0.0
    warmup_s: float = 0.0


@dataclass(slots=True)
class ModelStatus:
    """Where one model stands, as health routes and gauges tell it. A snapshot."""

    phase: str
    """`import`, `load`, `warmup`, `ready`, `lost` (no worker is up) or `failed` (for good)."""
    ready: bool = False
    share: float = 0.0
    """Of the phase that is done, in [0, 1]."""
    detail: str = ""
    error: str = ""
    """Why it failed, when it did."""
    info: ModelInfo | None = None
    workers: int = 0
    workers_up: int = 0
    waiting_requests: int = 0
    waiting_rows: int = 0
    running_requests: int = 0
    rows_max: int = 0
    """Rows one batch may hold now; 0 when unknown. Requests with more rows are sent in parts."""
    stalled_s: float = 0.0
    """Work is pending and nothing has moved for this long; 0 when idle or moving."""
    advice: str = ""
    """What a person should know about how batches form here."""
    curve: dict[str, object] = field(default_factory=dict)
    """What is known of the service curve, for people."""


@dataclass(slots=True)
class FrontStatus:
    """Where the HTTP front end stands, for gauges and health."""

    phase: str
    uptime_s: float
    connections: int
    in_flight: int
    loop_lag_s: float
    answers: dict[tuple[str, int], int]
    """HTTP answers so far by route and status."""


class WorkerSink(Protocol):
    """Where an executor reports. Every call comes on the driver's thread."""

    def worker_phase(self, worker: int, phase: str, share: float, detail: str) -> None:
        """Start-up moved on: phase `import`, `load` or `warmup`, `share` of it done in [0, 1]."""

    def worker_ready(self, worker: int, info: ModelInfo) -> None:
        """A worker is loaded and warm: it may be given batches."""

    def worker_lost(self, worker: int, code: str, message: str) -> None:
        """A worker died or was ended. Its batches are failed by the driver; it may come back."""

    def batch_started(self, batch_id: int) -> None:
        """Optional news: the worker began computing this batch (streams report their first
        chunk)."""

    def batch_done(self, batch_id: int, result: BatchResult) -> None:
        """All items of a batch that does not stream."""

    def chunk(self, batch_id: int, index: int, body: bytes) -> None:
        """One piece of the stream of item `index`."""

    def item_done(self, batch_id: int, index: int, result: ItemResult) -> None:
        """The stream of item `index` ended."""

    def measured(self, request_ids: Sequence[int], sizes: Sequence[float]) -> None:
        """Answers to `Executor.measure`."""


class Executor(Protocol):
    """Compute: one model on `workers` workers, numbered from 0."""

    workers: int

    def start(self, sink: WorkerSink) -> None:
        """Begin starting workers; returns at once."""

    def run(self, batch: Batch) -> None:
        """Hand a batch to `batch.worker`. A worker holds at most two: one running, one next."""

    def hear(self) -> None:
        """Report now what workers have said so far, without waiting for the event loop."""

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Item `index` of a batch has no reader any more: skip it if not begun, close its
        stream."""

    def measure(self, requests: Sequence[Request]) -> None:
        """Ask for sizes in the model's unit (only where `ModelInfo.measures`)."""

    def restart(self, worker: int, code: str, message: str) -> None:
        """End a worker that does not answer and start another (with back-off)."""

    async def close(self) -> None:
        """End every worker and leave nothing behind."""


class Runtime(Protocol):
    """What a front end calls to have a request served; it does not know the mode."""

    def submit(self, request: Request) -> None:
        """Serve it: `request.reply` hears the answer exactly once (also a refusal)."""

    def cancel(self, request: Request) -> None:
        """Nobody waits for it any more. A no-op on a finished request."""

    def ready(self) -> bool:
        """Can a request be served now?"""

    def saturating_rows(self) -> int:
        """Rows in flight that keep every worker busy: the batch it runs and the next one."""

    def drain(self) -> None:
        """Hold nothing back from now on."""

    def idle(self) -> bool:
        """Nothing waits and nothing runs."""

    def events(self) -> list[Event]:
        """Records since the last call; bounded, the oldest are dropped."""
