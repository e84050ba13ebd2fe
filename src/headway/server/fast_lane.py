"""The fast lane: uvicorn's HTTP protocol with model routes served straight from the parser.

A subclass of uvicorn's httptools protocol. A POST to a model route becomes a `Turn` whose body goes
to the runtime and whose reply is written from `Reply.done`: no task, future or timer per request.
Everything else becomes an ordinary ASGI call. One sweep over all connections enforces every time
limit. Knows bytes, order of answers and limits; must not know what a route does with a body.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from uvicorn._types import HTTPScope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headway.core.errors import UserError
from headway.server.asgi_scope import http_scope, without_upgrade
from headway.server.connection import PIPELINE_MAX, Connection
from headway.server.known_heads import KnownHead
from headway.server.limits import (
    head_bytes,
    headers_too_large,
    not_http,
    too_large,
)
from headway.server.service import HotRoute
from headway.server.sweep import BODY, CLOSING, HEAD, IDLE
from headway.server.turn import Turn


class FastLane(Connection):
    """One connection's requests."""

    on_message_begin = None  # type: ignore[assignment]
    """The parser skips a callback that is not there."""

    def data_received(self, data: bytes) -> None:
        if self.stage == CLOSING:
            return
        head = b""
        if self.stage == IDLE:
            body_at = data.find(b"\r\n\r\n") + 4
            head = data[:body_at]
            known = self.known.get(head)
            if known is not None and len(data) - body_at == known.body_bytes:
                self._again(known, data)
                return
            self.stage = HEAD
            self.since_s = self.state.now_s
            self.fed = 0
            self.parsed = None
        self.fed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._ignore_upgrade(data[exc.args[0] :])
        except httptools.HttpParserError as exc:
            self._parser_failed(exc)
        if self.fed > self.state.head_bytes_max:
            self._check_fed()
        turn = self.parsed
        if turn is not None and head and self.stage == IDLE and turn.keep and not turn.old:
            self.state.known.learn(head, turn.route, turn.seen, len(data) - len(head))

    def _again(self, known: KnownHead, data: bytes) -> None:
        """A whole request whose head was parsed before."""
        state, line = self.state, self.line
        self.since_s = state.now_s
        keep = not state.closing
        turn = Turn(self, known.route, known.seen, keep=keep, old=False)
        line.append(turn)
        if len(line) > PIPELINE_MAX:
            self.flow.pause_reading()
        late = state.service.late or state.service.phase == "draining"
        error = state.service.refusal() if late else None
        if error is not None:
            turn.fail(error)
            return
        turn.body = data[-known.body_bytes :] if known.body_bytes else b""
        turn.run()

    def _check_fed(self) -> None:
        if self.stage == HEAD:
            self.refuse(headers_too_large(self.state.head_bytes_max))
        elif self.fed > self.state.fed_max:
            self.refuse(too_large(self.fed, self.state.config.body_bytes_max))

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
        if (
            self.fed > state.head_bytes_max
            and head_bytes(url, seen) > state.config.header_bytes_max
        ):
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
            self.turn = self.parsed = turn = Turn(self, route, seen, keep=keep, old=old)
            line = self.line
            line.append(turn)
            if (
                len(seen.get(b"content-length", b"")) >= state.length_digits
                or b"expect" in seen
                or len(line) > PIPELINE_MAX
            ):
                self._look_ahead(turn, seen)

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

    def _begin_asgi(self) -> None:
        parser = self.parser
        version = parser.get_http_version()
        base: dict[str, Any] = {
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
        }
        base |= {"root_path": self.root_path, "state": self.app_state.copy()}
        base["asgi"] = {"version": self.asgi_version, "spec_version": "2.3"}
        scope = http_scope(parser.get_method(), version, self.url, self.seen, base)
        self.scope = cast("HTTPScope", scope)
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

    # endings

    def _parser_failed(self, exc: Exception) -> None:
        cause = exc.__context__
        bug = cause is not None and not isinstance(cause, httptools.HttpParserError)
        if bug and isinstance(exc, httptools.HttpParserCallbackError):
            self.state.service.log_bug("parser")
            self.refuse(UserError(500, "internal", "the server failed on this request"))
            return
        self.refuse(not_http(exc))

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Serve a request that asks for an upgrade as if it did not (RFC 9110, 7.8).

        The parser stops at an upgrade and would lose the body; a fresh one reads it again.
        """
        method = self.parser.get_method()
        if not self.replay or method == b"CONNECT":
            self.refuse(UserError(501, "not_implemented", "CONNECT and upgrades are not served"))
            return
        self.replay = False
        head = without_upgrade(method, self.url, self.parser.get_http_version(), self.seen)
        self.parser = httptools.HttpRequestParser(self)
        self.stage, self.fed = IDLE, 0
        self.data_received(head + rest)
