"""What the batcher remembers of the recent past: answers, arrivals after them, overlap.

Knows counts, times and why batches closed; must not know requests or policies.
"""

from __future__ import annotations

from math import inf

from headway.core.batch import Close
from headway.core.policy.batching import HOLD_SHARE

GAIN = 0.25
"""Weight of the newest batch in the share of answered rows that come back."""
ADVICE_REQUESTS_MIN = 16
"""Requests seen before anything is said about how they arrive."""
COUNT_MAX = 1024
_FADE = 1 / 64
_SMALL = 0.25
"""A mean batch below this share of the cap asks for a reason."""
_LIMITS = {
    Close.BEST_SIZE: "larger ones cost more per row on this machine (best_size)",
    Close.UNLIKE: "what waits differs in size and would cost more together than apart (unlike)",
    Close.BUDGET: "batch_budget_size allows no more of this size (budget)",
    Close.SLOT: "they are cut to slot_time_ms_max while models share the device (slot)",
    Close.DEADLINE: "larger ones would make requests late (deadline)",
    Close.FULL: "they fill the rows that are free, the others are taken (full)",
}
"""What keeps batches small other than a lack of requests."""


class Tally:
    """Running counts behind the adaptive hold, liveness and advice."""

    __slots__ = (
        "_progress_s",
        "_window_end_s",
        "alone",
        "answered_rows",
        "batch_rows",
        "closes",
        "finished_s",
        "requests",
        "return_share",
        "returned_in_window",
        "returned_rows",
        "run_s",
    )

    def __init__(self) -> None:
        self.finished_s = -inf
        self.run_s = 0.0
        self.answered_rows = 0
        self.returned_rows = 0
        self.returned_in_window = 0
        self.return_share = 0.5
        self.requests = 0
        self.alone = 0
        """Of these requests, those that met nobody here. Both are halved now and then."""
        self.batch_rows = 0.0
        """Rows of recent batches, fading mean."""
        self.closes: dict[Close, int] = {}
        """Batches by why they closed, halved now and then."""
        self._window_end_s = -inf
        self._progress_s = -inf

    def arrived(self, rows: int, now: float, *, alone: bool) -> None:
        """A request was let in; `alone` when it met no other one here."""
        self.returned_rows += rows
        if now <= self._window_end_s:
            self.returned_in_window += rows
        self.requests += 1
        if alone:
            self.alone += 1
            self._progress_s = now
        if self.requests == COUNT_MAX:
            self.requests //= 2
            self.alone //= 2

    def closed(self, rows: int, now: float, reason: Close) -> None:
        """A batch left."""
        self.batch_rows += _FADE * (rows - self.batch_rows) if self.batch_rows else rows
        self._progress_s = now
        count = self.closes[reason] = self.closes.get(reason, 0) + 1
        if count == COUNT_MAX:
            self.closes = {why: n // 2 for why, n in self.closes.items()}

    def answered(self, rows: int, run_s: float, now: float) -> None:
        """A batch was answered: judge the window after the last one, open the next."""
        if self.answered_rows:
            back = min(self.returned_in_window / self.answered_rows, 1.0)
            self.return_share += GAIN * (back - self.return_share)
        self.finished_s = now
        self.run_s = run_s
        self.answered_rows = rows
        self.returned_rows = 0
        self.returned_in_window = 0
        self._window_end_s = now + HOLD_SHARE * run_s
        self._progress_s = now

    def replied(self, now: float) -> None:
        """The answers have been written: only now can their clients come back."""
        self.finished_s = now
        self._window_end_s = now + HOLD_SHARE * self.run_s

    def progressed(self, now: float) -> None:
        """Something came out of a worker."""
        self._progress_s = now

    @property
    def progress_s(self) -> float:
        """When anything last moved."""
        return self._progress_s

    def advice(self, cap_rows: int) -> str | None:
        """One sentence on how batches form here, when there is something to say (B3, O8)."""
        if self.requests < ADVICE_REQUESTS_MIN:
            return None
        if self.alone > 0.95 * self.requests:
            return (
                "arrivals never overlap: the client waits for each answer before it asks again "
                "(a closed loop of one), so there is nothing to batch; send requests in parallel"
            )
        if cap_rows > 1 and self.batch_rows < _SMALL * cap_rows:
            return f"average batch {self.batch_rows:.1f} of {cap_rows}: {self._limit()}"
        return None

    def _limit(self) -> str:
        """What keeps batches small: the reason that closed most, or a lack of requests."""
        limits = [(count, why) for why, count in self.closes.items() if why in _LIMITS]
        few = sum(self.closes.values()) - sum(count for count, _ in limits)
        count, why = max(limits, default=(0, Close.IDLE))
        return _LIMITS[why] if count > few else "raise client concurrency to fill batches"
