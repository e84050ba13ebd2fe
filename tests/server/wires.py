"""A fast lane on a transport in memory."""

from __future__ import annotations

from typing import Any

from headway.core.config import ServerConfig
from headway.server.fast_lane import FastLane
from headway.server.lifecycle import Replica
from headway.server.service import Service
from headway.server.sweep import sweep
from tests.server.toy import ToyRuntime, make_service


class Pipe:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.aborted = False
        self.eof = False
        self.reading = True
        self.unsent = 0

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Wire:
    """One connection: `feed` bytes, look at `pipe.sent`."""

    def __init__(self, service: Service | None = None, **settings: Any) -> None:
        self.runtime = ToyRuntime()
        self.service = service or make_service(self.runtime, **settings)
        self.replica = Replica(self.service)
        self.pipe = Pipe()
        self.lane: FastLane = self.replica._connection()
        self.lane.connection_made(self.pipe)  # type: ignore[arg-type]

    @property
    def limits(self) -> ServerConfig:
        return self.service.config.server

    def feed(self, data: bytes) -> bytes:
        """Send bytes; returns what was written because of them."""
        before = len(self.pipe.sent)
        self.lane.data_received(data)
        return self.pipe.sent[before:]

    def sweep_in(self, seconds: float) -> bytes:
        """What a sweep this much later writes. Moves this connection's clock."""
        before = len(self.pipe.sent)
        self.replica.lanes.now_s += seconds
        sweep(self.lane, self.replica.lanes.now_s)
        return self.pipe.sent[before:]

    def lose(self) -> None:
        """The client is gone."""
        self.lane.connection_lost(None)


def post(
    body: bytes = b"{}",
    path: str = "/predict",
    *headers: str,
    version: str = "1.1",
    length: bool = True,
) -> bytes:
    """A request's bytes."""
    lines = [f"POST {path} HTTP/{version}", "host: h", *headers]
    if length:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answers(raw: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of each answer in some bytes."""
    found = []
    while raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        size = int(headers.get("content-length", 0))
        if headers.get("transfer-encoding") == "chunked":
            size = len(rest)
        found.append((status, headers, rest[:size]))
        raw = rest[size:]
    return found
