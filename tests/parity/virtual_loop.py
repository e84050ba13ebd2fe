"""An asyncio event loop whose time is virtual, and the ordered inbox that feeds it.

The loop is asyncio's own; only its clock and its selector differ: where a selector would sleep,
this one jumps to the time of the next input. Inputs (arrivals, answers of workers, the clock's
timer) come from one heap ordered by (time, sequence), because asyncio's own timers of equal time
come in no particular order.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from heapq import heappop, heappush

Callback = Callable[[], None]


class Inbox:
    """Everything that will happen to a live driver, in order. It is the loop's clock, too."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.delivered = 0
        self._heap: list[tuple[float, int, Callback]] = []
        self._sequence = 0
        self._loop: VirtualLoop | None = None

    def attach(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def key(self, sequence: int) -> int:
        """What orders inputs of equal time."""
        return sequence

    def plan(self, when_s: float, callback: Callback) -> None:
        """Deliver then."""
        self._sequence += 1
        heappush(self._heap, (max(when_s, self.time_s), self.key(self._sequence), callback))

    def next_s(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def advance(self, to_s: float) -> None:
        """Time jumps; what is due then comes in this turn of the loop."""
        self.time_s = max(self.time_s, to_s)
        if self._heap and self._heap[0][0] <= self.time_s:
            assert self._loop is not None
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._heap and self._heap[0][0] <= self.time_s:
            self.delivered += 1
            heappop(self._heap)[2]()


class InboxTimer:
    """The live clock's timer, delivered through the inbox like every other input."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._armed = 0
        self._fired: Callback = _nothing

    def watch(self, fired: Callback) -> None:
        self._fired = fired

    def arm(self, when_s: float) -> None:
        self._armed += 1
        armed = self._armed

        def fire() -> None:
            if armed == self._armed:  # an arm replaces the one before, as in the kernel
                self._fired()

        self._inbox.plan(when_s, fire)

    def close(self) -> None:
        self._armed += 1


class JumpingSelector(selectors.SelectSelector):
    """Where others sleep, this one moves the inbox's time."""

    def __init__(self, inbox: Inbox, finished: Callback) -> None:
        super().__init__()
        self._inbox = inbox
        self._finished = finished

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, selectors._EventMask]]:
        inbox = self._inbox
        if timeout is not None and timeout <= 0:
            inbox.advance(inbox.time_s)
            return []
        next_s = inbox.next_s()
        if timeout is not None and (next_s is None or next_s > inbox.time_s + timeout):
            inbox.advance(inbox.time_s + timeout)
        elif next_s is not None:
            inbox.advance(next_s)
        else:
            self._finished()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on the inbox's time. `play` runs until nothing is left to come."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        super().__init__(JumpingSelector(inbox, self.stop))
        inbox.attach(self)

    def time(self) -> float:
        return self._inbox.time_s

    def play(self) -> None:
        self.run_forever()


def _nothing() -> None:
    """Nobody listens."""
