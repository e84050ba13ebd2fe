"""The fast lane: uvicorn's HTTP protocol with model routes served straight from the parser.

A subclass of uvicorn's httptools protocol. A POST to a model route becomes a `Turn` whose body goes
to the runtime and whose reply is written from `Reply.done`: no task, future or timer per request.
Everything else becomes an ordinary ASGI call. One sweep over all connections enforces every time
limit. Knows bytes, order of answers and limits; must not know what a route does with a body.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.core.errors import UserError
from headway.server.exchange import HEADERS_OF_INTEREST, too_large
from headway.server.lane_state import LaneState
from headway.server.service import HotRoute
from headway.server.turn import Turn

PIPELINE_MAX = 8
"""Unanswered requests of one connection before it is read no further."""
_IDLE, _HEAD, _BODY, _CLOSING = range(4)


class FastLane(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.state: LaneState = app_state["lane"]
        self.hot = self.state.hot
        self.line: deque[Turn | RequestResponseCycle] = deque()
        self.turn: Turn | None = None
        """The turn whose body is being read."""
        self.asgi_body = False
        """The body being read belongs to an ASGI call."""
        self.stage = _IDLE
        self.since_s = self.state.now_s
        """Coarse time of the last change of stage, or of the last body bytes."""
        self.body_since_s = 0.0
        self.body_bytes = 0
        self.fed = 0
        """Bytes read since the current head began; an upper bound of its size."""
        self.seen: dict[bytes, bytes] = {}
        self.stuck_bytes = -1
        """Unsent bytes at the last sweep while the client does not read; -1 when it reads."""
        self.replay = False

    # transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        state = self.state
        state.service.connections = len(self.connections)
        if len(self.connections) > state.config.connections_max:
            limit = state.config.connections_max
            self.refuse(
                UserError(
                    503,
                    "too_many_connections",
                    f"{limit} connections are open",
                    hint="connections_max limits them; keep connections alive and use fewer",
                    retry_after_s=1.0,
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self.state.service.connections = len(self.connections)
        line, self.line = self.line, deque()
        self.stage = _CLOSING
        for entry in line:
            if isinstance(entry, Turn):
                entry.leave()
            else:
                entry.disconnected = True
                entry.message_event.set()
        self.turn = None
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.stage == _CLOSING:
            return
        if self.stage == _IDLE:
            self.stage = _HEAD
            self.since_s = self.state.now_s
            self.fed = 0
        self.fed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._ignore_upgrade(data[exc.args[0] :])
        except httptools.HttpParserError as exc:
            self._parser_failed(exc)
        if self.stage == _HEAD and self.fed > self.state.config.header_bytes_max:
            self._refuse_head()
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

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.seen = {}
        if self.stage == _IDLE:
            self.stage = _HEAD
            self.since_s = self.state.now_s

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage != _HEAD:
            return  # a trailer: it must not change what the head said
        name = name.lower()
        self.headers.append((name, value))
        if name in HEADERS_OF_INTEREST:
            self.seen[name] = value

    def on_headers_complete(self) -> None:
        if self.stage == _CLOSING:
            return
        if self.fed > self.state.config.header_bytes_max and self._head_too_large():
            self._refuse_head()
            return
        self.stage = _BODY
        self.body_bytes = 0
        self.since_s = self.body_since_s = self.state.now_s
        parser = self.parser
        route = self.hot.get(self.url)
        if route is None and b"?" in self.url:
            route = self.hot.get(self.url.partition(b"?")[0])
        if parser.should_upgrade():
            self.replay = True
        elif route is None or parser.get_method() != b"POST":
            self._begin_asgi()
        else:
            self._begin_turn(route)

    def _head_too_large(self) -> bool:
        size = len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.headers)
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
        turn.parts.append(body)

    def on_message_complete(self) -> None:
        if self.stage == _CLOSING or self.replay:
            return
        turn, self.turn = self.turn, None
        self.stage = _IDLE
        self.since_s = self.state.now_s
        self.fed = 0
        if turn is not None:
            parts = turn.parts
            turn.body = parts[0] if len(parts) == 1 else b"".join(parts)
            turn.parts = []
            turn.run()
        elif self.asgi_body:
            self.asgi_body = False
            super().on_message_complete()

    # requests

    def _begin_turn(self, route: HotRoute) -> None:
        state = self.state
        service = state.service
        if (service.late or service.phase == "draining") and self._shed(route):
            return
        parser = self.parser
        old = parser.get_http_version() == "1.0"
        turn = Turn(self, route, keep=parser.should_keep_alive(), old=old)
        self.turn = turn
        line = self.line
        line.append(turn)
        length = self.seen.get(b"content-length")
        if length is not None and int(length) > state.config.body_bytes_max:
            self.refuse(too_large(int(length), state.config.body_bytes_max))
            return
        if b"expect" in self.seen and not old:
            turn.continue_wanted = self.seen[b"expect"].lower() == b"100-continue"
            if line[0] is turn:
                self._continue(turn)
        if len(line) > PIPELINE_MAX:
            self.flow.pause_reading()

    def _shed(self, route: HotRoute) -> bool:
        """Refuse a request before its body is read; the connection lives on."""
        error = self.state.service.refusal()
        if error is None:
            return False
        parser = self.parser
        old = parser.get_http_version() == "1.0"
        turn = Turn(self, route, keep=parser.should_keep_alive(), old=old)
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
            "headers": self.headers,
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
        self.server_state.total_requests += 1
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
        if self.stage == _IDLE:
            self.since_s = self.state.now_s
        if self.flow.read_paused and not self.flow.write_paused and len(line) <= PIPELINE_MAX:
            self.flow.resume_reading()

    def _close_after_answer(self) -> None:
        """Close, but when the client may still be sending let it read the answer first."""
        sending = self.stage != _IDLE
        rest, self.line = self.line, deque()
        self.stage = _CLOSING
        self.since_s = self.state.now_s
        self.turn = None
        for entry in rest:
            if isinstance(entry, Turn):
                entry.leave()
            else:
                entry.disconnected = True
                entry.message_event.set()
        if sending and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    # endings

    def refuse(self, error: UserError) -> None:
        """Answer what cannot be read any further, in its place in line, and read no more."""
        if self.stage == _CLOSING:
            return
        turn = self.turn
        if turn is None:
            turn = Turn(self, self.state.no_route, keep=False, old=False)
            self.line.append(turn)
        turn.keep = False
        self.stage = _CLOSING
        turn.fail(error)

    def _refuse_head(self) -> None:
        limit = self.state.config.header_bytes_max
        self.refuse(
            UserError(
                431,
                "headers_too_large",
                f"the request line and headers exceed {limit} bytes",
                hint="header_bytes_max sets the limit",
            )
        )

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
            for name, value in self.headers
            if name not in {b"upgrade", b"connection", b"http2-settings"}
        ]
        version = self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(kept))
        self.parser = httptools.HttpRequestParser(self)
        self.stage, self.fed = _IDLE, 0
        self.data_received(head + rest)

    def drop(self) -> None:
        """Cut the connection at once and cancel all it has."""
        self.stage = _CLOSING
        self.transport.abort()
        for entry in self.line:
            if isinstance(entry, Turn):
                entry.leave()

    def shutdown(self) -> None:
        """Close if nothing is being served, else after the last answer."""
        if not self.line and self.stage != _BODY:
            self.transport.close()
            return
        for entry in self.line:
            if isinstance(entry, Turn):
                entry.keep = False
            else:
                entry.keep_alive = False

    def sweep(self, now_s: float) -> None:
        """Enforce the time limits of this connection."""
        limits = self.state.config
        waited_s = now_s - self.since_s
        if self.flow.write_paused:
            self._sweep_unread(now_s)
        elif self.stage == _BODY:
            self._sweep_body(now_s, waited_s)
        elif self.stage == _HEAD:
            if waited_s > limits.header_s_max:
                self.refuse(
                    UserError(
                        408,
                        "header_timeout",
                        f"headers took longer than {limits.header_s_max:g} s",
                        hint="header_s_max sets the limit",
                    )
                )
        elif self.line:
            return
        elif self.stage == _CLOSING:
            if waited_s > self.state.close_linger_s:
                self.transport.abort()
        elif waited_s > limits.keep_alive_s:
            self.transport.close()

    def _sweep_body(self, now_s: float, waited_s: float) -> None:
        limits = self.state.config
        taken_s = now_s - self.body_since_s
        silent = waited_s > limits.body_gap_s_max
        rate = self.body_bytes / max(taken_s, 1e-9)
        slow = taken_s > limits.body_gap_s_max and rate < limits.body_rate_bytes_s_min
        if not silent and not slow:
            return
        if self.turn is None and (not self.asgi_body or self.cycle.response_complete):
            self.drop()  # it is already answered
            return
        what = f"silent for longer than {limits.body_gap_s_max:g} s"
        setting = "body_gap_s_max"
        if not silent:
            what = f"slower than {limits.body_rate_bytes_s_min:g} bytes/s"
            setting = "body_rate_bytes_s_min"
        self.refuse(
            UserError(
                408, "body_timeout", f"the body came {what}", hint=f"{setting} sets the limit"
            )
        )

    def _sweep_unread(self, now_s: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent < self.stuck_bytes:
            self.stuck_bytes = unsent
            self.since_s = now_s
        elif now_s - self.since_s > self.state.config.body_gap_s_max:
            self.drop()
