"""Who may wait: bounds on the queue, and a promise's budget of late answers.

Each check returns None or the refusal, with what was wrong, the limit's name and when to come back.
Knows counts and predicted times; must not know HTTP. Source of the budget: an objective of p99
allows one answer in a hundred to be late, so a request predicted late is turned away only when that
allowance is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.core.request import Request

LATE_BUDGET_MAX = 10.0
"""Late answers the budget can save up, or owe."""
PLANNED_SHARE = 0.9
"""Share of the allowance given out on purpose; the rest is for lateness that nobody foresees."""
LONG_WAIT_SHARE = 0.2
"""A refusal is late when it comes after more than this share of the time there was."""
LONG_REFUSALS = 0.005
"""Share of refusals that may be late."""
OVERLOAD_S = 1.0
"""How long after a refusal overload is assumed to last."""
SIGMA_MIN = 0.05
"""Run times are never trusted closer than this share."""
DEVIATIONS_STEP, DEVIATIONS_MIN, DEVIATIONS_MAX = 0.5, 0.5, 10.0


@dataclass(slots=True)
class QueueView:
    """What admission may know about the queue."""

    requests: int
    rows: int
    bytes: int
    size: float
    drain_s: float
    """Predicted time until all that waits and runs is done."""


class LateBudget:
    """Counts how many late answers the objective still allows."""

    def __init__(self, late_share_max: float) -> None:
        self.late_share_max = late_share_max
        self.left = 0.0

    def earn(self, on_time: int) -> None:
        """So many requests were answered in time."""
        earned = on_time * self.late_share_max * PLANNED_SHARE
        self.left = min(self.left + earned, LATE_BUDGET_MAX)

    def spend(self) -> bool:
        """Take one late answer out of the budget; False when it is empty."""
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def owe(self, late: int) -> None:
        """So many were late without being asked: nobody else may be until that is made up for."""
        self.left = max(self.left - late, -LATE_BUDGET_MAX)


class Reserve:
    """Time kept free before a request's due time while others are being refused.

    Run times scatter, so some who were let in find out late that they will not make it. Better that
    they hear it on arrival: the reserve is so many standard deviations of the time ahead of them,
    and is tuned until only `LONG_REFUSALS` of all refusals come after a long wait. While nobody is
    refused nothing is reserved: then it would turn away who could have been on time.
    """

    def __init__(self) -> None:
        self.deviations = 3.0
        self._refused_s = -inf

    def refused(self, now: float, *, waited_share: float) -> None:
        """Somebody was refused after waiting this share of the time there was."""
        self._refused_s = now
        if waited_share > LONG_WAIT_SHARE:
            self.deviations = min(self.deviations + DEVIATIONS_STEP, DEVIATIONS_MAX)
        else:
            step = DEVIATIONS_STEP * LONG_REFUSALS
            self.deviations = max(self.deviations - step, DEVIATIONS_MIN)

    def seconds(self, now: float, sigma: float, wait_s: float, run_s: float) -> float:
        """The reserve for a request with `wait_s` of work ahead in batches like its own, whose run
        times scatter by the share `sigma`."""
        if now - self._refused_s > OVERLOAD_S:
            return 0.0
        return self.deviations * max(sigma, SIGMA_MIN) * sqrt(run_s * (wait_s + run_s))


def check_item(
    request: Request, config: ModelConfig, rows_max: int, *, sized: bool = True
) -> UserError | None:
    """Refuse what could never run: too many rows, or, where it is known (`sized`), a size above a
    limit."""
    if request.rows > rows_max:
        return UserError(
            413,
            "too_many_rows",
            f"the request has {request.rows} rows; this model takes {rows_max} at once",
            hint="send fewer rows, or raise max_batch_size",
        )
    for key, limit in (
        ("item_size_max", config.item_size_max),
        ("batch_budget_size", config.batch_budget_size),
    ):
        if sized and limit is not None and request.size * request.rows > limit:
            return UserError(
                413,
                "item_too_large",
                f"the item's size is {request.size * request.rows:g}; {key} is {limit:g}",
                hint=f"send a smaller item, or raise {key}",
            )
    return None


def check_queue(request: Request, queue: QueueView, config: ModelConfig) -> UserError | None:
    """Refuse what would overfill the queue by requests, rows, bytes or size (Q1, Q2, Q4)."""
    limits: tuple[tuple[str, float, float | None], ...] = (
        ("queue_requests_max", queue.requests + 1, config.queue_requests_max),
        ("queue_rows_max", queue.rows + request.rows, config.queue_rows_max),
        ("queue_bytes_max", queue.bytes + request.bytes, config.queue_bytes_max),
        ("queue_size_max", queue.size + request.size * request.rows, config.queue_size_max),
    )
    for key, would_be, limit in limits:
        if limit is not None and would_be > limit:
            return UserError(
                429,
                "queue_full",
                f"the queue is full ({key} {limit:g})",
                hint=f"retry after the time given, or raise {key}",
                retry_after_s=max(queue.drain_s, 0.001),
            )
    return None


def predicted_late(finish_s: float, due_s: float) -> UserError:
    """The refusal of a request that could not be answered in time."""
    over_s = finish_s - due_s
    wait = "" if over_s == inf else f" by {over_s * 1e3:.0f} ms"
    return UserError(
        429,
        "predicted_late",
        f"the answer would be late{wait}",
        hint="retry after the time given, or allow more time",
        retry_after_s=max(over_s if over_s < inf else 1.0, 0.001),
    )


def timed_out(waited_s: float, limit: str) -> UserError:
    """The refusal of a request that waited past a limit; `limit` names it."""
    return UserError(
        504,
        "timeout",
        f"timed out after {waited_s:.3f} s ({limit})",
        hint="allow more time, or add capacity",
        retry_after_s=1.0,
    )
