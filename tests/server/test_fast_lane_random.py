"""Any mixture of requests, cut anywhere, gets the same answers in the same order."""

from __future__ import annotations

import random

import pytest

from tests.server.wires import Wire, answers, post

pytestmark = pytest.mark.asyncio


def _chunked(body: bytes, rng: random.Random) -> bytes:
    out = post(b"", "/predict", "transfer-encoding: chunked", length=False)
    while body:
        size = rng.randint(1, len(body))
        out += b"%x\r\n%b\r\n" % (size, body[:size])
        body = body[size:]
    return out + b"0\r\n\r\n"


@pytest.mark.parametrize("seed", range(40))
async def test_requests_cut_anywhere_are_answered_in_order(seed: int) -> None:
    rng = random.Random(seed)
    wire = Wire()
    wire.runtime.hold = True
    sent, raw = [], b""
    for i in range(rng.randint(1, 30)):
        body = b"%d:" % i + rng.randbytes(rng.choice([0, 1, 10, 500]))
        sent.append(body)
        raw += _chunked(body, rng) if rng.random() < 0.3 else post(body)
    while raw:
        size = rng.randint(1, rng.choice([2, 50, 5000]))
        wire.feed(raw[:size])
        raw = raw[size:]
        while wire.runtime.waiting and rng.random() < 0.4:
            wire.runtime.release(rng.randrange(len(wire.runtime.waiting)))
    while wire.runtime.waiting:
        wire.runtime.release(rng.randrange(len(wire.runtime.waiting)))
    assert [body for _, _, body in answers(wire.pipe.sent)] == sent
    assert wire.service.in_flight == 0
    assert wire.pipe.reading
    assert not wire.lane.line


@pytest.mark.parametrize("seed", range(40))
async def test_garbage_never_breaks_the_books(seed: int) -> None:
    rng = random.Random(seed)
    wire = Wire(header_bytes_max=400, body_bytes_max=800)
    wire.runtime.hold = rng.random() < 0.5
    for _ in range(20):
        data = bytearray(post(rng.randbytes(rng.choice([0, 10, 1000]))))
        for _ in range(rng.randint(0, 2)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        wire.feed(bytes(data))
        if wire.runtime.waiting and rng.random() < 0.3:
            wire.runtime.release()
        if wire.pipe.is_closing():
            break
    wire.lose()
    assert wire.service.in_flight == 0
    assert wire.runtime.waiting == []
    assert not wire.service.answers.get(("none", 500))
