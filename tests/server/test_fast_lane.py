"""The fast lane, on a transport in memory."""

from __future__ import annotations

import json
from math import inf

import pytest

from headway.core.request import Codec, ItemResult
from headway.server import fast_lane
from tests.server.toy import ToyRuntime, make_service
from tests.server.wires import Wire, answers, post

pytestmark = pytest.mark.asyncio


async def test_a_body_goes_to_the_model_untouched_and_comes_back() -> None:
    wire = Wire()
    [(status, headers, body)] = answers(wire.feed(post(b'{"x": 1}')))
    assert (status, body) == (200, b'{"x": 1}')
    assert headers["content-type"] == "application/json"
    assert "connection" not in headers
    request = wire.runtime.seen[0]
    assert (request.codec, request.deadline_s, request.priority) == (Codec.JSON, inf, 0)
    assert headers["x-request-id"] == request.trace
    assert wire.service.in_flight == 0
    assert request.reply.work is None, "a cycle would keep every body until the collector runs"


async def test_headers_become_deadline_priority_tenant_and_trace() -> None:
    wire = Wire()
    told = ("Headway-Deadline-Ms: 250", "headway-priority: 1", "HEADWAY-TENANT: acme")
    raw = wire.feed(post(b"x", "/predict", *told, "X-Request-Id: abc", "Content-Type: image/png"))
    request = wire.runtime.seen[0]
    assert request.deadline_s - request.arrival_s == pytest.approx(0.25)
    assert (request.priority, request.tenant, request.trace) == (1, "acme", "abc")
    assert (request.codec, request.content_type) == (Codec.RAW, "image/png")
    assert answers(raw)[0][1]["x-request-id"] == "abc"


@pytest.mark.parametrize(
    "header",
    [
        "headway-deadline-ms: soon",
        "headway-deadline-ms: -1",
        "headway-deadline-ms: nan",
        "headway-priority: 1.5",
        "headway-priority: high",
    ],
)
async def test_a_header_that_makes_no_sense_is_named(header: str) -> None:
    [(status, _, body)] = answers(Wire().feed(post(b"{}", "/predict", header)))
    assert status == 400
    assert header.split(":", maxsplit=1)[0] in json.loads(body)["detail"]


async def test_keep_alive_and_close_in_both_versions() -> None:
    wire = Wire()
    assert "connection" not in answers(wire.feed(post()))[0][1]
    assert not wire.pipe.closed
    assert answers(wire.feed(post(b"{}", "/predict", "connection: close")))[0][1]["connection"]
    assert wire.pipe.closed
    old = Wire()
    assert answers(old.feed(post(version="1.0")))[0][1]["connection"] == "close"
    assert old.pipe.closed
    kept = Wire()
    raw = kept.feed(post(b"{}", "/predict", "connection: keep-alive", version="1.0"))
    assert answers(raw)[0][1]["connection"] == "keep-alive"
    assert not kept.pipe.closed


async def test_bytes_may_come_one_by_one() -> None:
    wire = Wire()
    for byte in post(b'{"a": 1}') + post(b'{"b": 2}'):
        wire.feed(bytes([byte]))
    assert [b for _, _, b in answers(wire.pipe.sent)] == [b'{"a": 1}', b'{"b": 2}']


