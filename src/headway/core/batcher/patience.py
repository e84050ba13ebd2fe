"""The limit on a request's whole life, waiting and running together.

Knows arrivals and states; must not know queues, batches or workers.
"""

from __future__ import annotations

from collections import deque
from math import inf

from headway.core.request import Request, State

_ENDED = (State.DONE, State.CANCELLED)


class Patience:
    """Requests in the order of their arrival, until they end or have taken `limit_s`."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._watched: deque[Request] = deque()

    def watch(self, request: Request) -> None:
        """A request was let in."""
        self._watched.append(request)

    def spent(self, now: float) -> list[Request]:
        """Requests that have not ended in time. Each is named once."""
        out: list[Request] = []
        while self.next_s() <= now:
            out.append(self._watched.popleft())
        return out

    def next_s(self) -> float:
        """When the next one will have taken too long, `inf` for never."""
        watched = self._watched
        while watched and watched[0].state in _ENDED:
            watched.popleft()
        return watched[0].arrival_s + self.limit_s if watched else inf
