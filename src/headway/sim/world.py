"""Virtual time: events in the order of (time, sequence), and nothing between them.

Knows callbacks and times; must not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Protocol

Callback = Callable[[], None]


class Timeline(Protocol):
    """What simulated compute and arrivals need of time: to read it, and to be called in order."""

    @property
    def time_s(self) -> float:
        """Now."""

    def plan(self, when_s: float, callback: Callback) -> None:
        """Call then; equal times keep the order in which they were planned."""


class World:
    """A clock that jumps from event to event. Equal times keep the order in which they were
    planned."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self._heap: list[tuple[float, int, Callback]] = []
        self._sequence = 0
        self._soon: list[Callback] = []

    def plan(self, when_s: float, callback: Callback) -> None:
        """Call at a virtual time, not before now."""
        self._sequence += 1
        when_s = max(when_s, self.time_s)
        heappush(self._heap, (when_s, self._sequence, callback))

    def soon(self, callback: Callback) -> None:
        """Call once everything due at this moment has been handled."""
        self._soon.append(callback)

    def run(self, until_s: float = inf) -> None:
        """Play events up to and including `until_s`, or until there are none."""
        heap = self._heap
        while self._soon or (heap and heap[0][0] <= until_s):
            if not self._soon:
                self.time_s = heap[0][0]
            now = self.time_s
            while heap and heap[0][0] <= now:
                heappop(heap)[2]()
            if self._soon:
                due, self._soon = self._soon, []
                for callback in due:
                    callback()

    def scheduler(self) -> WorldScheduler:
        """A driver's own view of this world, with its own timer."""
        return WorldScheduler(self)


class WorldScheduler:
    """The port `Scheduler` in virtual time.

    Like the live clock it has one event planned and leaves it when the timer moves to a later time:
    that event then plans the next. So a timer takes its place among events of equal time alike in
    both.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.soon = world.soon
        self._when_s = inf
        """When the callback is due."""
        self._planned_s = inf
        """When the event planned last comes; it is the earliest."""
        self._plans = 0
        self._callback: Callback = _nothing

    def now(self) -> float:
        """Virtual seconds."""
        return self.world.time_s

    def at(self, when_s: float, callback: Callback) -> None:
        """Arm the one timer, replacing an earlier one."""
        self._when_s, self._callback = when_s, callback
        if when_s < self._planned_s:
            self._plan(when_s)

    def _plan(self, when_s: float) -> None:
        self._planned_s = when_s
        self._plans += 1
        plan = self._plans
        self.world.plan(when_s, lambda: self._fire(plan))

    def _fire(self, plan: int) -> None:
        if plan != self._plans:
            return  # a later plan took its place
        self._planned_s = inf
        if self.world.time_s < self._when_s:
            if self._when_s < inf:
                self._plan(self._when_s)
            return
        self._when_s = inf
        self._callback()


def _nothing() -> None:
    """No timer was armed."""
