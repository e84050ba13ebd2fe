"""An ONNX file is served as it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.core.request import Codec
from headway.core.wire.frame import pack_tensors, unpack_tensors
from headway.executor.adapt import load_model

from .sink import answers, pool_of

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def doubling(path: Path, rows: int | str = "n", width: int | str = "w") -> str:
    """A graph that gives `y = x + x`."""
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [make.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [make.make_tensor_value_info("x", kind, [rows, width])],
        [make.make_tensor_value_info("y", kind, [rows, width])],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return str(path)


async def test_rows_of_one_shape_run_together_and_others_apart(tmp_path: Path) -> None:
    async with pool_of(doubling(tmp_path / "double.onnx"), max_batch_size=4) as (pool, sink):
        info = sink.last("ready")[2]
        assert info.inputs[0].shape == (-1, -1)
        assert {run.rows for run in info.warm} == {1, 2, 4}
        got = await answers(pool, sink, [1, 2], {"x": [3]}, ["no"], [[1]], {"z": 1})
        assert [status for status, _ in got] == [200, 200, 422, 422, 422]
        assert got[0][1] == {"y": [2.0, 4.0]} and got[1][1] == {"y": [6.0]}
        payload = pack_tensors([("x", "FP32", (2, 1), None, b"[1,2]")])
        [(status, body)] = await answers(pool, sink, payload, codec=Codec.TENSORS)
        name, datatype, shape, _, text = unpack_tensors(body).parts[0]
        assert (status, name, datatype, shape) == (200, "y", "FP32", (2, 1))
        assert text is not None and msgspec.json.decode(text) == [2, 4]


async def test_a_graph_of_a_fixed_batch_size_is_filled_up(tmp_path: Path) -> None:
    path = doubling(tmp_path / "fixed.onnx", rows=4, width=1)
    async with pool_of(path) as (pool, sink):
        info = sink.last("ready")[2]
        assert info.padded_sizes == (4,) and info.max_batch_size == 4
        got = await answers(pool, sink, [1], [2], [3, 4])
        assert [status for status, _ in got] == [200, 200, 422]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"gone\.onnx"):
        load_model("gone.onnx", ModelConfig()).load()
