"""Virtual time: events in the order of (time, sequence), and nothing between them.

Knows callbacks and times; must not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

Callback = Callable[[], None]


class World:
    """A clock that jumps from event to event. Equal times keep the order in which they were planned."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self._heap: list[tuple[float, int, Callback]] = []
        self._sequence = 0
        self._soon: list[Callback] = []

    def plan(self, when_s: float, callback: Callback) -> None:
        """Call at a virtual time, not before now."""
        self._sequence += 1
        heappush(self._heap, (max(when_s, self.time_s), self._sequence, callback))

    def soon(self, callback: Callback) -> None:
        """Call once everything due at this moment has been handled."""
        self._soon.append(callback)

    def run(self, until_s: float = inf) -> None:
        """Play events up to and including `until_s`, or until there are none."""
        heap = self._heap
        while self._soon or (heap and heap[0][0] <= until_s):
            if not self._soon:
                self.time_s = heap[0][0]
            while heap and heap[0][0] <= self.time_s:
                heappop(heap)[2]()
            due, self._soon = self._soon, []
            for callback in due:
                callback()

    def scheduler(self) -> WorldScheduler:
        """A driver's own view of this world, with its own timer."""
        return WorldScheduler(self)


class WorldScheduler:
    """The port `Scheduler` in virtual time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._armed_s = inf
        self._callback: Callback = _nothing

    def now(self) -> float:
        """Virtual seconds."""
        return self.world.time_s

    def soon(self, callback: Callback) -> None:
        """Once everything due at this moment has been handled."""
        self.world.soon(callback)

    def at(self, when_s: float, callback: Callback) -> None:
        """Arm the one timer, replacing an earlier one."""
        self._armed_s, self._callback = when_s, callback
        if when_s < inf:
            self.world.plan(when_s, lambda: self._fire(when_s))

    def _fire(self, when_s: float) -> None:
        # A timer that was replaced since leaves its event behind; it means nothing any more.
        if when_s == self._armed_s:
            self._armed_s = inf
            self._callback()


def _nothing() -> None:
    """No timer was armed."""
