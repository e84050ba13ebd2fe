"""Errors in the dialect of the route."""

from __future__ import annotations

import json

import msgspec
import pytest

from headway.core.errors import UserError
from headway.core.request import ItemResult
from headway.core.wire.problem import (
    PROBLEM_JSON,
    Dialect,
    error_of,
    json_answer,
    malformed,
    problem,
    sse,
)


def test_q5_queue_full_is_told_in_openai_shape_with_retry_after() -> None:
    error = UserError(429, "queue_full", "256 requests wait", hint="come back", retry_after_s=1.2)
    answer = problem(Dialect.OPENAI, error)
    assert answer.status == 429
    assert dict(answer.headers) == {"retry-after": "2"}
    told = json.loads(answer.body)["error"]
    assert told == {
        "message": "256 requests wait (come back)",
        "type": "rate_limit_error",
        "param": None,
        "code": "queue_full",
    }


def test_q10_retry_after_is_whole_seconds_and_at_least_one() -> None:
    for given, told in ((None, "1"), (0.01, "1"), (2.0, "2"), (2.1, "3")):
        answer = problem(Dialect.PLAIN, UserError(503, "", "no", retry_after_s=given))
        assert dict(answer.headers)["retry-after"] == told
    assert problem(Dialect.PLAIN, UserError(400, "x", "no")).headers == ()
    late = problem(Dialect.PLAIN, UserError(504, "", "late", retry_after_s=3))
    assert dict(late.headers)["retry-after"] == "3"


def test_oip_errors_are_one_text_and_a_code_header() -> None:
    answer = problem(Dialect.OIP, UserError(404, "model_not_found", "no model 'x'"))
    assert json.loads(answer.body) == {"error": "no model 'x'"}
    assert dict(answer.headers) == {"headway-error-code": "model_not_found"}
    hinted = problem(Dialect.OIP, UserError(400, "", "bad", hint="fix it"))
    assert json.loads(hinted.body) == {"error": "bad (fix it)"}
    assert dict(hinted.headers) == {"headway-error-code": "malformed"}


def test_c11_a_timeout_has_its_own_status_and_type() -> None:
    plain = problem(Dialect.PLAIN, UserError(504, "timeout", "too slow"))
    assert plain.content_type == PROBLEM_JSON
    assert json.loads(plain.body)["type"] == "timeout"
    openai = problem(Dialect.OPENAI, UserError(504, "", "too slow"))
    assert json.loads(openai.body)["error"]["type"] == "timeout"


def test_plain_errors_are_problem_details_with_code_hint_and_param() -> None:
    error = UserError(422, "item_error", "x is missing", hint="send x", param="x")
    told = json.loads(problem(Dialect.PLAIN, error).body)
    assert told == {
        "type": "item_error",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "x is missing",
        "code": "item_error",
        "hint": "send x",
        "param": "x",
    }


def test_a_code_that_could_break_a_header_is_replaced() -> None:
    answer = problem(Dialect.OIP, UserError(422, "a\r\nset-cookie: b", "no"))
    assert dict(answer.headers) == {"headway-error-code": "error"}
    assert json.loads(problem(Dialect.OPENAI, UserError(500, "", "no")).body)["error"] == {
        "message": "no",
        "type": "server_error",
        "param": None,
        "code": "error",
    }


def test_an_items_failure_keeps_its_words() -> None:
    result = ItemResult(422, "größer".encode(), code="c", hint="h", retry_after_s=2.0)
    error = error_of(result)
    assert (error.status, error.code, error.message, error.hint, error.retry_after_s) == (
        422,
        "c",
        "größer",
        "h",
        2.0,
    )


@pytest.mark.parametrize(
    ("body", "at", "line", "column"),
    [(b'{\n "a": ]}', 8, 2, 7), (b'{"a": ', 6, 1, 7)],
)
def test_malformed_json_is_told_with_its_position(
    body: bytes, at: int, line: int, column: int
) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(body)
    error = malformed(caught.value, body)
    assert error.status == 400
    assert f"at byte {at}, line {line}, column {column}" in error.message


def test_a_field_of_the_wrong_type_is_named() -> None:
    for body, param in ((b'{"a": "x"}', "a"), (b"[]", None)):
        with pytest.raises(msgspec.ValidationError) as caught:
            msgspec.json.decode(body, type=msgspec.defstruct("S", [("a", int)]))
        assert malformed(caught.value, body).param == param


def test_sse_keeps_line_breaks_inside_one_event() -> None:
    assert sse(b"a\nb") == b"data: a\ndata: b\n\n"
    assert sse(b"", b"error") == b"event: error\ndata: \n\n"


def test_json_answer() -> None:
    answer = json_answer({"a": 1}, 503, (("retry-after", "1"),))
    assert (answer.status, answer.body, answer.headers) == (
        503,
        b'{"a":1}',
        (("retry-after", "1"),),
    )
