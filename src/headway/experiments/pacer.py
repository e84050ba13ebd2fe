"""Wakes on time to a few microseconds, for sending on a schedule.

Knows Linux's timerfd (uvloop's own timers have a resolution of 1 ms) and falls back to the loop's
timers; must not know what is sent.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)


class Pacer:
    """One timer on an asyncio loop. Times are `time.monotonic()`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._spec = _Itimerspec()
        create = getattr(_libc, "timerfd_create", None)
        self._fd = create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC) if create else -1
        if self._fd >= 0:
            loop.add_reader(self._fd, self._fired)

    def at(self, when_s: float) -> None:
        """Call back at that time, or at once if it has passed."""
        if self._fd < 0:
            delay_s = max(0.0, when_s - time.monotonic())
            self._handle = self._loop.call_later(delay_s, self._callback)
            return
        whole = max(1, int(when_s * 1e9))
        self._spec.it_value.tv_sec, self._spec.it_value.tv_nsec = divmod(whole, 10**9)
        _libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(self._spec), None)

    def close(self) -> None:
        """Release the timer."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._callback()