async def test_chunked_bodies_and_trailers() -> None:
    wire = Wire()
    head = post(b"", "/predict", "transfer-encoding: chunked", length=False)
    raw = wire.feed(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\nheadway-tenant: evil\r\n\r\n" + post())
    assert [b for _, _, b in answers(raw)] == [b"abcde", b"{}"]
    assert [r.tenant for r in wire.runtime.seen] == ["", ""]


async def test_pipelined_answers_come_in_order() -> None:
    wire = Wire()
    wire.runtime.hold = True
    assert wire.feed(post(b"1") + post(b"2") + post(b"3")) == b""
    wire.runtime.release(2)
    wire.runtime.release(1)
    assert wire.pipe.sent == b""
    wire.runtime.release(0)
    assert [b for _, _, b in answers(wire.pipe.sent)] == [b"1", b"2", b"3"]


async def test_a_long_pipeline_is_read_no_further_until_answered() -> None:
    wire = Wire()
    wire.runtime.hold = True
    wire.feed(post() * (fast_lane.PIPELINE_MAX + 1))
    assert not wire.pipe.reading
    wire.runtime.release()
    assert wire.pipe.reading


async def test_expect_100_continue() -> None:
    wire = Wire()
    whole = post(b"abc", "/predict", "Expect: 100-Continue")
    assert wire.feed(whole[:-3]) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answers(wire.feed(b"abc"))[0][2] == b"abc"
    wire.runtime.hold = True
    assert wire.feed(post(b"1") + whole[:-3]) == b"", "the answer before it comes first"
    wire.runtime.release()
    assert wire.pipe.sent.endswith(b"HTTP/1.1 100 Continue\r\n\r\n")


async def test_s11_an_oversized_body_is_413_with_limit_size_and_setting() -> None:
    wire = Wire(body_bytes_max=1000)
    head = post(b"x" * 3000, "/predict", "expect: 100-continue")[:-3000]
    [(status, headers, body)] = answers(wire.feed(head))
    told = json.loads(body)
    assert status == 413
    assert "3000" in told["detail"]
    assert "1000" in told["detail"]
    assert "body_bytes_max" in told["hint"]
    assert headers["connection"] == "close"
    assert wire.pipe.eof
    assert not wire.pipe.aborted, "the client must be able to read the answer"
    assert wire.feed(b"x" * 3000) == b""
    wire.sweep_in(10)
    assert wire.pipe.aborted


async def test_s11_a_chunked_body_is_cut_when_it_grows_too_large() -> None:
    wire = Wire(body_bytes_max=1000)
    wire.feed(post(b"", "/predict", "transfer-encoding: chunked", length=False))
    raw = b"".join(wire.feed(b"190\r\n" + b"x" * 400 + b"\r\n") for _ in range(3))
    assert answers(raw)[0][0] == 413
    assert wire.runtime.seen == []
    assert wire.service.in_flight == 0


async def test_endless_trailers_and_chunk_sizes_end() -> None:
    wire = Wire(body_bytes_max=1000, header_bytes_max=300)
    wire.feed(post(b"", "/predict", "transfer-encoding: chunked", length=False) + b"0\r\n")
    raw = b"".join(wire.feed(b"a%d: %b\r\n" % (i, b"x" * 100)) for i in range(40))
    assert answers(raw)[0][0] == 413


async def test_headers_over_the_limit_are_431() -> None:
    slow = Wire(header_bytes_max=300)
    slow.feed(b"POST /predict HTTP/1.1\r\n")
    raw = b"".join(slow.feed(b"a%d: b\r\n" % i) for i in range(60))
    assert answers(raw)[0][0] == 431
    once = Wire(header_bytes_max=300)
    assert answers(once.feed(post(b"{}", "/predict", "a: " + "b" * 400)))[0][0] == 431
    body = Wire(header_bytes_max=300)
    assert answers(body.feed(post(b"x" * 400)))[0][0] == 200


async def test_c1_a_client_that_leaves_frees_what_it_queued() -> None:
    runtime = ToyRuntime()
    runtime.hold = True
    service = make_service(runtime)
    wires = [Wire(service) for _ in range(3)]
    for i, wire in enumerate(wires):
        wire.feed(post(b"%d" % i))
    wires[1].lose()
    assert [r.payload for r in runtime.cancelled] == [b"1"]
    assert service.in_flight == 2
    runtime.release()
    runtime.release()
    assert [r.payload for r in runtime.waiting] == []
    assert wires[1].pipe.sent == b""


async def test_b12_a_body_that_never_ends_blocks_nobody() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime, body_gap_s_max=5.0)
    stuck, fine = Wire(service), Wire(service)
    stuck.feed(post(b"abc")[:-1])
    assert answers(fine.feed(post()))[0][0] == 200
    assert [r.payload for r in runtime.seen] == [b"{}"]
    [(status, _, body)] = answers(stuck.sweep_in(6))
    assert status == 408
    assert "body_gap_s_max" in json.loads(body)["hint"]
    assert service.in_flight == 0
    gone = Wire(service)
    gone.feed(post(b"abc")[:-1])
    gone.lose()
    assert service.in_flight == 0
    assert runtime.cancelled == []


async def test_slow_loris_ends_by_a_limit() -> None:
    wire = Wire(header_s_max=10.0)
    wire.feed(b"POST /predict HTTP/1.1\r\n")
    assert wire.sweep_in(9) == b""
    wire.feed(b"a: b\r\n")
    assert answers(wire.sweep_in(2))[0][0] == 408
    trickle = Wire(body_gap_s_max=10.0, body_rate_bytes_s_min=100.0)
    trickle.feed(post(b"x" * 1000)[:-1000])
    raw = b""
    for _ in range(4):
        raw += trickle.sweep_in(4)
        trickle.feed(b"x")
    assert "body_rate_bytes_s_min" in json.loads(answers(raw)[0][2])["hint"]
    idle = Wire(keep_alive_s=75.0)
    idle.feed(post())
    idle.sweep_in(74)
    assert not idle.pipe.closed
    idle.sweep_in(2)
    assert idle.pipe.closed


async def test_a_waiting_request_is_not_an_idle_connection() -> None:
    wire = Wire(keep_alive_s=5.0)
    wire.runtime.hold = True
    wire.feed(post())
    assert wire.sweep_in(100) == b""
    wire.runtime.release()
    assert answers(wire.pipe.sent)[0][0] == 200


