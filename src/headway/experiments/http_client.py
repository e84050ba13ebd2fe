"""A lean HTTP/1.1 client connection: one request at a time, as little work for each as possible.

Knows how to send ready-made bytes and find where an answer ends; must not know schedules or
statistics.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

import httptools

from headway.core.errors import ConfigError


class Owner(Protocol):
    """Who sends over connections."""

    def answered(self, connection: Connection, status: int, at_s: float) -> None:
        """An answer is complete; the connection is free again unless it is closed."""

    def broken(self, connection: Connection, error: str) -> None:
        """The connection ended with a request unanswered."""

    def closed(self, connection: Connection) -> None:
        """The connection ended while idle."""


class Address:
    """Where requests go, from a URL. Raises ConfigError when it is none."""

    def __init__(self, url: str) -> None:
        if "://" not in url:
            url = "http://" + url
        parts: SplitResult = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(
                f"{url!r} is no http(s) URL", param="URL", hint="http://host:8000/predict"
            )
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        try:
            self.port = parts.port or (443 if self.tls else 80)
        except ValueError as e:
            raise ConfigError(f"{url!r}: {e}", param="URL") from None
        self.netloc = parts.netloc.rpartition("@")[2]
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def request(
        self, body: bytes, *, method: str = "POST", headers: tuple[tuple[str, str], ...] = ()
    ) -> bytes:
        """The bytes of one request."""
        given = {name.lower() for name, _ in headers}
        lines = [f"{method} {self.path} HTTP/1.1", f"host: {self.netloc}"]
        if body and "content-type" not in given:
            lines.append("content-type: application/json")
        if body or method not in {"GET", "HEAD"}:
            lines.append(f"content-length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    __slots__ = (
        "_body",
        "_keep",
        "_parser",
        "busy",
        "owner",
        "scheduled_s",
        "sent_s",
        "serial",
        "transport",
        "until_close",
    )

    def __init__(self, owner: Owner, *, keep_body: bool = False) -> None:
        self.owner = owner
        self.transport: asyncio.Transport | None = None
        self.busy = False
        self.scheduled_s = 0.0
        self.sent_s = 0.0
        self.serial = 0
        """Counts requests, so that a late time-out can tell an old one from a new one."""
        self.until_close = False
        self._body: bytearray | None = bytearray() if keep_body else None
        self._parser = httptools.HttpResponseParser(self)

    @property
    def body(self) -> bytes:
        """The last answer's body, where it is kept."""
        return bytes(self._body or b"")

    def send(self, request: bytes, scheduled_s: float, now_s: float) -> None:
        """Send one request. The connection must be idle."""
        assert self.transport is not None and not self.busy
        self.busy = True
        self.serial += 1
        self.scheduled_s = scheduled_s
        self.sent_s = now_s
        if self._body is not None:
            self._body.clear()
        self.transport.write(request)

    def drop(self) -> None:
        """Close without waiting for anything."""
        self.busy = False
        if self.transport is not None:
            self.transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as e:
            if self.busy:
                self.busy = False
                self.owner.broken(self, f"bad answer: {type(e).__name__}")
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.busy:
            self.owner.closed(self)
            return
        self.busy = False
        if self.until_close and exc is None:
            self.owner.answered(self, self._parser.get_status_code(), time.monotonic())
        else:
            self.owner.broken(self, "connection reset" if exc else "connection closed")

    # httptools

    def on_headers_complete(self) -> None:
        self.until_close = not self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if self._body is not None:
            self._body += data

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or not self.busy:
            return
        now_s = time.monotonic()
        self.busy = False
        if self.until_close and self.transport is not None:
            self.transport.close()
            self.transport = None
        self.owner.answered(self, status, now_s)


async def open_connection(
    address: Address, owner: Owner, *, limit_s: float, keep_body: bool = False
) -> Connection:
    """Connect. Raises OSError (a time-out included)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limit_s):
        _, connection = await loop.create_connection(
            lambda: Connection(owner, keep_body=keep_body),
            address.host,
            address.port,
            ssl=True if address.tls else None,
        )
    return connection


class _One:
    """Owner of a single exchange."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def answered(self, connection: Connection, status: int, at_s: float) -> None:
        if not self.answer.done():
            self.answer.set_result(status)

    def broken(self, connection: Connection, error: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(OSError(error))

    def closed(self, connection: Connection) -> None:
        pass


async def fetch(url: str, *, limit_s: float = 5.0) -> tuple[int, bytes]:
    """GET one page: status and body. Raises OSError (a time-out included)."""
    address = Address(url)
    owner = _One()
    connection = await open_connection(address, owner, limit_s=limit_s, keep_body=True)
    try:
        now_s = time.monotonic()
        connection.send(address.request(b"", method="GET"), now_s, now_s)
        async with asyncio.timeout(limit_s):
            status = await owner.answer
        return status, connection.body
    finally:
        connection.drop()
