"""Requests in other forms: as an ASGI scope for the application, as bytes for a fresh parser.

Knows the ASGI specification (HTTP connection scope, version 2.3) and HTTP/1.1; must not know
routes.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httptools


def http_scope(
    method: bytes, version: str, target: bytes, headers: dict[bytes, bytes], base: dict[str, Any]
) -> dict[str, Any]:
    """`base` (addresses, root path, state) and the request line and headers as ASGI wants them.

    Raises httptools.HttpParserInvalidURLError for a target that is no URL.
    """
    url = httptools.parse_url(target)
    path = url.path.decode("latin-1")
    root = base["root_path"]
    return {
        **base,
        "type": "http",
        "http_version": version,
        "method": method.decode("ascii"),
        "path": root + (unquote(path) if "%" in path else path),
        "raw_path": root.encode("ascii") + url.path,
        "query_string": url.query or b"",
        "headers": list(headers.items()),
    }


def without_upgrade(
    method: bytes, target: bytes, version: str, headers: dict[bytes, bytes]
) -> bytes:
    """The head of a request as if it had not asked for an upgrade (RFC 9110, 7.8)."""
    kept = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers.items()
        if name not in {b"upgrade", b"connection", b"http2-settings"}
    ]
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version.encode(), b"".join(kept))