async def test_an_answered_request_whose_body_never_ends_is_cut() -> None:
    wire = Wire(body_gap_s_max=5.0)
    wire.service.phase = "draining"
    assert answers(wire.feed(post(b"abc")[:-1]))[0][0] == 503
    wire.sweep_in(6)
    assert wire.pipe.aborted


async def test_garbage_is_400_in_its_place_in_line() -> None:
    assert answers(Wire().feed(b"\x16\x03\x01hello"))[0][0] == 400
    wire = Wire()
    wire.runtime.hold = True
    wire.feed(post(b"1") + b"nonsense\r\n\r\n")
    assert wire.pipe.sent == b""
    wire.runtime.release()
    assert [s for s, _, _ in answers(wire.pipe.sent)] == [200, 400]
    assert wire.pipe.eof
    assert answers(Wire().feed(b"GET http://[ HTTP/1.1\r\n\r\n"))[0][0] == 400


async def test_a_bug_of_ours_is_500_and_not_the_clients_fault() -> None:
    class Broken:
        def get(self, _: bytes) -> None:
            raise RuntimeError("bug")

    in_parser = Wire()
    in_parser.lane.hot = Broken()  # type: ignore[assignment]
    assert answers(in_parser.feed(post()))[0][0] == 500

    def broken(_: object) -> None:
        raise RuntimeError("bug")

    in_route = Wire()
    in_route.service.hot[b"/predict"].handle = broken
    [(status, _, body)] = answers(in_route.feed(post()))
    assert status == 500
    assert "bug" not in body.decode()
    assert not in_route.pipe.closed


async def test_a_late_loop_takes_only_what_keeps_the_workers_busy() -> None:
    wire = Wire()
    wire.service.late = True
    wire.service.loop_lag_s = 1.4
    assert answers(wire.feed(post()))[0][0] == 200
    wire.runtime.hold = True
    wire.feed(post(b"1"))
    other = Wire(wire.service)
    [(status, headers, body)] = answers(other.feed(post(b"2")))
    assert status == 503
    assert headers["retry-after"] == "2"
    assert json.loads(body)["code"] == "front_end_late"
    assert not other.pipe.closed
    wire.service.late = False
    wire.runtime.hold = False
    assert answers(other.feed(post(b"3")))[0][2] == b"3"


async def test_connections_over_the_limit_are_told_and_closed() -> None:
    runtime = ToyRuntime()
    service = make_service(runtime, connections_max=1)
    first = Wire(service)
    second_lane = first.replica._connection()
    pipe = type(first.pipe)()
    second_lane.connection_made(pipe)
    [(status, headers, body)] = answers(pipe.sent)
    assert status == 503
    assert headers["retry-after"] == "1"
    assert "connections_max" in json.loads(body)["hint"]
    second_lane.data_received(post())
    assert runtime.seen == []
    second_lane.connection_lost(None)
    assert service.connections == 1


async def test_closing_is_announced_and_idle_connections_go() -> None:
    wire = Wire()
    wire.runtime.hold = True
    wire.feed(post())
    wire.replica.lanes.closing = True
    wire.lane.shutdown()
    assert not wire.pipe.closed
    wire.runtime.release()
    assert answers(wire.pipe.sent)[0][1]["connection"] == "close"
    assert wire.pipe.closed
    idle = Wire()
    idle.lane.shutdown()
    assert idle.pipe.closed


async def test_an_upgrade_is_ignored_and_its_body_kept() -> None:
    wire = Wire()
    asks = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAA")
    raw = wire.feed(post(b"abc", "/predict", *asks) + post(b"next"))
    assert [(s, b) for s, _, b in answers(raw)] == [(200, b"abc"), (200, b"next")]
    split = Wire()
    whole = post(b"abc", "/predict", *asks)
    split.feed(whole[:-3])
    assert answers(split.feed(b"abc"))[0][2] == b"abc"
    assert answers(Wire().feed(b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n"))[0][0] == 400


async def test_q5_refusals_of_the_runtime_are_told_in_the_routes_dialect() -> None:
    wire = Wire()
    full = ItemResult(429, b"256 wait", code="queue_full", hint="later", retry_after_s=2.4)
    wire.runtime.answer = lambda _: full
    [(status, headers, body)] = answers(wire.feed(post()))
    assert (status, headers["retry-after"]) == (429, "3")
    assert headers["content-type"] == "application/problem+json"
    assert "Traceback" not in body.decode()
    assert json.loads(body)["code"] == "queue_full"
    assert wire.service.answers == {("predict", 429): 1}


async def test_c11_a_timeout_is_504_with_type_timeout() -> None:
    wire = Wire()
    wire.runtime.answer = lambda _: ItemResult(504, b"ran too long", code="timeout")
    [(status, _, body)] = answers(wire.feed(post()))
    assert (status, json.loads(body)["type"]) == (504, "timeout")
