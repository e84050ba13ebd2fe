"""The Open Inference Protocol, bytes to tensors and back."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from headway.core.errors import UserError
from headway.core.ports import ModelInfo, TensorSpec
from headway.core.wire import oip
from headway.core.wire.frame import Tensors, pack_tensors, unpack_tensors

FREE = ModelInfo("m")
INFO = ModelInfo(
    "m",
    version="2",
    inputs=(TensorSpec("x", "FP32", (-1, 2)), TensorSpec("y", "INT64", (-1,))),
    outputs=(TensorSpec("out", "FP32", (-1,)),),
)


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


X = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}
Y = {"name": "y", "shape": [2], "datatype": "INT64", "data": [5, 6]}


def refused(raw: bytes, info: ModelInfo = FREE, header: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        oip.parse_infer(raw, header, info)
    assert caught.value.status == 400
    return caught.value.message + " | " + caught.value.hint


def test_json_tensors_stay_unparsed() -> None:
    call = oip.parse_infer(body(X, Y, id="7"), None, INFO)
    assert call.rows == 2
    assert call.id == "7"
    assert call.parts[0].raw is None
    assert call.parts[0].json == b"[[1, 2], [3, 4]]"
    payload = pack_tensors([p.packed() for p in call.parts])
    assert bytes(unpack_tensors(payload).parts[1][4] or b"") == b"[5, 6]"


def test_binary_tensors_are_taken_in_order() -> None:
    x, y = struct.pack("<4f", 1, 2, 3, 4), struct.pack("<2q", 5, 6)
    head = body(
        {**{k: v for k, v in X.items() if k != "data"}, "parameters": {"binary_data_size": 16}},
        {**{k: v for k, v in Y.items() if k != "data"}, "parameters": {"binary_data_size": 16}},
        parameters={"binary_data_output": True},
    )
    call = oip.parse_infer(head + x + y, str(len(head)), INFO)
    assert bytes(call.parts[0].raw or b"") == x
    assert bytes(call.parts[1].raw or b"") == y
    assert call.binary


def test_priority_and_timeout_are_tritons() -> None:
    call = oip.parse_infer(body(X, parameters={"priority": 1, "timeout": 250_000}), None, FREE)
    assert (call.priority, call.timeout_s) == (1, 0.25)
    assert oip.parse_infer(body(X), None, FREE).timeout_s is None
    assert "timeout is -1" in refused(body(X, parameters={"timeout": -1}))
    assert "priority is 'a'" in refused(body(X, parameters={"priority": "a"}))
    assert "sequence" in refused(body(X, parameters={"sequence_id": 3}))


def test_outputs_are_named_with_their_form() -> None:
    outputs = [{"name": "out", "parameters": {"binary_data": True}}, {"name": "out"}]
    call = oip.parse_infer(body(X, Y, outputs=outputs), None, INFO)
    assert call.wanted == [("out", True), ("out", False)]
    assert "the model's outputs are: out" in refused(body(X, Y, outputs=[{"name": "o"}]), INFO)
    asked = [{"name": "out", "parameters": {"classification": 3}}]
    assert "classification" in refused(body(X, Y, outputs=asked), INFO)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"datatype": "FP64"}, ["'x'", "FP64", "FP32"]),
        ({"shape": [2, 3]}, ["'x'", "[2, 3]", "[-1, 2]"]),
        ({"shape": [4]}, ["'x'", "[4]", "[-1, 2]"]),
        ({"name": "z"}, ["'z'", "x, y"]),
        ({"data": None}, ["'x'", "data"]),
        ({"shape": []}, ["'x'", "[]"]),
        ({"shape": [0, 2]}, ["'x'", "at least 1"]),
        ({"shape": [1, 2]}, ["x [1, 2]", "y [2]"]),
        ({"parameters": {"shared_memory_region": "r"}}, ["'x'", "shared memory"]),
        ({"parameters": {"binary_data_size": 9}}, ["'x'", "9", "0 bytes"]),
        ({"parameters": {"binary_data_size": "a"}}, ["'x'", "'a'"]),
    ],
)
def test_a_wrong_tensor_is_named_with_what_came_and_what_was_wanted(
    change: dict[str, Any], words: list[str]
) -> None:
    told = refused(body({**X, **change}, Y), INFO)
    for word in words:
        assert word in told


def test_missing_repeated_and_no_tensors_are_named() -> None:
    assert "'y' is missing" in refused(body(X), INFO)
    assert "'x' is given twice" in refused(body(X, X), INFO)
    assert "inputs is empty" in refused(body())
    assert "one of BOOL" in refused(body({**X, "datatype": "FLOAT"}))
    assert "binary form only" in refused(body({**X, "datatype": "FP16"}))
    assert "no data list" in refused(body({"name": "a", "shape": [1], "datatype": "BOOL"}))


def test_binary_parts_that_do_not_add_up_are_refused() -> None:
    head = body(
        {"name": "a", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 3}}
    )
    assert "3 bytes, wanted 4" in refused(head + b"abc", header=str(len(head)))
    assert "1 bytes follow" in refused(body(X) + b"z", header=str(len(body(X))))
    assert "'abc'" in refused(b"{}", header="abc")
    assert "'99'" in refused(b"{}", header="99")
    assert "not JSON" in refused(b'{"inputs": [')
    assert "`inputs`" in refused(b"{}")


def test_b22_rows_are_split_and_joined_in_order() -> None:
    nested = oip.parse_infer(body(X, Y), None, INFO)
    pieces = oip.split_rows(nested, 1)
    assert [rows for rows, _ in pieces] == [1, 1]
    assert [p[0][4] for _, p in pieces] == [b"[[1, 2]]", b"[[3, 4]]"]
    assert [p[1][4] for _, p in pieces] == [b"[5]", b"[6]"]
    assert pieces[0][1][0][2] == (1, 2)

    flat = oip.parse_infer(body({**X, "shape": [3, 2], "data": [1, 2, 3, 4, 5, 6]}), None, FREE)
    assert [(n, p[0][4]) for n, p in oip.split_rows(flat, 2)] == [(2, b"[1,2,3,4]"), (1, b"[5,6]")]
    wrong = oip.parse_infer(body({**X, "data": [1, 2, 3]}), None, FREE)
    with pytest.raises(UserError, match="3 items"):
        oip.split_rows(wrong, 1)


def _binary(datatype: str, shape: list[int], raw: bytes) -> oip.InferCall:
    head = body(
        {
            "name": "a",
            "shape": shape,
            "datatype": datatype,
            "parameters": {"binary_data_size": len(raw)},
        }
    )
    return oip.parse_infer(head + raw, str(len(head)), FREE)


def test_b22_binary_rows_are_split() -> None:
    raw = struct.pack("<6h", *range(6))
    pieces = oip.split_rows(_binary("INT16", [3, 2], raw), 2)
    assert [bytes(p[0][3] or b"") for _, p in pieces] == [raw[:8], raw[8:]]
    words = [b"a", b"bcd", b"", b"e"]
    raw = b"".join(struct.pack("<I", len(w)) + w for w in words)
    pieces = oip.split_rows(_binary("BYTES", [2, 2], raw), 1)
    assert [bytes(p[0][3] or b"") for _, p in pieces] == [raw[:12], raw[12:]]
    with pytest.raises(UserError, match="bytes of data"):
        oip.split_rows(_binary("BYTES", [2, 2], raw + b"x"), 1)
    empty = oip.split_rows(_binary("FP32", [2, 0], b""), 1)
    assert [bytes(p[0][3] or b"") for _, p in empty] == [b"", b""]


def _reply(*parts: tuple[str, list[int], bytes | None, bytes | None]) -> Tensors:
    return unpack_tensors(pack_tensors([(n, "FP32", s, r, j) for n, s, r, j in parts]))


def test_b22_replies_are_joined() -> None:
    one = _reply(("o", [2, 1], b"aaaabbbb", None), ("p", [2], None, b"[1,2]"))
    two = _reply(("o", [1, 1], b"cccc", None), ("p", [1], None, b"[3]"))
    joined = oip.join_rows([one, two])
    assert joined.parts[0][2] == (3, 1)
    assert bytes(joined.parts[0][3] or b"") == b"aaaabbbbcccc"
    assert bytes(joined.parts[1][4] or b"") == b"[1,2,3]"
    assert oip.join_rows([one]) is one


def test_answers_are_json_or_json_and_binary() -> None:
    call = oip.parse_infer(body(X, id=4), None, FREE)
    answer = oip.infer_answer(call, _reply(("p", [2], None, b"[1,2]")), "m", "3")
    assert json.loads(answer.body) == {
        "model_name": "m",
        "model_version": "3",
        "id": "4",
        "outputs": [{"name": "p", "datatype": "FP32", "shape": [2], "data": [1, 2]}],
    }
    call = oip.parse_infer(body(X), None, FREE)
    answer = oip.infer_answer(call, _reply(("o", [1], b"abcd", None)), "m", "")
    length = int(dict(answer.headers)["inference-header-content-length"])
    told = json.loads(answer.body[:length])
    assert told["outputs"][0]["parameters"] == {"binary_data_size": 4}
    assert "model_version" not in told
    assert "id" not in told
    assert answer.body[length:] == b"abcd"
    assert answer.content_type == "application/octet-stream"


def test_metadata() -> None:
    assert "binary_tensor_data" in json.loads(oip.server_metadata("1").body)["extensions"]
    told = json.loads(oip.model_metadata("m", INFO).body)
    assert told["versions"] == ["2"]
    assert told["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    assert json.loads(oip.model_metadata("m", None).body)["inputs"] == []
