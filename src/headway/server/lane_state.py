"""What all connections of the fast lane share: limits, coarse time, ready-made answer heads.

Knows the service and the settings; must not know one connection from another.
"""

from __future__ import annotations

import time
from email.utils import formatdate

from headway.core.config import ServerConfig
from headway.core.wire.problem import TITLES, Dialect
from headway.server.exchange import Exchange
from headway.server.known_heads import KnownHeads
from headway.server.service import HotRoute, Service

_CLOSE_LINGER_S = 2.0
_HEADS_MAX = 64
_CHUNK_OVERHEAD = 2
_SHAPES_MAX = 128


def _unreachable(_: Exchange) -> None:
    raise AssertionError("a refused connection has no route")


class LaneState:
    """Shared by every `FastLane`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.hot = service.hot
        self.known = KnownHeads()
        self.config: ServerConfig = service.config.server
        self.head_bytes_max = self.config.header_bytes_max
        self.length_digits = len(str(self.config.body_bytes_max))
        """A content-length with fewer digits is within the limit."""
        self.closing = False
        """Answers say `connection: close` from now on."""
        self.now_s = time.monotonic()
        """Time of the last sweep; connections date their stages by it."""
        self.stream_bytes_max = self.config.stream_buffer_bytes_max
        self.close_linger_s = _CLOSE_LINGER_S
        """After a refusal: how long the client may go on sending before it is cut."""
        self.fed_max = self.config.header_bytes_max + _CHUNK_OVERHEAD * self.config.body_bytes_max
        """Bytes of one message with its framing, so that trailers and chunk sizes end too."""
        self.no_route = HotRoute("none", Dialect.PLAIN, _unreachable)
        self.heads: dict[str, bytes] = {}
        self.shapes: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        """Header names in lower case by the names as sent: a client sends the same ones again."""
        self._heads: dict[tuple[int, str], bytes] = {}
        self.date = b""
        self.refresh()

    @property
    def sweep_s(self) -> float:
        """Time between sweeps: 1 s, less only where a limit is shorter."""
        c = self.config
        return min(1.0, min(c.header_s_max, c.body_gap_s_max, c.keep_alive_s) / 2)

    def lower(self, shape: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Header names in lower case, remembered."""
        if len(self.shapes) >= _SHAPES_MAX:
            self.shapes.clear()
        names = self.shapes[shape] = tuple([name.lower() for name in shape])
        return names

    def refresh(self) -> None:
        """Take the time anew and let heads be made with it."""
        self.now_s = time.monotonic()
        self.date = formatdate(time.time(), usegmt=True).encode()
        self.heads.clear()
        self._heads.clear()

    def head_200(self, content_type: str) -> bytes:
        """Status line, date and content type of a 200, remembered for the hot path."""
        head = self.head(200, content_type)
        self.heads[content_type] = head
        return head

    def head(self, status: int, content_type: str) -> bytes:
        """Status line, date and content type of any answer, up to the request id."""
        head = self._heads.get((status, content_type))
        if head is None:
            title = "OK" if status == 200 else TITLES.get(status, "Status")
            kind = content_type.replace("\r", " ").replace("\n", " ")
            head = b"HTTP/1.1 %d %b\r\ndate: %b\r\ncontent-type: %b\r\nx-request-id: " % (
                status,
                title.encode(),
                self.date,
                kind.encode("latin-1", "replace"),
            )
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
                self.heads.clear()
            self._heads[status, content_type] = head
        return head
