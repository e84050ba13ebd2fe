"""The ASGI application: every route, for all that does not take the fast lane.

Documents (health, metadata, metrics, docs) are answered here; model routes too, with the same
functions as in the fast lane, so that the server still works where the fast lane cannot. Knows
ASGI; must not know what a route does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from headway.core.errors import UserError
from headway.core.wire.problem import Answer, problem
from headway.server.exchange import (
    EVENT_STREAM,
    STREAM_HEADERS,
    Exchange,
)
from headway.server.limits import too_large
from headway.server.routes import Ask, Found, dialect_of, find
from headway.server.service import HotRoute, Service

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """One replica's ASGI application."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"scope {scope['type']!r} is not served")
        path = scope["path"]
        seen = {k.lower(): v for k, v in scope["headers"]}
        trace = seen.get(b"x-request-id") or self.service.next_trace().encode()
        seen[b"x-request-id"] = trace
        try:
            found = find(self.service, path)
            if scope["method"] == "POST" and found.hot is not None:
                await self._serve_hot(found.hot, seen, receive, send)
                return
            answer = self._document(scope, found)
        except UserError as exc:
            answer = problem(dialect_of(path), exc)
        except Exception:  # a bug in one route must not take the connection down unanswered
            self.service.log_bug(path)
            bug = UserError(500, "internal", "the server failed on this request")
            answer = problem(dialect_of(path), bug)
        self.service.count("other", answer.status)
        await _send(send, answer, trace)

    def _document(self, scope: MutableMapping[str, Any], found: Found) -> Answer:
        method = scope["method"]
        allowed = []
        if found.get is not None:
            allowed += ["GET", "HEAD"]
        if found.hot is not None:
            allowed.append("POST")
        if found.get is not None and method in {"GET", "HEAD"}:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            return found.get(Ask(self.service, found.params, query))
        allow = (("allow", ", ".join([*allowed, "OPTIONS"])),)
        if method == "OPTIONS":
            return Answer(204, b"", "text/plain", allow)
        error = UserError(
            405,
            "method_not_allowed",
            f"{method} is not for {scope['path']}",
            hint="use " + " or ".join(allowed),
        )
        answer = problem(dialect_of(scope["path"]), error)
        answer.headers += allow
        return answer

    async def _serve_hot(
        self, route: HotRoute, seen: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        ex = AsgiExchange(self.service, route, seen)
        error = self.service.refusal()
        self.service.in_flight += 1
        try:
            if error is not None:
                ex.fail(error)
            elif await ex.read(receive):
                ex.run()
            else:
                return
            await ex.pump(receive, send)
        finally:
            ex.finished = True
            self.service.in_flight -= 1
            ex.cancel()


class AsgiExchange(Exchange):
    """A model route's request that came as an ASGI call."""

    __slots__ = ("_held", "_news", "_out")

    def __init__(self, service: Service, route: HotRoute, seen: dict[bytes, bytes]) -> None:
        super().__init__(service, route, seen)
        self._out: list[Message] = []
        self._held = 0
        self._news = asyncio.Event()

    async def read(self, receive: Receive) -> bool:
        """Take the body; False when the client left first (B12)."""
        limit = self.service.config.server.body_bytes_max
        declared = self.seen.get(b"content-length", b"0")
        parts: list[bytes] = []
        size = int(declared) if declared.isdigit() else 0
        if size > limit:
            self.fail(too_large(size, limit))
            return True
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                self.fail(too_large(size, limit))
                return True
            if not message.get("more_body"):
                self.body = b"".join(parts)
                return True

    def run(self) -> None:
        if not self.finished:
            super().run()

    async def pump(self, receive: Receive, send: Send) -> None:
        """Write what comes until the answer is whole or the client leaves."""
        gone = asyncio.ensure_future(_disconnect(receive))
        gone.add_done_callback(lambda _: self._news.set())
        try:
            while not gone.done():
                await self._news.wait()
                self._news.clear()
                out, self._out, self._held = self._out, [], 0
                for message in out:
                    await send(message)
                if self.finished:
                    return
        finally:
            gone.cancel()

    def send(self, answer: Answer) -> None:
        if not self.finished:
            self._put(_start(answer, self.trace_id().encode("latin-1")))
            self._end(answer.status, answer.body)

    def send_ok(self, content_type: str, body: bytes) -> None:
        self.send(Answer(200, body, content_type))

    def open_stream(self, content_type: str) -> None:
        headers = STREAM_HEADERS if content_type == EVENT_STREAM else ()
        start = _start(
            Answer(200, b"", content_type, headers),
            self.trace_id().encode("latin-1"),
            sized=False,
        )
        self._put(start)

    def piece(self, data: bytes) -> None:
        self._held += len(data)
        self._put({"type": "http.response.body", "body": data, "more_body": True})
        if self._held > self.service.config.server.stream_buffer_bytes_max:
            self.close_stream(ok=False)
            self.cancel()

    def close_stream(self, *, ok: bool) -> None:
        if ok:
            self._end(200, b"")
            return
        # an answer that never says more_body False is cut by the server, so the client sees it
        self.finished = True
        self.service.count(self.route.label, 500)
        self._news.set()

    def _end(self, status: int, body: bytes) -> None:
        self.finished = True
        self.service.count(self.route.label, status)
        self._put({"type": "http.response.body", "body": body})

    def _put(self, message: Message) -> None:
        self._out.append(message)
        self._news.set()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def _start(answer: Answer, trace: bytes, *, sized: bool = True) -> Message:
    headers = [(b"x-request-id", trace)]
    if answer.status != 204:
        headers.append((b"content-type", answer.content_type.encode("latin-1", "replace")))
        if sized:
            headers.append((b"content-length", b"%d" % len(answer.body)))
    headers += [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


async def _send(send: Send, answer: Answer, trace: bytes) -> None:
    await send(_start(answer, trace))
    await send({"type": "http.response.body", "body": answer.body})
