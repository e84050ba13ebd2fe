"""Each item of a batch succeeds or fails on its own."""

from __future__ import annotations

import msgspec
import pytest

from headway.core.request import Codec
from headway.core.wire.frame import pack_tensors, unpack_tensors

from .sink import APPS, answers, batch_of, pool_of, run

TOY = "headway.executor.toy:Moody"


async def test_b5_items_of_different_lengths_share_one_batch() -> None:
    async with pool_of("Seen") as (pool, sink):
        lengths = [[0] * n for n in (3, 5, 7, 9)]
        assert await answers(pool, sink, *lengths) == [(200, 4)] * 4


async def test_b9_one_item_fails_alone() -> None:
    async with pool_of(TOY) as (pool, sink):
        got = await answers(pool, sink, 1, {"fail": 422}, 3, 4)
        assert [status for status, _ in got] == [200, 422, 200, 200]
        assert got[1][1] == b"asked to fail"
        assert got[3][1] == 4


async def test_b10_an_exception_fails_its_batch_and_the_worker_survives(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with pool_of(TOY) as (pool, sink):
        got = await answers(pool, sink, {"raise": "secret"}, 2)
        assert [status for status, _ in got] == [500, 500]
        text = got[0][1].decode()
        assert "ValueError" in text and "secret" not in text
        ident = text.split("error id ")[1].rstrip(")")
        assert await answers(pool, sink, 5) == [(200, 5)]
        assert sink.count("ready") == 1
    log = capfd.readouterr().err
    assert log.count("Traceback") == 1 and ident in log and "secret" in log


async def test_b13_a_wrong_number_of_results_names_both_numbers() -> None:
    async with pool_of(TOY) as (pool, sink):
        got = await answers(pool, sink, {"count": 3}, 2, 3, 4)
        assert [status for status, _ in got] == [500] * 4
        assert all(b"3" in body and b"4" in body for _, body in got)
        assert await answers(pool, sink, 1, 2) == [(200, 1), (200, 2)]


@pytest.mark.parametrize("value", ["Hello", {"a": 1, "b": 2}, None, 7])
async def test_b14_one_value_for_a_batch_is_an_error_and_never_split(value: object) -> None:
    async with pool_of(TOY) as (pool, sink):
        got = await answers(pool, sink, {"return": value}, 2)
        assert [status for status, _ in got] == [500, 500]
        assert type(value).__name__.encode() in got[0][1]


async def test_b23_concurrent_binary_uploads_come_back_whole() -> None:
    bodies = [bytes([n]) * (200_000 if n % 2 else 500) for n in range(1, 5)]
    async with pool_of("mock") as (pool, sink):
        batch = batch_of(*bodies, codec=Codec.RAW, kind="image/png")
        assert await run(pool, sink, batch) == [(200, body) for body in bodies]
        assert sink.results[batch.id].items[0].content_type == "application/octet-stream"


async def test_a_crafted_body_shifts_no_value() -> None:
    async with pool_of("mock") as (pool, sink):
        got = await answers(pool, sink, b"1", b"2,3", b"4],[5", b"6")
        assert [status for status, _ in got] == [200, 400, 400, 200]
        assert got[3] == (200, 6)


async def test_malformed_json_names_its_position() -> None:
    async with pool_of("mock") as (pool, sink):
        cut = b'{"a": 1,\n "b": [1, 2'
        batch = batch_of(b'{"a": }', b'"fine"', b"\xff", b"[" * 100_000, cut)
        got = await run(pool, sink, batch)
        assert [status for status, _ in got] == [400, 200, 400, 400, 400]
        assert b"at byte 6, line 1, column 7" in got[0][1]
        assert b"at byte %d, line 2, column 12" % len(cut) in got[4][1]
        assert sink.results[batch.id].items[0].code == "malformed_json"


async def test_malformed_json_names_its_position_where_the_model_decodes_it() -> None:
    async with pool_of("SeenAhead") as (pool, sink):
        [(status, text)] = await answers(pool, sink, b'{"a": [1, 2')
        assert (status, b"at byte 11, line 1, column 12" in text) == (400, True)
    async with pool_of("DecodesPart") as (pool, sink):
        [(status, text)] = await answers(pool, sink, b'part: {"a": [1')
        assert (status, b" at byte" in text) == (400, False), "that part begins elsewhere"


async def test_b8_lengths_may_differ_where_declared_and_a_misfit_is_named() -> None:
    def row(n: int) -> bytes:
        return pack_tensors([("a", "FP32", (1, n), None, msgspec.json.encode([1] * n))])

    async with pool_of("TensorsAnyLength") as (pool, sink):
        got = await answers(pool, sink, row(10), row(20), codec=Codec.TENSORS)
        assert [status for status, _ in got] == [200, 200]
        sums = [unpack_tensors(body).parts[0][4] for _, body in got]
        assert [msgspec.json.decode(text or b"") for text in sums] == [[10], [20]]
    async with pool_of("Tensors") as (pool, sink):
        batch = batch_of(row(2), row(3), codec=Codec.TENSORS)
        got = await run(pool, sink, batch)
        assert [status for status, _ in got] == [200, 400]
        assert all(word in got[1][1] for word in (b"'a'", b"[1, 3]", b"[-1, 2]"))
        assert "-1" in sink.results[batch.id].items[1].hint


async def test_types_validate_each_item_and_name_the_path() -> None:
    async with pool_of("Typed") as (pool, sink):
        info = sink.last("ready")[2]
        assert "Point" in str(info.schema_in) and info.schema_out
        batch = batch_of({"x": 1}, {"x": "one"}, {"label": "?"})
        got = await run(pool, sink, batch)
        assert [status for status, _ in got] == [200, 422, 422]
        assert got[0][1] == {"x": 2, "label": ""}
        assert b"$.x" in got[1][1]
        form = batch_of(b"x=1", codec=Codec.RAW, kind="application/x-www-form-urlencoded")
        assert [status for status, _ in await run(pool, sink, form)] == [415]


async def test_a_function_is_a_model() -> None:
    async with pool_of(f"{APPS}:predict") as (pool, sink):
        assert await answers(pool, sink, 4) == [(200, {"double": 8})]


async def test_decode_and_encode_of_the_model_work_in_threads_of_their_own() -> None:
    async with pool_of("SeenAhead") as (pool, sink):
        batch = batch_of(1, "bad", 3)
        got = await run(pool, sink, batch)
        assert got == [(200, b"2"), (418, b"a teapot"), (200, b"2")]
        assert sink.results[batch.id].items[0].content_type == "application/x-ours"


async def test_b7_batches_are_filled_up_to_a_size_the_model_allows() -> None:
    async with pool_of("Words") as (pool, sink):
        batch = batch_of(b"a b", b"c", b"d")
        batch.padded_rows = 1
        got = await run(pool, sink, batch)
        assert got[0][1]["batches"] == [4] and len(got) == 3
        assert [item.size for item in sink.results[batch.id].items] == [2, 1, 1]


async def test_items_measured_before_are_not_decoded_again() -> None:
    async with pool_of("Words") as (pool, sink):
        batch = batch_of(b"a b c", b"d")
        pool.measure(batch.requests)
        await sink.until(lambda: sink.count("measured") == 1)
        assert sink.last("measured")[1:] == ([r.id for r in batch.requests], [3.0, 1.0])
        assert (await run(pool, sink, batch))[0][1]["decoded"] == 2


async def test_embeddings_are_little_endian_floats() -> None:
    async with pool_of("Embeds") as (pool, sink):
        got = await answers(pool, sink, {"text": "four"}, {"nothing": 1}, codec=Codec.EMBED)
        assert [status for status, _ in got] == [500, 500]
        got = await answers(pool, sink, {"text": "four"}, {"text": ""}, codec=Codec.EMBED)
        assert got == [(200, b"\0\0\x80@\0\0\0?"), (200, b"\0\0\0\0\0\0\0?")]


async def test_tensor_items_carry_several_rows_each() -> None:
    three = pack_tensors([("a", "FP32", (3, 2), None, b"[1,2,3,4,5,6]")])
    wrong = pack_tensors([("a", "FP32", (1, 3), None, b"[1,2,3]")])
    one = pack_tensors([("a", "FP32", (1, 2), b"\0\0\x80?\0\0\0@", None)], binary=True)
    async with pool_of("Tensors") as (pool, sink):
        got = await answers(pool, sink, three, wrong, one, codec=Codec.TENSORS)
        assert [status for status, _ in got] == [200, 400, 200]
        (name, datatype, shape, raw, text) = unpack_tensors(got[0][1]).parts[0]
        assert (name, datatype, shape, raw) == ("sum", "FP32", (3, 1), None)
        assert text is not None and msgspec.json.decode(text) == [3, 7, 11]
        assert b"'a'" in got[1][1] and b"[1, 3]" in got[1][1]
        raw = unpack_tensors(got[2][1]).parts[0][3]
        assert raw is not None and bytes(raw) == b"\0\0@@"


async def test_an_async_model_answers_in_batches() -> None:
    async with pool_of("Awaits") as (pool, sink):
        assert await answers(pool, sink, 1, "two") == [(200, 1), (200, "two")]
