"""Event records: the one stream that metrics, explain, the simulator's report and replay read.

Each carries the `now` of the input that caused it. Records are values; nobody changes one after it
is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.batch import Close


@dataclass(slots=True)
class BatchClosed:
    """A batch was formed and handed over."""

    now: float
    model: str
    batch_id: int
    worker: int
    rows: int
    requests: int
    longest: float
    total: float
    padded_rows: int
    opened_s: float
    reason: Close

    predicted_s: float
    waiting_rows: int
    ids: tuple[int, ...]
    waits_s: tuple[float, ...]
    """How long each member waited, in member order."""


@dataclass(slots=True)
class BatchFinished:
    """A batch came back, or was lost with its worker (`ok` False)."""

    now: float
    model: str
    batch_id: int
    worker: int
    rows: int
    ok: bool
    run_s: float
    decode_s: float
    encode_s: float
    padded: float
    useful: float
    errors: int
    latencies_s: tuple[float, ...]
    """Arrival to answer of each member that was still wanted."""
    late: int
    """Members answered after their deadline or the objective."""


@dataclass(slots=True)
class Refused:
    """A request was turned away before it ran."""

    now: float
    model: str
    request_id: int
    code: str
    waited_s: float


@dataclass(slots=True)
class Cancelled:
    """Nobody waited any more."""

    now: float
    model: str
    request_id: int
    running: bool


@dataclass(slots=True)
class WorkerChanged:
    """A worker came, went or was replaced."""

    now: float
    model: str
    worker: int
    up: bool
    reason: str


@dataclass(slots=True)
class Advice:
    """Something a person should know about how batches form here (B3, O8)."""

    now: float
    model: str
    code: str
    text: str


Event = BatchClosed | BatchFinished | Refused | Cancelled | WorkerChanged | Advice
