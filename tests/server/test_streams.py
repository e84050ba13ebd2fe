"""Streamed answers on the fast lane."""

from __future__ import annotations

import json

import pytest

from headway.core.request import ItemResult
from tests.server.wires import Wire, answers, post

pytestmark = pytest.mark.asyncio
EVENTS = "accept: text/event-stream"
END = ItemResult(200, b"")


def held(*headers: str, version: str = "1.1") -> Wire:
    wire = Wire(stream_buffer_bytes_max=1000)
    wire.runtime.hold = True
    wire.feed(post(b"{}", "/predict", *headers, version=version))
    return wire


async def test_s2_events_have_the_headers_that_stop_proxies_from_buffering() -> None:
    wire = held(EVENTS)
    reply = wire.runtime.waiting[0].reply
    reply.chunk(b'{"t": 1}')
    assert wire.pipe.sent.endswith(b'data: {"t": 1}\n\n\r\n'), "an event is not held back"
    reply.done(END)
    [(status, headers, body)] = answers(wire.pipe.sent)
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert wire.service.in_flight == 0
    assert not wire.pipe.closed


async def test_raw_pieces_without_an_accept_header() -> None:
    wire = held()
    reply = wire.runtime.waiting[0].reply
    reply.chunk(b"abc")
    reply.chunk(b"")
    reply.done(END)
    assert answers(wire.pipe.sent)[0][2] == b"3\r\nabc\r\n0\r\n\r\n"


async def test_s12_an_error_inside_a_stream_is_an_event_and_no_end() -> None:
    wire = held(EVENTS)
    reply = wire.runtime.waiting[0].reply
    reply.chunk(b"1")
    reply.done(ItemResult(500, b"model broke", code="model_error"))
    body = answers(wire.pipe.sent)[0][2]
    assert b"[DONE]" not in body
    event = body.split(b"event: error\ndata: ")[1].split(b"\n")[0]
    assert json.loads(event)["code"] == "model_error"


async def test_s12_a_raw_stream_that_fails_is_cut() -> None:
    wire = held()
    reply = wire.runtime.waiting[0].reply
    reply.chunk(b"1")
    reply.done(ItemResult(500, b"model broke"))
    assert not wire.pipe.sent.endswith(b"0\r\n\r\n")
    assert wire.pipe.closed


async def test_an_http_1_0_client_gets_bytes_and_a_close() -> None:
    wire = held("connection: keep-alive", version="1.0")
    reply = wire.runtime.waiting[0].reply
    reply.chunk(b"abc")
    reply.done(END)
    assert wire.pipe.sent.endswith(b"\r\n\r\nabc")
    assert wire.pipe.closed


async def test_c2_a_client_that_leaves_mid_stream_cancels_it() -> None:
    wire = held(EVENTS)
    request = wire.runtime.waiting[0]
    request.reply.chunk(b"1")
    wire.lose()
    assert wire.runtime.cancelled == [request]
    request.reply.chunk(b"2")
    request.reply.done(END)
    assert wire.service.in_flight == 0


async def test_h15_a_client_that_does_not_read_is_cut_at_a_limit() -> None:
    wire = held()
    request = wire.runtime.waiting[0]
    request.reply.chunk(b"1")
    wire.lane.pause_writing()
    wire.pipe.unsent = 900
    request.reply.chunk(b"2")
    assert not wire.pipe.aborted
    wire.pipe.unsent = 1100
    request.reply.chunk(b"3")
    assert wire.pipe.aborted
    assert wire.runtime.cancelled == [request]
    assert wire.service.in_flight == 0


async def test_a_stream_behind_another_answer_is_bounded_too() -> None:
    wire = held()
    wire.feed(post(b"2"))
    second = wire.runtime.waiting[1]
    second.reply.chunk(b"x" * 500)
    assert wire.pipe.sent == b""
    second.reply.chunk(b"x" * 600)
    assert wire.pipe.aborted
    assert len(wire.runtime.cancelled) == 2


async def test_a_stream_behind_another_answer_follows_it() -> None:
    wire = held()
    wire.feed(post(b"2"))
    second = wire.runtime.waiting[1].reply
    second.chunk(b"abc")
    wire.runtime.release(0)
    second.chunk(b"de")
    second.done(END)
    assert [b for _, _, b in answers(wire.pipe.sent)] == [
        b"{}",
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    ]


async def test_a_client_that_stops_reading_is_not_read_and_ends_by_a_limit() -> None:
    wire = Wire(body_gap_s_max=5.0)
    wire.feed(post())
    wire.lane.pause_writing()
    assert not wire.pipe.reading
    wire.pipe.unsent = 50
    wire.sweep_in(4)
    wire.pipe.unsent = 40
    wire.sweep_in(4)
    assert not wire.pipe.aborted, "it still reads, slowly"
    wire.sweep_in(6)
    assert wire.pipe.aborted
    other = Wire()
    other.lane.pause_writing()
    other.lane.resume_writing()
    assert other.pipe.reading
