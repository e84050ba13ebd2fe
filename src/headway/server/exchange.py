"""One HTTP request to a model and its answer, whichever way its bytes came.

Knows the request's headers of interest, how to turn an item's result into an answer in the route's
dialect, and how a stream is framed; must not know sockets (`fast_lane`) or ASGI (`app`), which
subclass it, nor what a route does with the body.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from headway.core.errors import UserError
from headway.core.request import Codec, ItemResult, Reply, Request
from headway.core.wire.problem import Answer, error_of, problem, sse

if TYPE_CHECKING:
    from headway.core.ports import Runtime
    from headway.server.service import HotRoute, Service

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
_TRACE_BYTES_MAX = 128
_DEADLINE_MS_MAX = 86_400_000.0


class Exchange:
    """A request being served. It is the `Reply` of the simple case: one item, one answer."""

    __slots__ = (
        "body",
        "finished",
        "route",
        "runtime",
        "seen",
        "service",
        "streaming",
        "trace",
        "work",
    )

    def __init__(self, service: Service, route: HotRoute, seen: dict[bytes, bytes]) -> None:
        self.service = service
        self.route = route
        self.seen = seen
        self.body = b""
        self.finished = False
        self.streaming = False
        self.work: Request | list[Request] | None = None
        """What a client that leaves cancels."""
        self.runtime: Runtime | None = None
        """Who was given that work."""
        self.trace = ""

    # what a subclass writes

    def send(self, answer: Answer) -> None:
        """Write a whole answer. The first answer wins; later ones are dropped."""
        raise NotImplementedError

    def send_ok(self, content_type: str, body: bytes) -> None:
        """Write a 200. Apart from `send` because it is the hot path."""
        raise NotImplementedError

    def open_stream(self, content_type: str) -> None:
        """Write the head of a streamed 200."""
        raise NotImplementedError

    def piece(self, data: bytes) -> None:
        """Write one piece of the body of a stream."""
        raise NotImplementedError

    def close_stream(self, *, ok: bool) -> None:
        """End the stream; with `ok` False so that the client sees it was cut."""
        raise NotImplementedError

    def trace_id(self) -> str:
        """The client's X-Request-Id, or ours."""
        if not self.trace:
            given = self.seen.get(b"x-request-id", b"")[:_TRACE_BYTES_MAX]
            self.trace = given.decode("latin-1") or self.service.next_trace()
        return self.trace

    # what routes call

    def run(self) -> None:
        """The body is complete: let the route serve it. Whatever it raises is answered."""
        try:
            self.route.handle(self)
        except UserError as exc:
            self.fail(exc)
        except Exception:  # a bug of ours must be answered, and must not blame the client
            self.service.log_bug(self.route.label)
            self.fail(UserError(500, "internal", "the server failed on this request"))

    def request(
        self, payload: bytes, codec: Codec, *, rows: int = 1, reply: Reply | None = None
    ) -> Request:
        """A request to this exchange's model, not yet handed over.

        Raises UserError 400 naming a header of ours that makes no sense.
        """
        service = self.service
        seen = self.seen
        service.last_id = number = service.last_id + 1
        now = service.now()
        given = seen.get(b"x-request-id")
        if given:
            self.trace = trace = given[:_TRACE_BYTES_MAX].decode("latin-1")
        else:
            self.trace = trace = f"{service.boot}{number:x}"
        kind = seen.get(b"content-type")
        request = Request(
            number,
            payload,
            now,
            self if reply is None else reply,
            codec,
            "" if kind is None else kind.decode("latin-1"),
            rows,
            len(payload) / rows,
        )
        request.trace = trace
        if (
            b"headway-deadline-ms" in seen
            or b"headway-priority" in seen
            or b"headway-tenant" in seen
        ):
            read_headers(seen, request, now)
        return request

    def wants_events(self) -> bool:
        """Did the client ask for server-sent events?"""
        return b"text/event-stream" in self.seen.get(b"accept", b"")

    def fail(self, error: UserError) -> None:
        """Answer with an error in the route's dialect, or end a started stream with it (S12)."""
        if self.finished:
            return
        answer = problem(self.route.dialect, error)
        if not self.streaming:
            self.send(answer)
        elif self.wants_events():
            self.piece(sse(answer.body, b"error"))
            self.close_stream(ok=True)
        else:
            self.close_stream(ok=False)

    def cancel(self) -> None:
        """The client left: nobody waits for the work any more."""
        work, self.work = self.work, None
        if work is None or self.runtime is None:
            return
        for request in work if isinstance(work, list) else (work,):
            self.runtime.cancel(request)

    # core.request.Reply

    def done(self, result: ItemResult) -> None:
        """The answer, or the end of a stream."""
        if self.finished:
            return
        if self.streaming:
            self._end_stream(result)
        elif result.status == 200:
            self.send_ok(result.content_type, result.body)
        else:
            self.fail(error_of(result))

    def chunk(self, body: bytes) -> None:
        """One piece of a streamed answer."""
        if self.finished:
            return
        events = self.wants_events()
        if not self.streaming:
            self.streaming = True
            self.open_stream(EVENT_STREAM if events else "application/octet-stream")
        self.piece(sse(body) if events else body)

    def _end_stream(self, result: ItemResult) -> None:
        if result.status != 200:
            self.fail(error_of(result))
            return
        if self.wants_events():
            self.piece(b"data: [DONE]\n\n")
        self.close_stream(ok=True)


def read_headers(seen: dict[bytes, bytes], request: Request, now: float) -> None:
    """Deadline, priority and tenant from our headers. Raises UserError 400 naming the header."""
    raw = seen.get(b"headway-deadline-ms")
    if raw is not None:
        ms = _number(raw, "headway-deadline-ms")
        if not 0 < ms <= _DEADLINE_MS_MAX:
            raise _bad_header("headway-deadline-ms", raw, "milliseconds left, more than 0")
        request.deadline_s = now + ms / 1000
    raw = seen.get(b"headway-priority")
    if raw is not None:
        level = _number(raw, "headway-priority")
        if level < 0 or level != int(level):
            raise _bad_header("headway-priority", raw, "a whole number; 1 is highest, 0 is default")
        request.priority = int(level)
    raw = seen.get(b"headway-tenant")
    if raw is not None:
        request.tenant = raw.decode("latin-1")


def _number(raw: bytes, name: str) -> float:
    try:
        value = float(raw)
    except ValueError:
        value = inf
    if not -inf < value < inf:
        raise _bad_header(name, raw, "a number")
    return value


def _bad_header(name: str, raw: bytes, wanted: str) -> UserError:
    text = raw[:64].decode("latin-1")
    return UserError(400, "malformed", f"{name} is {text!r}", hint=f"send {wanted}", param=name)
