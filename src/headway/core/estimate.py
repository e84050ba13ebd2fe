"""What a batch will cost: the service curve tau(rows, size), learned from the batches that ran.

Knows run times by row count and size; must not know queues, deadlines or why anybody asks.

The curve is kept per power-of-two band of row counts, because batching can help in one band and
hurt in the next (padding, caches, memory pressure). Inside a band run time is a line in the work
done, fitted with exponential forgetting, so a model that slows down or speeds up is followed.
"""

from __future__ import annotations

from math import inf, sqrt

from headway.core.batch import Form

MEMORY_BATCHES = 64
"""Batches a band remembers: older ones fade with this time constant."""
MARGIN = 0.03
"""Throughput gains smaller than this share are noise: the smaller batch wins, it answers sooner."""
PROBE_EVERY = 64
"""Of this many batches cut short by b*, one may be a step larger, so that an old verdict is
checked."""
_FLOOR = 1e-3
"""No batch is predicted to take less than this share of its band's mean: even an empty one takes
time."""
_FLAT = 1e-4
"""Relative variance of work below which a band says nothing about slope."""


class Band:
    """Run times seen for row counts in (2^(k-1), 2^k]: a fading mean and a line through it."""

    __slots__ = (
        "cov",
        "flat",
        "mean_rows",
        "mean_s",
        "mean_work",
        "n",
        "slope_s",
        "spread",
        "top_work",
        "var_work",
    )

    def __init__(self) -> None:
        self.n = 0
        self.mean_rows = 0.0
        self.mean_work = 0.0
        self.mean_s = 0.0
        self.var_work = 0.0
        self.cov = 0.0
        self.spread = 0.0
        self.top_work = 0.0
        """Most work in one batch so far."""
        self.flat = True
        """It saw one amount of work only, so it has no slope of its own."""
        self.slope_s = 0.0
        """Seconds per unit of work, never negative, at most proportional."""

    def observe(self, rows: int, work: float, run_s: float) -> None:
        """One batch. The first run of a band counts once like any other: it fades."""
        self.n += 1
        share = max(1.0 / self.n, 1.0 / MEMORY_BATCHES)
        if self.n > 2:
            guess_s = self.at(work)
            error = (run_s - guess_s) / guess_s
            self.spread += share * (min(error * error, 4.0) - self.spread)
        dw, ds = work - self.mean_work, run_s - self.mean_s
        self.top_work = max(self.top_work, work)
        self.mean_rows += share * (rows - self.mean_rows)
        self.mean_work += share * dw
        self.mean_s += share * ds
        keep = 1.0 - share
        self.var_work = keep * (self.var_work + share * dw * dw)
        self.cov = keep * (self.cov + share * dw * ds)
        self.flat = self.var_work <= _FLAT * self.mean_work * self.mean_work
        if not self.flat:
            self.slope_s = min(max(self.cov / self.var_work, 0.0), self.mean_s / self.mean_work)
        else:
            self.slope_s = 0.0

    def at(self, work: float) -> float:
        """Seconds for this much work in this band. More than was ever seen is taken to cost in
        proportion: a line through like sizes says nothing about far larger ones."""
        seen = min(work, self.top_work)
        line_s = self.mean_s + self.slope_s * (seen - self.mean_work)
        far = work / seen if work > seen > 0 else 1.0
        return max(line_s, _FLOOR * self.mean_s) * far


