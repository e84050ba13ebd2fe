"""Triton's statistics of a model, counted from event records.

Knows batches that closed and finished; must not know requests or routes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.core.events import BatchClosed, BatchFinished, Event, Refused


@dataclass(slots=True)
class _Sum:
    count: int = 0
    ns: int = 0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.ns += round(seconds * 1e9)

    def shown(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.ns}


@dataclass(slots=True)
class _Steps:
    """The three times of one execution: decode, run, encode."""

    parts: tuple[_Sum, _Sum, _Sum] = field(default_factory=lambda: (_Sum(), _Sum(), _Sum()))

    def add(self, event: BatchFinished, count: int) -> None:
        times = (event.decode_s, event.run_s, event.encode_s)
        for part, seconds in zip(self.parts, times, strict=True):
            part.add(count, seconds * count)

    def shown(self) -> dict[str, dict[str, int]]:
        names = ("compute_input", "compute_infer", "compute_output")
        return {n: p.shown() for n, p in zip(names, self.parts, strict=True)}


@dataclass(slots=True)
class ModelStats:
    """Counters of one model in Triton's words. Times of a batch count once for each member."""

    inferences: int = 0
    executions: int = 0
    last_s: float = 0.0
    success: _Sum = field(default_factory=_Sum)
    fail: _Sum = field(default_factory=_Sum)
    queue: _Sum = field(default_factory=_Sum)
    steps: _Steps = field(default_factory=_Steps)
    sizes: dict[int, _Steps] = field(default_factory=dict)

    def observe(self, events: Iterable[Event]) -> None:
        """Count some records."""
        for event in events:
            if isinstance(event, BatchClosed):
                self.queue.add(event.requests, sum(event.waits_s))
            elif isinstance(event, BatchFinished):
                self._finished(event)
            elif isinstance(event, Refused):
                self.fail.add(1, event.waited_s)

    def _finished(self, event: BatchFinished) -> None:
        members = len(event.latencies_s)
        failed = event.errors if event.ok else members
        good = max(members - failed, 0)
        self.last_s = event.now
        total_s = sum(event.latencies_s)
        self.success.add(good, total_s * good / members if members else 0.0)
        self.fail.add(failed, total_s * failed / members if members else 0.0)
        if event.ok:
            self.executions += 1
            self.inferences += event.rows
            self.steps.add(event, max(members, 1))
            self.sizes.setdefault(event.rows, _Steps()).add(event, 1)

    def shown(self, name: str, version: str, epoch_offset_s: float) -> dict[str, object]:
        """One entry of `model_stats`. `epoch_offset_s` turns our clock into time since 1970."""
        none = _Sum().shown()
        return {
            "name": name,
            "version": version,
            "last_inference": round((self.last_s + epoch_offset_s) * 1e3) if self.last_s else 0,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.shown(),
                "fail": self.fail.shown(),
                "queue": self.queue.shown(),
                **self.steps.shown(),
                "cache_hit": none,
                "cache_miss": none,
            },
            "batch_stats": [
                {"batch_size": size, **steps.shown()} for size, steps in sorted(self.sizes.items())
            ],
            "memory_usage": [],
        }
