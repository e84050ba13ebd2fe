"""One connection: its place in the order of answers, its flow, its endings.

Knows transports, the order of answers and what ends a connection; must not know how requests are
read (`fast_lane`, which subclasses this) or what a route does with a body.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.core.errors import UserError
from headway.server.lane_state import LaneState
from headway.server.limits import too_many_connections
from headway.server.sweep import BODY, CLOSING, IDLE
from headway.server.turn import Turn

PIPELINE_MAX = 8
"""Unanswered requests of one connection before it is read no further."""


class Connection(HttpToolsProtocol):
    """A client's connection and the requests in line on it."""

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
        self.known = self.state.known
        self.parsed: Turn | None = None
        """The last turn made from a head that the parser read."""
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

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        self.stuck_bytes = 1 << 62

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stuck_bytes = -1
        if len(self.line) <= PIPELINE_MAX:
            self.flow.resume_reading()

    # order of answers

    def _continue(self, turn: Turn) -> None:
        if turn.continue_wanted and turn is self.turn:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        turn.continue_wanted = False

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
