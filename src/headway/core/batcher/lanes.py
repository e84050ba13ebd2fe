"""Workers as the batcher sees them: what each runs, what it has next, when it will be free.

Knows batches and predicted times; must not know processes, queues or policies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from headway.core.batch import Batch

HOP_S_START = 200e-6
"""Assumed time to reach a worker and back until it is measured."""


@dataclass(slots=True)
class Lane:
    """One worker. Its first batch runs, a second is there to follow without a pause."""

    worker: int
    up: bool = False
    batches: deque[Batch] = field(default_factory=deque)
    began_s: float = -inf
    """When its first batch began, as far as anyone here can tell."""
    chunk_s: float = -inf
    """When a stream on it last said something."""

    @property
    def rows(self) -> int:
        """Rows in flight; members of a stream leave one by one."""
        return sum(batch.remaining_rows for batch in self.batches)

    @property
    def free_s(self) -> float:
        """Predicted time when everything it has is done: `-inf` when it has nothing, `inf` while a
        prediction is missing."""
        if not self.batches:
            return -inf
        left_s = 0.0
        for batch in self.batches:
            if batch.predicted_s <= 0.0:
                return inf
            left_s += batch.predicted_s
        return self.began_s + left_s


class Lanes:
    """All workers of one model."""

    def __init__(self) -> None:
        self.all: dict[int, Lane] = {}
        self.hop_s = HOP_S_START

    def lane(self, worker: int) -> Lane:
        """The lane of a worker, made when first heard of."""
        return self.all.setdefault(worker, Lane(worker))

    @property
    def up(self) -> int:
        """Workers that can be given batches."""
        return sum(lane.up for lane in self.all.values())

    @property
    def rows(self) -> int:
        """Rows in flight on all workers."""
        return sum([lane.rows for lane in self.all.values()])

    def pick(self, depth: int) -> tuple[Lane, float] | None:
        """The worker that will be free first among those with room, and when."""
        best: tuple[Lane, float] | None = None
        for lane in self.all.values():
            if lane.up and len(lane.batches) < depth:
                free_s = lane.free_s
                if best is None or free_s < best[1]:
                    best = (lane, free_s)
        return best

    def pick_rows(self, rows_max: int) -> tuple[Lane, int] | None:
        """For models that stream: the worker with the most free rows, and how many those are."""
        best: tuple[Lane, int] | None = None
        for lane in self.all.values():
            free = rows_max - lane.rows
            if lane.up and free > 0 and (best is None or free > best[1]):
                best = (lane, free)
        return best

    def give(self, lane: Lane, batch: Batch, now: float) -> None:
        """A batch leaves for a worker."""
        if not lane.batches:
            lane.began_s = now
        lane.batches.append(batch)

    def end(self, batch: Batch, now: float) -> bool:
        """A batch ended, however it ended; the next one begins. Did it begin the moment it
        was handed over?"""
        lane = self.all[batch.worker]
        at_once = lane.began_s == batch.closed_s
        lane.batches.remove(batch)
        lane.began_s = now
        return at_once

    def overdue(
        self, now: float, run_s_max: float, gap_s_max: float | None
    ) -> tuple[list[Batch], float]:
        """Running batches past their limit, and when the next one will be. Where `gap_s_max` is
        given they are streams, and past it when silent for that long."""
        late: list[Batch] = []
        next_s = inf
        for lane in self.all.values():
            if not lane.batches or not lane.up:
                continue
            due_s = lane.began_s + run_s_max
            if gap_s_max is not None:
                due_s = max(lane.began_s, lane.chunk_s) + gap_s_max
            if due_s <= now:
                late.append(lane.batches[0])
            else:
                next_s = min(next_s, due_s)
        return late, next_s

    def saw_hop(self, seconds: float) -> None:
        """Time a batch spent on the way there and back, measured on an idle worker."""
        if 0.0 < seconds < 1.0:
            self.hop_s += 0.1 * (seconds - self.hop_s)
