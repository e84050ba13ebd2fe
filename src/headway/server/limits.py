"""Refusals of the transport itself: each states the limit, what came and the setting.

Knows the words; must not know who checks.
"""

from __future__ import annotations

from headway.core.errors import UserError


def too_large(size: int, limit: int) -> UserError:
    """413 with the three facts (S11): limit, size, setting."""
    return UserError(
        413,
        "too_large",
        f"the body has {size} bytes or more, the limit is {limit} bytes",
        hint="body_bytes_max sets the limit",
    )


def headers_too_large(limit: int) -> UserError:
    """431."""
    return UserError(
        431,
        "headers_too_large",
        f"the request line and headers exceed {limit} bytes",
        hint="header_bytes_max sets the limit",
    )


def too_many_connections(limit: int) -> UserError:
    """503 to a connection over the limit."""
    return UserError(
        503,
        "too_many_connections",
        f"{limit} connections are open",
        hint="connections_max limits them; keep connections alive and use fewer",
        retry_after_s=1.0,
    )


def headers_too_slow(limit_s: float) -> UserError:
    """408 to a client that does not finish its head."""
    return UserError(
        408,
        "header_timeout",
        f"headers took longer than {limit_s:g} s",
        hint="header_s_max sets the limit",
    )


def body_too_slow(what: str, setting: str) -> UserError:
    """408 to a client that does not finish its body."""
    return UserError(408, "body_timeout", f"the body came {what}", hint=f"{setting} sets the limit")


def head_bytes(url: bytes, seen: dict[bytes, bytes]) -> int:
    """Size of a request line and its headers."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in seen.items())


def not_http(exc: Exception) -> UserError:
    """400 for bytes that are no HTTP/1.1 request."""
    return UserError(400, "malformed", f"not HTTP: {exc}", hint="speak HTTP/1.1 in clear text")
