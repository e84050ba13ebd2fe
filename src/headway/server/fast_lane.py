"""The fast lane: uvicorn's HTTP protocol with model routes served straight from the parser.

A subclass of uvicorn's httptools protocol. A POST to a model route becomes a `Turn` whose body goes
to the runtime and whose reply is written from `Reply.done`: no task, future or timer per request.
Everything else becomes an ordinary ASGI call. One sweep over all connections enforces every time
limit. Knows bytes, order of answers and limits; must not know what a route does with a body.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.core.errors import UserError
from headway.server.lane_state import LaneState
from headway.server.limits import headers_too_large, too_large, too_many_connections
from headway.server.service import HotRoute
from headway.server.sweep import BODY, CLOSING, HEAD, IDLE
from headway.server.turn import Turn

PIPELINE_MAX = 8
"""Unanswered requests of one connection before it is read no further."""


class FastLane(HttpToolsProtocol):
    """One connection."""

    on_message_begin = None  # type: ignore[assignment]
    """The parser skips a callback that is not there."""

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        # The parser takes these two as they are: filling a dictionary and a list needs no frame.
        self.heads: dict[bytes, bytes] = {}
        self.urls: list[bytes] = []
        self.on_header = self.heads.__setitem__  # type: ignore[method-assign, assignment]
        self.on_url = self.urls.append  # type: ignore[method-assign, assignment]
        super().__init__(config, server_state, app_state, _loop)
        self.state: LaneState = app_state["lane"]
        self.hot = self.state.hot
        self.line: deque[Turn | RequestResponseCycle] = deque()
        self.turn: Turn | None = None
        """The turn whose body is being read."""
        self.asgi_body = False
        """The body being read belongs to an ASGI call."""
        self.stage = IDLE
        self.since_s = self.state.now_s
        """Coarse time of the last change of stage, or of the last body bytes."""
        self.body_since_s = 0.0
        self.body_bytes = 0
        self.fed = 0
        """Bytes read since the current head began; an upper bound of its size."""
        self.seen: dict[bytes, bytes] = {}
        """The headers of the request being read, names in lower case."""
        self.url = b""
        self.stuck_bytes = -1
        """Unsent bytes at the last sweep while the client does not read; -1 when it reads."""
        self.replay = False

    # transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        state = self.state
        state.service.connections = len(self.connections)
        if len(self.connections) > state.config.connections_max:
            self.refuse(too_many_connections(state.config.connections_max))

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self.state.service.connections = len(self.connections)
        line, self.line = self.line, deque()
        self.stage = CLOSING
        _abandon(line)
        self.turn = None
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.stage == CLOSING:
            return
        if self.stage == IDLE:
            self.stage = HEAD
            self.since_s = self.state.now_s
            self.fed = 0
        self.fed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._ignore_upgrade(data[exc.args[0] :])
        except httptools.HttpParserError as exc:
            self._parser_failed(exc)
        if self.fed > self.state.head_bytes_max:
            self._check_fed()

    def _check_fed(self) -> None:
        if self.stage == HEAD:
            self.refuse(headers_too_large(self.state.head_bytes_max))
        elif self.fed > self.state.fed_max:
            self.refuse(too_large(self.fed, self.state.config.body_bytes_max))

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        self.stuck_bytes = 1 << 62

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stuck_bytes = -1
        if len(self.line) <= PIPELINE_MAX:
            self.flow.resume_reading()

    # parser

    def on_headers_complete(self) -> None:
        urls = self.urls
        self.url = url = urls[0] if len(urls) == 1 else b"".join(urls)
        urls.clear()
        heads = self.heads
        shape = tuple(heads)
        names = self.state.shapes.get(shape) or self.state.lower(shape)
        self.seen = seen = dict(zip(names, heads.values()))  # noqa: B905 - strict costs 0.1 us
        heads.clear()
        if self.stage == CLOSING:
            return
        state = self.state
        if self.fed > state.head_bytes_max and self._head_too_large():
            self.refuse(headers_too_large(self.state.head_bytes_max))
            return
        self.stage = BODY
        self.body_bytes = 0
        self.since_s = self.body_since_s = state.now_s
        parser = self.parser
        route = self.hot.get(url)
        if route is None and b"?" in url:
            route = self.hot.get(url.partition(b"?")[0])
        if b"upgrade" in seen and parser.should_upgrade():
            self.replay = True
        elif route is None or parser.get_method() != b"POST":
            self._begin_asgi()
        elif (state.service.late or state.service.phase == "draining") and self._shed(route):
            pass
        else:
            keep = parser.should_keep_alive()
            old = (not keep or b"connection" in seen) and parser.get_http_version() == "1.0"
            self.turn = turn = Turn(self, route, seen, keep=keep, old=old)
            line = self.line
            line.append(turn)
            if (
                len(seen.get(b"content-length", b"")) >= state.length_digits
                or b"expect" in seen
                or len(line) > PIPELINE_MAX
            ):
                self._look_ahead(turn, seen)

    def _head_too_large(self) -> bool:
        size = len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.seen.items())
        return size > self.state.config.header_bytes_max

    def on_body(self, body: bytes) -> None:
        self.since_s = self.state.now_s
        self.body_bytes += len(body)
        turn = self.turn
        if turn is None:
            if self.asgi_body:
                super().on_body(body)
            return
        if self.body_bytes > self.state.config.body_bytes_max:
            self.refuse(too_large(self.body_bytes, self.state.config.body_bytes_max))
            return
        if not turn.body:
            turn.body = body
        elif turn.parts is None:
            turn.parts = [turn.body, body]
        else:
            turn.parts.append(body)

    def on_message_complete(self) -> None:
        if self.stage == CLOSING or self.replay:
            return
        turn, self.turn = self.turn, None
        self.heads.clear()  # trailers: they must not become headers of the next request
        self.stage = IDLE
        self.since_s = self.state.now_s
        self.fed = 0
        if turn is not None:
            if turn.parts is not None:
                turn.body = b"".join(turn.parts)
                turn.parts = None
            turn.run()
        elif self.asgi_body:
            self.asgi_body = False
            super().on_message_complete()

    # requests

    def _look_ahead(self, turn: Turn, seen: dict[bytes, bytes]) -> None:
        """What the head says of the body to come."""
        size, limit = int(seen.get(b"content-length", b"0")), self.state.config.body_bytes_max
        if size > limit:
            self.refuse(too_large(size, limit))
            return
        if b"expect" in seen and not turn.old:
            turn.continue_wanted = seen[b"expect"].lower() == b"100-continue"
            if self.line[0] is turn:
                self._continue(turn)
        if len(self.line) > PIPELINE_MAX:
            self.flow.pause_reading()

    def _shed(self, route: HotRoute) -> bool:
        """Refuse a request before its body is read; the connection lives on."""
        error = self.state.service.refusal()
        if error is None:
            return False
        keep = self.parser.should_keep_alive() and b"expect" not in self.seen
        old = self.parser.get_http_version() == "1.0"
        turn = Turn(self, route, self.seen, keep=keep, old=old)
        self.line.append(turn)
        turn.fail(error)
        return True

    def _continue(self, turn: Turn) -> None:
        if turn.continue_wanted and turn is self.turn:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        turn.continue_wanted = False

    def _begin_asgi(self) -> None:
        parser = self.parser
        version = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("latin-1")
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": parser.get_method().decode("ascii"),
            "root_path": self.root_path,
            "path": self.root_path + (unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + url.path,
            "query_string": url.query or b"",
            "headers": list(self.seen.items()),
            "state": self.app_state.copy(),
        }
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.seen.get(b"expect", b"").lower() == b"100-continue",
            keep_alive=version != "1.0" and parser.should_keep_alive() and not self.state.closing,
            on_response=self.on_response_complete,
        )
        self.asgi_body = True
        self.line.append(self.cycle)
        if self.line[0] is self.cycle:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """An ASGI answer is written."""
        head = self.line[0] if self.line else None
        if isinstance(head, RequestResponseCycle):
            self.advance(head.keep_alive)

    def advance(self, keep: bool) -> None:
        """The first in line is answered: write what the next ones have ready."""
        line = self.line
        line.popleft()
        while True:
            if not keep:
                self._close_after_answer()
                return
            if not line:
                break
            head = line[0]
            if not isinstance(head, Turn):
                self._start_asgi_task(head, self.app)
                break
            if head.out:
                self.transport.write(head.out)
                head.out = b""
            if not head.finished:
                self._continue(head)
                break
            line.popleft()
            keep = head.keep
        if self.stage == IDLE:
            self.since_s = self.state.now_s
        if self.flow.read_paused and not self.flow.write_paused and len(line) <= PIPELINE_MAX:
            self.flow.resume_reading()

    def _close_after_answer(self) -> None:
        """Close, but when the client may still be sending let it read the answer first."""
        sending = self.stage != IDLE
        rest, self.line = self.line, deque()
        self.stage = CLOSING
        self.since_s = self.state.now_s
        self.turn = None
        _abandon(rest)
        if sending and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    # endings

    def refuse(self, error: UserError) -> None:
        """Answer what cannot be read any further, in its place in line, and read no more."""
        if self.stage == CLOSING:
            return
        turn = self.turn
        if turn is None:
            turn = Turn(self, self.state.no_route, self.seen, keep=False, old=False)
            self.line.append(turn)
        turn.keep = False
        self.stage = CLOSING
        turn.fail(error)

    def _parser_failed(self, exc: Exception) -> None:
        cause = exc.__context__
        bug = cause is not None and not isinstance(cause, httptools.HttpParserError)
        if bug and isinstance(exc, httptools.HttpParserCallbackError):
            self.state.service.log_bug("parser")
            self.refuse(UserError(500, "internal", "the server failed on this request"))
            return
        self.refuse(
            UserError(400, "malformed", f"not HTTP: {exc}", hint="speak HTTP/1.1 in clear text")
        )

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Serve a request that asks for an upgrade as if it did not (RFC 9110, 7.8).

        The parser stops at an upgrade and would lose the body; a fresh one reads it again.
        """
        method = self.parser.get_method()
        if not self.replay or method == b"CONNECT":
            self.refuse(UserError(501, "not_implemented", "CONNECT and upgrades are not served"))
            return
        self.replay = False
        kept = [
            b"%b: %b\r\n" % (name, value)
            for name, value in self.seen.items()
            if name not in {b"upgrade", b"connection", b"http2-settings"}
        ]
        version = self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(kept))
        self.parser = httptools.HttpRequestParser(self)
        self.stage, self.fed = IDLE, 0
        self.data_received(head + rest)

    def drop(self) -> None:
        """Cut the connection at once and cancel all it has."""
        self.stage = CLOSING
        self.transport.abort()
        _abandon(self.line)

    def shutdown(self) -> None:
        """Close if nothing is being served, else after the last answer."""
        if not self.line and self.stage != BODY:
            self.transport.close()
            return
        for entry in self.line:
            if isinstance(entry, Turn):
                entry.keep = False
            else:
                entry.keep_alive = False


def _abandon(line: Iterable[Turn | RequestResponseCycle]) -> None:
    """Nobody will hear these answers."""
    for entry in line:
        if isinstance(entry, Turn):
            entry.leave()
        else:
            entry.disconnected = True
            entry.message_event.set()
