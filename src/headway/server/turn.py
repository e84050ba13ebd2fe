"""One request in the order of answers of its connection.

Knows how an answer becomes HTTP/1.1 bytes and when it may be written; must not know how requests
are parsed (`fast_lane`) or what a route does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.wire.problem import Answer
from headway.server.exchange import EVENT_STREAM, STREAM_HEADERS, Exchange
from headway.server.service import HotRoute

if TYPE_CHECKING:
    from headway.server.fast_lane import FastLane

_CHUNK_END = b"0\r\n\r\n"


class Turn(Exchange):
    """One request's place in the order of answers of its connection."""

    __slots__ = ("continue_wanted", "keep", "lane", "old", "out", "parts")

    def __init__(self, lane: FastLane, route: HotRoute, *, keep: bool, old: bool) -> None:
        super().__init__(lane.state.service, route, lane.seen)
        self.service.in_flight += 1
        self.lane = lane
        self.keep = keep
        self.old = old
        """An HTTP/1.0 client: no chunked answers."""
        self.out = b""
        """Bytes that wait for the answers before this one."""
        self.parts: list[bytes] = []
        self.continue_wanted = False

    def send_ok(self, content_type: str, body: bytes) -> None:
        if self.finished:
            return
        state = self.lane.state
        head = state.heads.get(content_type)
        if head is None:
            head = state.head_200(content_type)
        if not self.keep or state.closing:
            self.keep = False
            head += b"connection: close\r\n"
        elif self.old:
            head += b"connection: keep-alive\r\n"
        out = b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            head,
            self.trace,
            len(body),
            body,
        )
        self._finish(200, out)

    def send(self, answer: Answer) -> None:
        if self.finished:
            return
        head = self._head(answer.status, answer.content_type, answer.headers)
        out = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(answer.body), answer.body)
        self._finish(answer.status, out)

    def open_stream(self, content_type: str) -> None:
        if self.old:
            self.keep = False
        headers = STREAM_HEADERS if content_type == EVENT_STREAM else ()
        head = self._head(200, content_type, headers)
        self._push(head + (b"\r\n" if self.old else b"transfer-encoding: chunked\r\n\r\n"))

    def piece(self, data: bytes) -> None:
        if data and not self.finished:
            self._push(data if self.old else b"%x\r\n%b\r\n" % (len(data), data))

    def close_stream(self, *, ok: bool) -> None:
        if self.finished:
            return
        if not ok:
            self.keep = False
        self._finish(200 if ok else 500, _CHUNK_END if ok and not self.old else b"")

    def _head(self, status: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> bytes:
        state = self.lane.state
        if state.closing:
            self.keep = False
        lines = [
            b"%bx-request-id: %b\r\n" % (state.head(status, content_type), self.trace),
            *(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers),
        ]
        if not self.keep:
            lines.append(b"connection: close\r\n")
        elif self.old:
            lines.append(b"connection: keep-alive\r\n")
        return b"".join(lines)

    def _push(self, data: bytes) -> None:
        """Write now if it is this turn's turn, else keep for later; a reader too slow is left."""
        lane = self.lane
        if lane.line[0] is not self:
            self.out += data
            held = len(self.out)
        else:
            lane.transport.write(data)
            held = lane.transport.get_write_buffer_size() if lane.flow.write_paused else 0
        if held > lane.state.stream_bytes_max:
            self.service.count(self.route.label, 499)
            lane.drop()

    def _finish(self, status: int, out: bytes) -> None:
        self.finished = True
        service = self.service
        service.in_flight -= 1
        service.count(self.route.label, status)
        lane = self.lane
        lane.server_state.total_requests += 1
        if lane.line[0] is self:
            if out:
                lane.transport.write(out)
            lane.advance(self.keep)
        else:
            self.out += out

    def leave(self) -> None:
        """The connection is gone."""
        if not self.finished:
            self.finished = True
            self.service.in_flight -= 1
            self.cancel()
