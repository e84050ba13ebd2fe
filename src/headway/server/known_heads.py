"""Request heads seen before: the same bytes mean the same again, so they are parsed once.

A client on a kept connection sends one head over and over. Its bytes up to the blank line are
looked up here; a hit gives the route and headers that the parser found the first time. Only plain
heads are kept: HTTP/1.1, a content-length, nothing that changes how the body is read or the
connection goes on. Knows bytes and what they meant; must not know connections.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.server.service import HotRoute

HEADS_MAX = 256
"""Heads remembered; when there are more, all are forgotten: they vary too much to be worth it."""
HEAD_BYTES_MAX = 2048
"""Longest head remembered."""
_SPECIAL = frozenset(
    {b"expect", b"upgrade", b"transfer-encoding", b"connection", b"x-request-id", b"traceparent"}
)
"""Heads with one of these are parsed each time: they steer the connection, or differ every time."""


@dataclass(slots=True, eq=False)
class KnownHead:
    """What one head meant."""

    route: HotRoute
    seen: dict[bytes, bytes]
    """Headers, names in lower case; shared by all requests with this head, so nobody changes it."""
    body_bytes: int


class KnownHeads:
    """Heads of requests that were served."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}
        self.get = self._heads.get

    def learn(
        self, head: bytes, route: HotRoute, seen: dict[bytes, bytes], body_bytes: int
    ) -> None:
        """The parser read this head and then exactly so many bytes of body."""
        if len(head) > HEAD_BYTES_MAX or not _SPECIAL.isdisjoint(seen):
            return
        if seen.get(b"content-length") != b"%d" % body_bytes:
            return
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[head] = KnownHead(route, seen, body_bytes)

    def forget(self) -> None:
        """Routes changed: what heads meant no longer holds."""
        self._heads.clear()
