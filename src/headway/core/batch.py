"""A batch: requests that run together, and what came back.

Knows how size adds up in a batch (padded or packed); must not know how a worker runs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headway.core.request import ItemResult, Request

Form = Literal["list", "padded", "packed"]
"""How a model lays a batch out: as a list (sizes do not matter to each other), padded to the
longest, or packed."""


class Close(StrEnum):
    """Why a batch closed. Stable words: metrics, explain and tests use them."""

    FULL = "full"
    """It reached the row cap."""
    BEST_SIZE = "best_size"
    """It reached b*, the measured size with the best throughput."""
    BUDGET = "budget"
    """One more would exceed the budget of padded size."""
    UNLIKE = "unlike"
    """What else waited is of a different size; together they would cost more than apart."""
    BUCKET = "bucket"
    """Rounded down to the largest full padded size."""
    SLOT = "slot"
    """Cut so that another model on the device waits at most `slot_time_ms_max`."""
    IDLE = "idle"
    """A worker was idle: everything that waited went."""
    HOLD = "hold"
    """The short hold after a reply ran out."""
    WINDOW = "window"
    """The static window ran out."""
    DEADLINE = "deadline"
    """Waiting longer would have made a member late."""
    DRAIN = "drain"
    """The server is shutting down; nothing is held back."""


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run together on one worker."""

    id: int
    model: str
    worker: int
    requests: list[Request]
    rows: int
    longest: float
    """Size of the largest row."""
    total: float
    """Sum of sizes over rows."""
    opened_s: float
    """When its oldest member arrived."""
    closed_s: float
    reason: Close
    predicted_s: float = 0.0
    """Predicted run time when it closed; 0 when the curve knew nothing yet."""
    waiting_rows: int = 0
    """Rows left waiting when it closed."""
    padded_rows: int = 0
    """Rows added so that the row count is one the model allows (B7)."""
    remaining_rows: int = 0
    """Rows not yet answered; a stream's members end one by one."""
    errors: int = 0
    """Streams that ended in an error so far."""

    def padded(self, form: Form) -> float:
        """Size units the device computes: rows x longest where padded, the plain sum otherwise."""
        return (self.rows + self.padded_rows) * self.longest if form == "padded" else self.total


@dataclass(slots=True)
class BatchResult:
    """What a worker reports for a batch, items in batch order."""

    items: list[ItemResult]
    run_s: float
    """Time in `predict`."""
    decode_s: float = 0.0
    encode_s: float = 0.0


def padding_waste(padded: float, useful: float) -> float:
    """Share of computed size units that carried no data, in [0, 1)."""
    return 0.0 if padded <= 0 else max(0.0, 1.0 - useful / padded)


def totals(requests: Iterable[Request]) -> tuple[int, float, float]:
    """Rows, largest size and total size of some requests."""
    rows, longest, total = 0, 0.0, 0.0
    for r in requests:
        rows += r.rows
        longest = max(longest, r.size)
        total += r.size * r.rows
    return rows, longest, total
