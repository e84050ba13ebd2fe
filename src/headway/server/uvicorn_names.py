"""What the fast lane takes from inside uvicorn, checked at start.

Knows the names and the tested versions; must not need them to be there.
"""

from __future__ import annotations

import uvicorn

try:
    from uvicorn.protocols.http import httptools_impl
except ImportError:
    httptools_impl = None  # type: ignore[assignment]

TESTED = ("0.54",)
"""Releases the fast lane is tested with."""
_MODULE = ("HttpToolsProtocol", "RequestResponseCycle")
_PROTOCOL = (
    "connection_made",
    "connection_lost",
    "data_received",
    "on_message_begin",
    "on_url",
    "on_header",
    "on_headers_complete",
    "on_body",
    "on_message_complete",
    "on_response_complete",
    "_start_asgi_task",
    "pause_writing",
    "resume_writing",
    "shutdown",
)


def missing_names() -> list[str]:
    """Names that are not there, or the version if it is not a tested one."""
    if not uvicorn.__version__.startswith(tuple(f"{v}." for v in TESTED)):
        return [f"a tested version (it is {uvicorn.__version__})"]
    missing = [name for name in _MODULE if not hasattr(httptools_impl, name)]
    protocol = getattr(httptools_impl, "HttpToolsProtocol", None)
    return missing + [name for name in _PROTOCOL if not hasattr(protocol, name)]
