"""Limits for different things stay apart, from the HTTP request to the batcher."""

from __future__ import annotations

import json

import pytest

from headway.core.batch import BatchResult
from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import Config, ModelConfig, ServerConfig
from headway.core.ports import ModelInfo
from headway.core.request import ItemResult
from headway.core.wire.frame import pack_tensors
from headway.obs.prometheus import Meters
from headway.server.monitor import Monitor
from headway.server.service import Served, Service
from tests.server.test_monitor import Still
from tests.server.wires import Wire, answers, post

pytestmark = pytest.mark.asyncio
OUT = pack_tensors([("y", "FP32", [1], None, b"[1.0]")])


def stage(**settings: object) -> tuple[Wire, Still, BatchDriver]:
    """A wire into a real driver on a clock that stands still."""
    still = Still()
    config = ModelConfig(name="m", **settings)  # type: ignore[arg-type]
    driver = BatchDriver(Batcher(config), still, still)
    monitor = Monitor(driver, 1)
    driver.worker_ready(0, ModelInfo("m"))
    whole = Config(ServerConfig(port=0), (config,))
    served = {"m": Served(config, driver, monitor)}
    return Wire(Service(whole, served, Meters(), now=still.now)), still, driver


def turn(still: Still) -> None:
    """Run what is due in this turn of the loop."""
    while still.calls:
        still.calls.pop(0)()


async def test_c12_a_limit_on_waiting_does_not_end_a_request_that_runs() -> None:
    wire, still, driver = stage()
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    call = {"inputs": [x], "parameters": {"timeout": 200_000}}
    wire.feed(post(json.dumps(call).encode(), "/v2/models/m/infer"))
    turn(still)
    still.time += 1.0
    driver._wake()
    driver.batch_done(still.batches[0].id, BatchResult([ItemResult(200, OUT)], 1.0))
    assert answers(wire.pipe.sent)[0][0] == 200


async def test_c11_a_limit_on_waiting_is_a_504_of_its_own_type() -> None:
    wire, still, driver = stage(max_batch_size=1, queue_wait_s_max=0.2)
    for _ in range(4):
        wire.feed(post())
        turn(still)
    still.time += 1.0
    driver._wake()
    for batch in list(still.batches):
        driver.batch_done(batch.id, BatchResult([ItemResult(200, b"1")], 0.5))
    told = {status: body for status, _, body in answers(wire.pipe.sent)}
    assert set(told) == {200, 504}
    assert json.loads(told[504])["type"] == "timeout"


async def test_c11_c12_the_limit_on_a_whole_request_ends_it_while_it_runs() -> None:
    wire, still, driver = stage(max_batch_size=1, request_s_max=0.5)
    wire.feed(post(b"slow"))
    turn(still)
    assert [r.payload for b in still.batches for r in b.requests] == [b"slow"]
    still.time += 0.4
    driver._wake()
    assert wire.pipe.sent == b""
    still.time += 0.2
    driver._wake()
    [(status, _, body)] = answers(wire.pipe.sent)
    told = json.loads(body)
    assert (status, told["type"], told["code"]) == (504, "timeout", "timeout")
    assert "request_s_max" in told["detail"]
    driver.batch_done(still.batches[0].id, BatchResult([ItemResult(200, b"1")], 0.7))
    assert answers(wire.pipe.sent)[1:] == [], "what comes after the limit is dropped"
    wire.feed(post(b"next"))
    turn(still)
    driver.batch_done(still.batches[1].id, BatchResult([ItemResult(200, b"2")], 0.1))
    assert answers(wire.pipe.sent)[1][::2] == (200, b"2")
    assert wire.service.in_flight == 0


async def test_q5_a_full_queue_is_an_immediate_429_with_retry_after() -> None:
    wire, still, _ = stage(max_batch_size=1, queue_requests_max=2)
    other = Wire(wire.service)
    for _ in range(4):
        wire.feed(post())
        turn(still)
    [(status, headers, body)] = answers(other.feed(post()))
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert json.loads(body)["code"] == "queue_full"


async def test_c4_a_queued_request_whose_client_left_never_runs() -> None:
    wire, still, driver = stage(max_batch_size=1)
    other = Wire(wire.service)
    for _ in range(2):
        wire.feed(post())
        turn(still)
    other.feed(post(b"gone"))
    turn(still)
    other.lose()
    for batch in still.batches:  # it grows while it is gone through
        driver.batch_done(batch.id, BatchResult([ItemResult(200, b"1")], 0.1))
        turn(still)
    assert b"gone" not in [r.payload for b in still.batches for r in b.requests]
    assert driver.idle()
