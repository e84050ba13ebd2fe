"""One request in the order of answers of its connection.

Knows how an answer becomes HTTP/1.1 bytes and when it may be written; must not know how requests
are parsed (`fast_lane`) or what a route does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.request import ItemResult
from headway.core.wire.problem import Answer
from headway.server.exchange import EVENT_STREAM, STREAM_HEADERS, Exchange
from headway.server.service import HotRoute

if TYPE_CHECKING:
    from headway.server.connection import Connection

_CHUNK_END = b"0\r\n\r\n"


class Turn(Exchange):
    """One request's place in the order of answers of its connection."""

    __slots__ = ("continue_wanted", "keep", "lane", "old", "out", "parts")

    def __init__(  # sets its base's attributes itself: a call less for every request
        self, lane: Connection, route: HotRoute, seen: dict[bytes, bytes], *, keep: bool, old: bool
    ) -> None:
        service = lane.state.service
        service.in_flight += 1
        self.service = service
        self.route = route
        self.seen = seen
        self.body = b""
        self.finished = False
        self.streaming = False
        self.trace = ""
        self.work = None
        self.runtime = None
        self.lane = lane
        self.keep = keep
        self.old = old
        """An HTTP/1.0 client: no chunked answers."""
        self.out = b""
        """Bytes that wait for the answers before this one."""
        self.parts: list[bytes] | None = None
        """The body's pieces, when there are several."""
        self.continue_wanted = False

    def done(self, result: ItemResult) -> None:
        """The answer. The plain case, written out, is what nearly every request takes."""
        lane = self.lane
        state = lane.state
        if (
            self.finished
            or result.status != 200
            or self.streaming
            or not self.keep
            or self.old
            or state.closing
            or len(lane.line) != 1
        ):
            super().done(result)
            return
        head = state.heads.get(result.content_type)
        if head is None:
            head = state.head_200(result.content_type)
        body = result.body
        lane.transport.write(
            b"%b%b\r\ncontent-length: %d\r\n\r\n%b"
            % (head, self.trace.encode("latin-1"), len(body), body)
        )
        self.finished = True
        self.work = None
        self.service.in_flight -= 1
        self.route.answered += 1
        lane.line.popleft()
        lane.since_s = state.now_s

    def send_ok(self, content_type: str, body: bytes) -> None:
        self.send(Answer(200, body, content_type))

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
            state.head(status, content_type),
            self.trace_id().encode("latin-1"),
            b"\r\n",
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
        self.work = None
        service = self.service
        service.in_flight -= 1
        service.count(self.route.label, status)
        lane = self.lane
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
