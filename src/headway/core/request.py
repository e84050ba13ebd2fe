"""A request: what a client asked once, as the core sees it.

Knows sizes, times and who waits for the answer; must not know how bodies are parsed or where they
came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Protocol


class Codec(IntEnum):
    """How a worker reads an item's bytes and writes its answer."""

    JSON = 0
    """Any JSON value in, JSON out (`POST /predict` with `application/json`)."""
    RAW = 1
    """Any bytes in, bytes or JSON out (`POST /predict` with another content type)."""
    TENSORS = 2
    """Open Inference Protocol tensors, framed by `core.wire.oip`."""
    EMBED = 3
    """One text (or token ids) for `/v1/embeddings` as JSON; little-endian float32 bytes out."""


class State(IntEnum):
    """Where a request is. Every ending is reached once and releases what the request held."""

    NEW = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3
    CANCELLED = 4


@dataclass(slots=True)
class ItemResult:
    """One request's answer: `status` 200 carries `body`, any other a message as UTF-8 in `body`."""

    status: int
    body: bytes
    content_type: str = "application/json"
    code: str = ""
    hint: str = ""
    retry_after_s: float | None = None
    size: float = 0.0
    """Size in the model's unit as the worker measured it; 0 when it did not."""


class Reply(Protocol):
    """Whoever waits for a request. `done` comes exactly once, unless the request was cancelled."""

    def chunk(self, body: bytes) -> None:
        """One piece of a streamed answer."""

    def done(self, result: ItemResult) -> None:
        """The answer, or for a stream its end (`result.body` is then empty on success)."""


@dataclass(slots=True, eq=False)
class Request:
    """One request. Times are seconds on the owner's monotonic clock; they never cross a process."""

    id: int
    payload: bytes
    arrival_s: float
    reply: Reply
    codec: Codec = Codec.JSON
    content_type: str = ""
    rows: int = 1
    """Rows of the batch dimension it fills; 1 for everything but tensors."""
    size: float = 1.0
    """In the model's size unit, per row (the longest row): bytes unless the model measures."""
    priority: int = 0
    """Triton's meaning: 1 is highest, 0 asks for the default level."""
    tenant: str = ""
    deadline_s: float = inf
    """Absolute time by which the client wants the answer; `inf` when it named none."""
    expires_s: float = inf
    """Absolute time after which it may no longer wait in the queue."""
    trace: str = ""
    """The client's X-Request-Id, or ours."""
    attempts: int = 0
    """Times it was handed to a worker."""
    state: State = State.NEW
    level: int = 0
    """Priority level it waits at, 1 first."""
    due_s: float = 0.0
    """What orders it inside its level: arrival, or the time it must be answered by."""
    place: int = 0
    """Size class it waits in."""
    batch_id: int = -1
    index: int = 0
    """Position in its batch."""
    started_s: float = -1.0
    ended_s: float = -1.0
    """When its stream ended; -1 where the batch's end is its own."""
    demoted: bool = False
    """Past its time-out under DELAY, or bound to be late: served after all who can be on time."""

    @property
    def bytes(self) -> int:
        """Bytes this request holds in memory while it waits."""
        return len(self.payload)
