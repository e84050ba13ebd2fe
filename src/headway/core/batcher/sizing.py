"""How large a batch may be, and where each bound comes from.

Knows the configuration, what the model says and the service curve; must not know queues or time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

from headway.core.batch import Close
from headway.core.batcher.grouping import Limits
from headway.core.config import ModelConfig
from headway.core.estimate import PROBE_EVERY, ServiceCurve
from headway.core.ports import ModelInfo
from headway.core.slo import Objective

CLASS_ROWS = {"light": 64, "heavy": 16}
"""Starting caps while b* is unknown."""
FIT_SHARE = 0.6
"""Longest batch as a share of the objective. Two halves fit for certain (Nexus, SOSP 2019); a bit
more serves more in time under overload, where those who would be late are left out anyway."""
PROBE_EVERY_MAX = 4096
"""Batches between two looks past b* once it has been confirmed often."""


class Sizing:
    """The caps on a batch of one model."""

    def __init__(self, config: ModelConfig, curve: ServiceCurve) -> None:
        self.config = config
        self.curve = curve
        self.slot_s = config.slot_time_ms_max / 1e3
        self.fixed = config.policy == "static"
        self.learn(ModelInfo(name=config.name))
        self._cut = 0
        self._probe_every = PROBE_EVERY

    def learn(self, info: ModelInfo) -> None:
        """A worker said what its model can do."""
        config = self.config
        self.allowed = config.padded_sizes or info.padded_sizes
        self.rows_max, self.origin = _rows_max(config, info)
        budget = config.batch_budget_size
        self.limits = Limits(
            rows_max=self.rows_max,
            form=info.form,
            budget=inf if budget is None else budget,
            waste_max=config.padding_waste_max,
        )

    def row_s(self, size: float) -> float:
        """Predicted device time of one more row of this size; 0 while nothing is known."""
        return self.curve.row_s(size, self.rows_max)

    def best_rows(self, size: float) -> int:
        """b* for this size."""
        return self.curve.best_rows(size, self.rows_max)

    def batch_s(self, rows: int, size: float, mean: float) -> float:
        """Predicted run time of a batch led by an item of `size`, the others of `mean` size."""
        return self.curve.predict(rows, size, size + (rows - 1) * mean)

    def cap(
        self, size: float, mean: float, *, objective: Objective | None, contended: bool
    ) -> tuple[int, Close]:
        """Most rows of a batch led by an item of this size, and what says so."""
        rows, reason = self.steady(size, mean, objective)
        if reason is Close.BEST_SIZE and self._cut >= self._probe_every:
            # Now and then look one step past b*, less often the longer it has been right.
            rows = min(2 * rows, self.rows_max)
        if contended:
            rows, reason = self._within(
                self.slot_s, rows, reason, size=size, mean=mean, why=Close.SLOT
            )
        return rows, reason

    def steady(self, size: float, mean: float, objective: Objective | None) -> tuple[int, Close]:
        """The cap without looks past b* and without neighbours on the device."""
        rows, reason = self.rows_max, Close.FULL
        if self.fixed:
            return rows, reason
        best = self.best_rows(size)
        if best < rows:
            rows, reason = best, Close.BEST_SIZE
        if objective is not None:
            # A request may arrive just after a batch left and wait for most of it.
            rows, reason = self._within(
                FIT_SHARE * objective.limit_s,
                rows,
                reason,
                size=size,
                mean=mean,
                why=Close.DEADLINE,
            )
        return rows, reason

    def advice(self, size: float) -> str | None:
        """What the curve says of batching at all, when it has seen enough (B20)."""
        seen = self.rows_max > 1 and len(self.curve.rates(size, self.rows_max)) > 1
        if seen and not self.curve.helps(size, self.rows_max):
            return "batching does not help this model here: one row at a time is fastest"
        return None

    def closed(self, reason: Close) -> None:
        """A batch left; those cut at b* bring the next look past it closer."""
        if reason is Close.BEST_SIZE:
            self._cut += 1
            if self._cut > self._probe_every:
                self._cut = 0
                self._probe_every = min(2 * self._probe_every, PROBE_EVERY_MAX)

    def allowed_up(self, rows: int) -> int:
        """The smallest row count the model can run that holds `rows`."""
        i = bisect_left(self.allowed, rows)
        return self.allowed[i] if i < len(self.allowed) else rows

    def round(self, waiting: int, size: float) -> tuple[int, bool]:
        """How many of `waiting` rows to take where row counts are padded: the largest full count,
        or all of them padded up, whichever answers more rows per second. The flag tells a rounding
        down.
        """
        if not self.allowed or waiting in self.allowed:
            return waiting, False
        i = bisect_right(self.allowed, waiting)
        if i == 0 or i == len(self.allowed):
            return (waiting, False) if i == 0 else (self.allowed[-1], True)
        down, up = self.allowed[i - 1], self.allowed[i]
        down_s = self.curve.predict(down, size, down * size)
        up_s = self.curve.predict(up, size, up * size)
        return (down, True) if down * up_s > waiting * down_s else (waiting, False)

    def _within(
        self, limit_s: float, rows: int, reason: Close, *, size: float, mean: float, why: Close
    ) -> tuple[int, Close]:
        """Lower `rows` until a batch is predicted to run no longer than `limit_s`; at least 1."""
        if self.batch_s(rows, size, mean) <= limit_s:
            return rows, reason
        fits, over = 1, rows
        while over - fits > 1:
            middle = (fits + over) // 2
            if self.batch_s(middle, size, mean) <= limit_s:
                fits = middle
            else:
                over = middle
        return fits, why if fits < rows else reason


def _rows_max(config: ModelConfig, info: ModelInfo) -> tuple[int, str]:
    """The hard cap on rows and the name of its origin."""
    if config.max_batch_size is not None:
        rows, origin = config.max_batch_size, "max_batch_size"
    elif info.max_batch_size is not None:
        rows, origin = info.max_batch_size, "model"
    else:
        rows, origin = CLASS_ROWS[config.weight_class], f"class {config.weight_class}"
        if info.free_rows is not None and info.free_rows < rows:
            rows, origin = info.free_rows, "free memory"
    fits = [s for s in config.padded_sizes or info.padded_sizes if s <= rows]
    if fits and fits[-1] < rows:
        rows, origin = fits[-1], "padded_sizes"
    return max(rows, 1), origin
