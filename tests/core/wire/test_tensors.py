"""Tensors between the protocol's bytes and numpy rows."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from headway.core.errors import UserError
from headway.core.ports import TensorSpec
from headway.core.wire.frame import Parts, pack_tensors, unpack_tensors
from headway.core.wire.tensors import DTYPES, decode_item, encode_reply


def rows_of(*parts: Any, specs: tuple[TensorSpec, ...] = ()) -> list[dict[str, Any]]:
    return decode_item(pack_tensors(parts), specs).rows


def reply(results: Any, specs: tuple[TensorSpec, ...] = (), **ask: Any) -> list[Any]:
    item = decode_item(pack_tensors([("x", "FP32", (1,), None, b"[1]")], **ask), ())
    return [
        (
            name,
            datatype,
            tuple(shape),
            None if raw is None else bytes(raw),
            None if text is None else msgspec.json.decode(text),
        )
        for name, datatype, shape, raw, text in unpack_tensors(
            encode_reply(item, results, specs)
        ).parts
    ]


@pytest.mark.parametrize("datatype", DTYPES)
def test_raw_and_json_give_the_same_rows(datatype: str) -> None:
    values = np.array([[0, 1], [1, 0]], DTYPES[datatype])
    raw = rows_of(("x", datatype, (2, 2), values.tobytes(), None))
    text = rows_of(("x", datatype, (2, 2), None, msgspec.json.encode(values.tolist())))
    for a, b, want in zip(raw, text, values, strict=True):
        assert a["x"].dtype == b["x"].dtype == values.dtype
        assert (a["x"] == want).all() and (b["x"] == want).all()


def test_unaligned_payloads_are_read_right() -> None:
    values = np.arange(5, dtype="<f8")
    for name in ("a", "ab", "abc", "abcd"):
        rows = rows_of((name, "FP64", (5,), values.tobytes(), None))
        assert [row[name] for row in rows] == [0, 1, 2, 3, 4]


def test_bytes_arrive_as_text_in_both_forms() -> None:
    raw = b"\x02\0\0\0hi\0\0\0\0\x03\0\0\0\xff\xfe\xfd"
    assert [r["t"] for r in rows_of(("t", "BYTES", (3,), raw, None))] == [
        "hi", "", b"\xff\xfe\xfd",
    ]  # fmt: skip
    nested = rows_of(("t", "BYTES", (2, 1), None, b'[["a"],["b"]]'))
    assert [row["t"].tolist() for row in nested] == [["a"], ["b"]]


def test_bfloat16_is_the_upper_half_of_a_float() -> None:
    (row,) = rows_of(("x", "BF16", (1, 2), b"\x80\x3f\x00\xc0", None))
    assert row["x"].tolist() == [1.0, -2.0]
    specs = (TensorSpec("y", "BF16", (-1, 1)),)
    assert reply([{"y": [1.5]}], specs, binary=True)[0][3] == b"\xc0\x3f"
    assert reply([{"y": [1.5]}], specs)[0] == ("y", "BF16", (1, 1), None, [1.5])


SPECS = (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT64", (-1,)))
A = ("a", "FP32", (1, 2), None, b"[1,2]")
B = ("b", "INT64", (1,), None, b"[1]")


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ([A], "missing_tensor", ["'b'"]),
        ([A, B, ("c", "FP32", (1,), None, b"[1]")], "unknown_tensor", ["'c'", "a, b"]),
        ([A, ("b", "FP32", (1,), None, b"[1]")], "wrong_datatype", ["'b'", "FP32", "INT64"]),
        ([A, ("b", "INT64", (1, 1), None, b"[1]")], "wrong_shape", ["'b'", "[1, 1]", "[-1]"]),
        ([A, ("b", "INT64", (2,), None, b"[1,2]")], "wrong_shape", ["2 rows"]),
        ([A, ("b", "INT64", (1,), None, b"[1,2]")], "wrong_shape", ["2 values"]),
        ([A, ("b", "INT64", (1,), b"1234567", None)], "wrong_shape", ["7 bytes"]),
        ([A, ("b", "INT64", (1,), None, b"[1.5]")], "wrong_datatype", ["not INT64"]),
        ([A, ("b", "INT64", (1,), None, b"[1")], "malformed_json", ["'b'"]),
        ([A, ("b", "INT64", (-1,), None, b"[1]")], "wrong_shape", ["'b'"]),
        ([("a", "FP32", (1, 2), None, b"[[1,2],[3]]"), B], "wrong_shape", ["ragged"]),
        ([A, ("b", "INT64", (1,), None, None)], "missing_tensor", ["'b'", "no data"]),
    ],
)
def test_faults_name_the_tensor_what_came_and_what_was_wanted(
    parts: Parts, code: str, words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        decode_item(pack_tensors(parts), SPECS)
    assert caught.value.status == 400 and caught.value.code == code
    text = caught.value.message + caught.value.hint
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("UINT8", b"[300]"), ("BOOL", b"[2]"), ("FP32", b'["x"]'), ("BYTES", b"[1]"), ("X", b"[1]")],
)
def test_values_beyond_their_datatype_are_refused(datatype: str, data: bytes) -> None:
    with pytest.raises(UserError) as caught:
        rows_of(("x", datatype, (1,), None, data))
    assert caught.value.code == "wrong_datatype"


def test_an_item_without_any_tensor_is_refused() -> None:
    with pytest.raises(UserError, match="no inputs"):
        rows_of()


@pytest.mark.parametrize("raw", [b"\x02\0\0\0h", b"\x01\0\0\0h\x01\0", b"\x05"])
def test_texts_cut_inside_an_element_are_refused(raw: bytes) -> None:
    with pytest.raises(UserError, match="'t' ends inside an element") as caught:
        rows_of(("t", "BYTES", (1,), raw, None))
    assert caught.value.code == "wrong_shape"


def test_rows_may_be_empty() -> None:
    rows = rows_of(("x", "FP32", (2, 0), None, b"[[],[]]"))
    assert [(row["x"].shape, row["x"].dtype) for row in rows] == [((0,), np.dtype("<f4"))] * 2


def test_replies_take_dicts_arrays_and_single_values() -> None:
    assert reply([{"y": np.float32(1.5)}]) == [("y", "FP32", (1,), None, [1.5])]
    assert reply(np.ones((1, 2), "<i8")) == [("output", "INT64", (1, 2), None, [1, 1])]
    specs = (TensorSpec("label", "BYTES", (-1,)),)
    assert reply(["cat"], specs) == [("label", "BYTES", (1,), None, ["cat"])]
    assert reply(["cat"], specs, binary=True)[0][3] == b"\x03\0\0\0cat"
    specs = (TensorSpec("p", "FP32", (-1, 2)),)
    assert reply([[1, 2]], specs, binary=True)[0][3] == b"\0\0\x80?\0\0\0@"


def test_only_the_outputs_asked_for_come_back_in_their_own_form() -> None:
    results = [{"y": 1.0, "z": 2}]
    (one,) = reply(results, wanted=[("z", True)])
    assert one[:3] == ("z", "INT64", (1,)) and one[3] == b"\x02" + b"\0" * 7
    with pytest.raises(UserError, match="'w'"):
        reply(results, wanted=[("w", False)])
