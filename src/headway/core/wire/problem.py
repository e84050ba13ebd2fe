"""An answer's bytes, and refusals in the dialect of the route that was asked.

Knows the three error shapes (OpenAI's, the Open Inference Protocol's, RFC 9457) and which headers
go with them; must not know sockets, routes or why a request failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from msgspec import DecodeError, ValidationError, json

from headway.core.errors import UserError
from headway.core.request import ItemResult

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"


class Dialect(IntEnum):
    """Which shape a route's errors have."""

    PLAIN = 0
    """RFC 9457 problem details."""
    OPENAI = 1
    """`{"error": {"message", "type", "param", "code"}}`, under /v1."""
    OIP = 2
    """`{"error": text}` and the header `headway-error-code`, under /v2."""


@dataclass(slots=True)
class Answer:
    """One whole HTTP answer, short of its status line and length. Header names are lower case."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def json_answer(
    document: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """A JSON document as an answer."""
    return Answer(status, json.encode(document), JSON, headers)


TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    499: "Client Closed Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

_OPENAI_TYPES = {
    401: "authentication_error",
    408: "timeout",
    429: "rate_limit_error",
    503: "service_unavailable",
    504: "timeout",
}

_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)
_POSITION = re.compile(r"\(byte (\d+)\)")
_FIELD = re.compile(r"at `\$\.?(.*?)`$")

_KEPT_CHARS_MAX = 256
"""Longest message whose rendering is remembered."""

_DEFAULT_CODES = {
    400: "malformed",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    422: "item_error",
    429: "queue_full",
    503: "not_ready",
    504: "timeout",
}


def openai_type(status: int) -> str:
    """The `type` OpenAI clients switch on."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return _OPENAI_TYPES.get(status, kind)


def problem(dialect: Dialect, error: UserError) -> Answer:
    """Render an error. 429 and 503 always carry Retry-After, in whole seconds, at least 1 (Q10)."""
    status = error.status
    retry_s = None
    if status in {429, 503} or error.retry_after_s is not None:
        retry_s = max(1, ceil(error.retry_after_s or 1.0))
    render = _render if len(error.message) <= _KEPT_CHARS_MAX else _render.__wrapped__
    facts = _Facts(status, error.code, error.message, error.hint, error.param, retry_s)
    return render(dialect, facts)


class _Facts(NamedTuple):
    """What an error says, as a key."""

    status: int
    code: str
    message: str
    hint: str
    param: str | None
    retry_s: int | None


@lru_cache(maxsize=256)
def _render(dialect: Dialect, facts: _Facts) -> Answer:
    # In overload the same refusal goes out thousands of times a second.
    status, code, message, hint, param, retry_s = facts
    code = code or _DEFAULT_CODES.get(status, "error")
    if not _CODE.fullmatch(code):
        code = "error"  # a model may say anything; a header may not
    headers: list[tuple[str, str]] = []
    if retry_s is not None:
        headers.append(("retry-after", str(retry_s)))
    content_type = JSON
    document: dict[str, object]
    if dialect is Dialect.OPENAI:
        text = message + (f" ({hint})" if hint else "")
        kind = openai_type(status)
        document = {"error": {"message": text, "type": kind, "param": param, "code": code}}
    elif dialect is Dialect.OIP:
        document = {"error": message + (f" ({hint})" if hint else "")}
        headers.append(("headway-error-code", code))
    else:
        content_type = PROBLEM_JSON
        document = {
            "type": "timeout" if status == 504 else code,
            "title": TITLES.get(status, "Error"),
            "status": status,
            "detail": message,
            "code": code,
            "hint": hint,
        }
        if param is not None:
            document["param"] = param
    return Answer(status, json.encode(document), content_type, tuple(headers))


def error_of(result: ItemResult) -> UserError:
    """An item's failure as the error its caller is told."""
    return UserError(
        result.status,
        result.code,
        result.body.decode("utf-8", "replace"),
        hint=result.hint,
        retry_after_s=result.retry_after_s,
    )


def malformed(exc: DecodeError, body: bytes) -> UserError:
    """A 400 that says where the JSON broke (byte, line, column) or which field is wrong."""
    text = str(exc)
    found = _POSITION.search(text)
    if isinstance(exc, ValidationError):
        where = _FIELD.search(text)
        param = (where[1] or None) if where else None
        return UserError(400, "malformed", text, hint="see /docs for the shape", param=param)
    at = int(found[1]) if found else len(body)
    line = body.count(b"\n", 0, at) + 1
    column = at - (body.rfind(b"\n", 0, at) + 1) + 1
    return UserError(
        400,
        "malformed",
        f"the body is not JSON: {text} at byte {at}, line {line}, column {column}",
        hint="send one JSON object",
    )


def sse(body: bytes, event: bytes = b"") -> bytes:
    """One server-sent event. Line breaks inside `body` become further data lines, as they must."""
    head = b"event: " + event + b"\n" if event else b""
    lines = body.splitlines() or [b""]
    return head + b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"
