"""A head that was parsed once is not parsed again, and nothing else changes."""

from __future__ import annotations

import pytest

from headway.core.wire.problem import Dialect
from headway.server.known_heads import HEAD_BYTES_MAX, HEADS_MAX, KnownHeads
from headway.server.service import HotRoute
from tests.server.wires import Wire, answers, post

ROUTE = HotRoute("predict", Dialect.PLAIN, lambda exchange: None)


async def test_the_second_request_of_a_head_needs_no_parser() -> None:
    wire = Wire()
    message = post(b'{"x": 1}', "/predict", "content-type: application/json")
    first = wire.feed(message)
    wire.lane.parser = None  # type: ignore[assignment]
    again = wire.feed(message)
    (status, _, body), (status_again, _, body_again) = answers(first)[0], answers(again)[0]
    assert (status, body) == (status_again, body_again) == (200, b'{"x": 1}')
    assert [r.payload for r in wire.runtime.seen] == [b'{"x": 1}'] * 2
    assert wire.runtime.seen[0].trace != wire.runtime.seen[1].trace


async def test_another_body_of_the_same_length_is_its_own() -> None:
    wire = Wire()
    wire.feed(post(b"1"))
    assert answers(wire.feed(post(b"2")))[0][2] == b"2"


async def test_pieces_and_pipelines_of_a_known_head_are_read_as_ever() -> None:
    wire = Wire()
    message = post(b"[1]")
    wire.feed(message)
    assert wire.feed(message[:-1]) == b""
    assert answers(wire.feed(message[-1:]))[0][2] == b"[1]"
    assert [body for _, _, body in answers(wire.feed(message + message))] == [b"[1]", b"[1]"]


async def test_known_heads_keep_the_order_of_answers_and_pause_a_long_line() -> None:
    wire = Wire()
    message = post(b"0")
    wire.feed(message)
    wire.runtime.hold = True
    for number in range(1, 10):
        wire.feed(post(b"%d" % number))
    assert not wire.pipe.reading
    sent = len(wire.pipe.sent)
    while len(wire.runtime.waiting) > 1:
        wire.runtime.release(-1)
    assert len(wire.pipe.sent) == sent, "the first is not answered yet"
    wire.runtime.release()
    assert [body for _, _, body in answers(wire.pipe.sent[sent:])] == [
        b"%d" % n for n in range(1, 10)
    ]
    assert wire.pipe.reading


async def test_a_draining_server_refuses_known_heads_too() -> None:
    wire = Wire()
    wire.feed(post(b"0"))
    wire.service.phase = "draining"
    assert answers(wire.feed(post(b"0")))[0][0] == 503


@pytest.mark.parametrize(
    "header",
    ["expect: 100-continue", "connection: close", "x-request-id: a", "transfer-encoding: chunked"],
)
def test_heads_that_steer_the_connection_are_parsed_each_time(header: str) -> None:
    known = KnownHeads()
    name, _, value = header.partition(": ")
    seen = {b"content-length": b"1", name.encode(): value.encode()}
    known.learn(b"head", ROUTE, seen, 1)
    assert known.get(b"head") is None


def test_heads_that_do_not_tell_the_length_or_are_long_are_not_kept() -> None:
    known = KnownHeads()
    for head, seen, size in (
        (b"a", {}, 0),
        (b"b", {b"content-length": b"2"}, 1),
        (b"c", {b"content-length": b"+1"}, 1),
        (b"d" * (HEAD_BYTES_MAX + 1), {b"content-length": b"1"}, 1),
    ):
        known.learn(head, ROUTE, seen, size)
        assert known.get(head) is None


def test_heads_are_bounded_and_forgotten_when_routes_change() -> None:
    known = KnownHeads()
    for number in range(HEADS_MAX + 1):
        known.learn(b"%d" % number, ROUTE, {b"content-length": b"1"}, 1)
    kept = [n for n in range(HEADS_MAX + 1) if known.get(b"%d" % n)]
    assert kept == [HEADS_MAX]
    known.forget()
    assert known.get(b"%d" % HEADS_MAX) is None
