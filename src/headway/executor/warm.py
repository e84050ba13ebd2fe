"""Warm-up: measured runs over batch sizes and item lengths before a worker is ready.

Knows sizes, times and memory; must not know processes or who asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from headway.core.ports import ModelInfo, WarmRun
from headway.executor.adapt import Served
from headway.executor.model import json_encode

CAPS = {"light": 64, "heavy": 16}
"""Largest batch tried where no `max_batch_size` is given, by weight class."""

_RISE = 1.1
"""Cost per item that has clearly risen, against the best so far."""
_MEASURABLE = 4 * 2**20
"""Growth of memory, in bytes, below which it says nothing."""


def samples_of(served: Served) -> list[tuple[float, Any]]:
    """Short, median and long sample with their sizes; fewer where sizes are equal."""
    if served.warmup is None:
        return []
    sized = sorted(
        ((size_of(served, item), place, item) for place, item in enumerate(served.warmup())),
        key=lambda entry: entry[:2],
    )
    if not sized:
        return []
    chosen = {sized[place][0]: sized[place][2] for place in (0, len(sized) // 2, -1)}
    return sorted(chosen.items(), key=lambda entry: entry[0])


def size_of(served: Served, item: Any) -> float:
    """Size in the model's unit, or in bytes as close as an item tells."""
    if served.measure is not None:
        return float(served.measure(item))
    if isinstance(item, (bytes, bytearray, str)):
        return float(len(item))
    if isinstance(item, dict) and any(hasattr(v, "nbytes") for v in item.values()):
        return float(sum(getattr(v, "nbytes", 0) for v in item.values()))
    nbytes = getattr(item, "nbytes", None)
    if nbytes is not None:
        return float(nbytes)
    try:
        return float(len(json_encode(item)))
    except (TypeError, ValueError):
        return 1.0


class WarmUp:
    """One warm-up. `run` predicts one batch of items and returns when it is done."""

    def __init__(
        self,
        served: Served,
        run: Callable[[list[Any]], object],
        report: Callable[[float, str], None],
    ) -> None:
        config = served.config
        info = served.info
        self._samples = samples_of(served)
        self._run = run
        self._report = report
        self._cap = config.max_batch_size or info.max_batch_size or CAPS[config.weight_class]
        sizes = tuple(config.padded_sizes) or tuple(info.padded_sizes)
        self._sizes = [n for n in sizes if n <= self._cap] or doublings(self._cap)
        self._end_s = perf_counter() + config.warmup_s_max
        self.runs: list[WarmRun] = []
        self._peaks: dict[int, int] = {}
        """Peak memory in bytes after each batch size of the longest sample."""

    def go(self) -> None:
        """Run sizes from small to large, every length at each, until time or sense runs out."""
        best = {size: inf for size, _ in self._samples}
        rises = dict.fromkeys(best, 0)
        for step, rows in enumerate(self._sizes):
            self._report(step / len(self._sizes), f"batch size {rows}")
            for size, item in self._samples:
                if rises[size] >= 2:
                    continue
                run_s = self._measure(rows, size, item)
                if run_s is None:
                    return
                cost = run_s / rows
                rises[size] = rises[size] + 1 if cost > _RISE * best[size] else 0
                best[size] = min(best[size], cost)
            self._peaks[rows] = _peak_bytes()
            if all(count >= 2 for count in rises.values()):
                return

    def _measure(self, rows: int, size: float, item: Any) -> float | None:
        """Seconds of the second run where time allows; None when there is no time at all."""
        likely_s = max(
            (r.run_s / r.rows * rows for r in self.runs if r.longest == size), default=0.0
        )
        if self.runs and perf_counter() + likely_s > self._end_s:
            return None
        batch = [item] * rows
        run_s = self._timed(batch)
        if perf_counter() + run_s <= self._end_s:
            run_s = self._timed(batch)
        self.runs.append(WarmRun(rows, size, size * rows, run_s))
        return run_s

    def _timed(self, batch: list[Any]) -> float:
        begin = perf_counter()
        self._run(batch)
        return perf_counter() - begin

    def free_rows(self) -> int | None:
        """Rows that fit the memory left, from how peak memory grew; None if that says nothing."""
        if len(self._peaks) < 2:
            return None
        small, large = min(self._peaks), max(self._peaks)
        growth = self._peaks[large] - self._peaks[small]
        if growth < _MEASURABLE or large == small:
            return None
        return max(1, int(free_bytes() / (growth / (large - small)) / 1.2))


def doublings(cap: int) -> list[int]:
    """1, 2, 4, ... up to and with the cap."""
    sizes = [1]
    while sizes[-1] * 2 <= cap:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == cap else [*sizes, cap]


def warm_up(
    served: Served, run: Callable[[list[Any]], object], report: Callable[[float, str], None]
) -> ModelInfo:
    """Warm a loaded model; its info with the measured runs. Does nothing without samples."""
    begin = perf_counter()
    info = served.info
    warm = WarmUp(served, run, report)
    warm.go()
    info.warm = warm.runs
    info.free_rows = warm.free_rows()
    info.warmup_s = perf_counter() - begin
    return info


def _peak_bytes() -> int:
    # Not getrusage: its peak is carried over from the parent through vfork and exec.
    for line in _lines("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def free_bytes() -> int:
    """Memory this process may still take: the system's, or the control group's if less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    if limit and used and limit[0].strip().isdigit():
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def _lines(path: str) -> Sequence[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return ()