class ServiceCurve:
    """tau(rows, size) of one model, and what follows from it: predictions and the best size b*.

    Sizes are in the model's unit, times in seconds. `form` says how work adds up: rows x longest
    where the model pads, the plain sum otherwise.
    """

    def __init__(self, form: Form = "list") -> None:
        self.form: Form = form
        self.bands: list[Band | None] = []
        self.trip_s = 0.0
        """What a batch costs on its way, whatever its size: large batches share it."""
        self.version = 0
        self._best: dict[tuple[int, int], tuple[int, int]] = {}

    def reform(self, form: Form) -> None:
        """The model turned out to lay batches out this way; what was learned otherwise is
        dropped."""
        if form != self.form:
            self.form = form
            self.bands.clear()
            self.version += 1

    def work(self, rows: int, longest: float, total: float) -> float:
        """Size units the device computes for such a batch."""
        return rows * longest if self.form == "padded" else total

    def observe(self, rows: int, longest: float, total: float, run_s: float) -> None:
        """Learn from a batch that ran. Times that are not positive and finite are ignored, and so
        are sizes that are not finite."""
        work = self.work(rows, longest, total)
        if rows < 1 or not 0.0 < run_s < inf or not 0.0 <= work < inf:
            return
        k = (rows - 1).bit_length()
        while len(self.bands) <= k:
            self.bands.append(None)
        band = self.bands[k]
        if band is None:
            band = self.bands[k] = Band()
        band.observe(rows, work, run_s)
        if band.n <= 4 or band.n % 16 == 0:
            self.version += 1

    def knows(self, rows: int) -> bool:
        """Has a batch of about this many rows run?"""
        k = (rows - 1).bit_length()
        return k < len(self.bands) and self.bands[k] is not None

    def predict(self, rows: int, longest: float, total: float) -> float:
        """Expected run time in seconds; 0 while nothing is known.

        For row counts not seen yet the nearest smaller band is scaled up by work, the nearest
        larger one taken as it is: both err towards slow. Between two bands that each saw one
        amount of work only (warm-up runs powers of two) the line through both counts, or sizes in
        between would never be tried.
        """
        k = (rows - 1).bit_length()
        band = self._near(k)
        if band is None:
            return 0.0
        work = self.work(rows, longest, total)
        below = self._near(k - 1) if band.flat and k > 0 else None
        if below is not None and below.mean_work <= work < band.mean_work:
            share = (work - below.mean_work) / (band.mean_work - below.mean_work)
            return below.mean_s + share * max(band.mean_s - below.mean_s, 0.0)
        if rows <= 2 * band.mean_rows or band.mean_work <= 0:
            return band.at(work)
        return band.mean_s * max(work / band.mean_work, 1.0)

    def sigma(self, rows: int) -> float:
        """Standard deviation of run times from their prediction, as a share of it."""
        band = self._near((rows - 1).bit_length())
        return 0.0 if band is None else sqrt(band.spread)

    def row_s(self, size: float, cap: int) -> float:
        """Seconds of device time one more row of this size costs when batches have their best
        size."""
        best = self.best_rows(size, cap)
        return self.predict(best, size, best * size) / best

    def best_rows(self, size: float, cap: int) -> int:
        """b* for rows of this size: the row count with the highest throughput, at most `cap`.

        Row counts that never ran are assumed to cost no more than the largest that did, so they are
        tried.
        """
        if not self.bands:
            return cap
        key = (int(size).bit_length(), cap)
        found = self._best.get(key)
        if found is not None and found[0] == self.version:
            return found[1]
        best = self._search(size, cap)
        self._best[key] = (self.version, best)
        return best

    def helps(self, size: float, cap: int) -> bool:
        """Does batching raise throughput at all? A possible and reported answer is no."""
        return self.best_rows(size, cap) > 1

    def rates(self, size: float, cap: int) -> list[tuple[int, float]]:
        """(rows, rows per second) at each row count that ran, for reports."""
        out = []
        for k, band in enumerate(self.bands):
            rows = min(1 << k, cap)
            if band is not None and (1 << k) < 2 * cap:
                batch_s = self.predict(rows, size, rows * size) + self.trip_s
                out.append((rows, rows / batch_s))
        return out

    def _near(self, k: int) -> Band | None:
        """The band k itself, else the nearest smaller, else the nearest larger."""
        bands = self.bands
        for i in range(min(k, len(bands) - 1), -1, -1):
            if bands[i] is not None:
                return bands[i]
        for band in bands[k + 1 :]:
            if band is not None:
                return band
        return None

    def _search(self, size: float, cap: int) -> int:
        rates = self.rates(size, cap)
        if not rates:
            return cap
        top = max(rate for _, rate in rates)
        best = next(rows for rows, rate in rates if rate >= top * (1.0 - MARGIN))
        if best == rates[-1][0]:
            # Beyond what ran the curve is assumed flat, so larger batches are tried.
            return cap
        # The smallest that ran is already as good as larger ones: perhaps smaller ones are too.
        return max(best // 2, 1) if best == rates[0][0] else best
