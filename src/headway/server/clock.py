"""Time for a driver on an asyncio loop, and how late that loop runs.

Knows the event loop and Linux's timerfd (uvloop's own timers have a resolution of 1 ms, too coarse
for a hold of a few hundred microseconds); must not know what its callers decide.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from math import inf
from typing import Protocol

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)


class Timer(Protocol):
    """One alarm on the clock's time. Arming replaces the alarm before."""

    def watch(self, fired: Callable[[], None]) -> None:
        """Call when the alarm comes; it may come early."""

    def arm(self, when_s: float) -> None:
        """Set the alarm."""

    def close(self) -> None:
        """No alarm any more."""


class KernelTimer:
    """A timerfd on the loop, or where there is none the loop's own timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fired: Callable[[], None] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._spec = _Itimerspec()
        create = getattr(_libc, "timerfd_create", None)
        self._fd = create(_CLOCK_MONOTONIC, _FLAGS) if create else -1

    def watch(self, fired: Callable[[], None]) -> None:
        """Call when the alarm comes."""
        self._fired = fired
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._read)

    def arm(self, when_s: float) -> None:
        """Set the alarm; one system call."""
        if self._fd < 0:
            assert self._fired is not None
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(max(0.0, when_s - time.monotonic()), self._fired)
            return
        value = self._spec.it_value
        nanoseconds = max(1, int(when_s * 1e9))
        value.tv_sec, value.tv_nsec = divmod(nanoseconds, 1_000_000_000)
        _libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(self._spec), None)

    def close(self) -> None:
        """Release it."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        assert self._fired is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._fired()


class LoopClock:
    """`core.ports.Scheduler` on an asyncio loop: one per driver."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        now: Callable[[], float] = time.monotonic,
        timer: Timer | None = None,
    ) -> None:
        """`now` and `timer` are replaced together, where time is virtual."""
        self.now = now
        self._loop = loop
        self._callback: Callable[[], None] | None = None
        self._when_s = inf
        """When the callback is due."""
        self._armed_s = inf
        """When the timer fires; it may be earlier than needed, then it is set again."""
        self._timer = timer or KernelTimer(loop)
        self._timer.watch(self._due)

    def soon(self, callback: Callable[[], None]) -> None:
        """Run in the next turn: all sockets that were readable in this one come first."""
        self._loop.call_soon(callback)

    def at(self, when_s: float, callback: Callable[[], None]) -> None:
        """Arm the one timer. A later time than the one armed costs no system call."""
        self._when_s = when_s
        self._callback = callback
        if when_s < self._armed_s:
            self._arm(when_s)

    def close(self) -> None:
        """Release the timer."""
        self._callback, self._when_s = None, inf
        self._timer.close()

    def _arm(self, when_s: float) -> None:
        self._armed_s = when_s
        self._timer.arm(when_s)

    def _due(self) -> None:
        self._armed_s = inf
        if self.now() < self._when_s:
            if self._when_s < inf:
                self._arm(self._when_s)
            return
        callback, self._callback, self._when_s = self._callback, None, inf
        if callback is not None:
            callback()


class Heartbeat:
    """Calls `beat(lag_s)` every `period_s`; `lag_s` is how late the loop came to it.

    Heard as I/O, as requests are, so `lag_s` is what a request waits in the kernel. The loop's own
    timers would tell another story: libuv may handle 48 rounds of 1,024 ready sockets before it
    looks at them, each request being served promptly all the while.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, period_s: float, beat: Callable[[float], None]
    ) -> None:
        self._period_s = period_s
        self._beat = beat
        self._due_s = inf
        self._timer = KernelTimer(loop)

    def start(self) -> None:
        """Begin."""
        self._timer.watch(self._tick)
        self._next()

    def stop(self) -> None:
        """End, for good."""
        self._timer.close()

    def _tick(self) -> None:
        lag_s = max(0.0, time.monotonic() - self._due_s)
        self._next()
        self._beat(lag_s)

    def _next(self) -> None:
        self._due_s = time.monotonic() + self._period_s
        self._timer.arm(self._due_s)
