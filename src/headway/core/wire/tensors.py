"""Tensors of one item as numpy rows, and rows' results as a reply (Open Inference Protocol).

Knows datatypes, shapes and both forms of data; must not know HTTP or models. Imported by the
executor only: the front end never parses tensor data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgspec
import numpy as np

from headway.core.errors import UserError
from headway.core.ports import TensorSpec
from headway.core.wire.frame import Part, Tensors, pack_tensors, unpack_tensors

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""numpy types of the protocol's fixed-size datatypes; BYTES and BF16 have none of their own."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(slots=True)
class TensorItem:
    """One decoded item: its rows, and how its reply is wanted."""

    rows: list[dict[str, Any]]
    wanted: list[tuple[str, bool]]
    binary: bool


def _bad(code: str, message: str, name: str, hint: str = "") -> UserError:
    return UserError(400, code, message, param=name, hint=hint)


def decode_item(payload: bytes, specs: Sequence[TensorSpec]) -> TensorItem:
    """Rows of an item, each `{input name: row}`. Raises UserError naming the tensor at fault."""
    item: Tensors = unpack_tensors(payload)
    declared = {spec.name: spec for spec in specs}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for part in item.parts:
        name = part[0]
        if declared:
            _check_declared(part, declared)
        arrays[name] = _array(part)
    for name in declared:
        if name not in arrays:
            raise _bad("missing_tensor", f"input {name!r} is missing", name)
    if not arrays:
        raise _bad("missing_tensor", "the request has no inputs", "inputs")
    return TensorItem(_rows(arrays), item.wanted, item.binary)


def _rows(arrays: dict[str, np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    counts = {name: len(a) for name, a in arrays.items()}
    first = next(iter(counts))
    for name, count in counts.items():
        if count != counts[first]:
            raise _bad(
                "wrong_shape",
                f"input {name!r} has {count} rows, {first!r} has {counts[first]}",
                name,
                "the first dimension is the batch; it must be the same in all inputs",
            )
    return [{name: a[row] for name, a in arrays.items()} for row in range(counts[first])]


def _check_declared(part: Part, declared: dict[str, TensorSpec]) -> None:
    name, datatype, shape = part[:3]
    spec = declared.get(name)
    if spec is None:
        raise _bad(
            "unknown_tensor", f"no input {name!r}", name, "inputs are " + ", ".join(declared)
        )
    if spec.datatype != datatype:
        raise _bad("wrong_datatype", f"input {name!r} is {datatype}, wanted {spec.datatype}", name)
    fits = len(shape) == len(spec.shape) and all(
        want in (-1, have) for have, want in zip(shape[1:], spec.shape[1:], strict=True)
    )
    if not fits:
        raise _bad(
            "wrong_shape",
            f"input {name!r} has shape {list(shape)}, wanted {[-1, *spec.shape[1:]]}",
            name,
            "the model declares -1 where any length will do",
        )


def _array(part: Part) -> np.ndarray[Any, Any]:
    name, datatype, shape, raw, text = part
    if not shape or any(n < 0 for n in shape):
        raise _bad("wrong_shape", f"input {name!r} has shape {list(shape)}", name)
    if datatype == "BYTES":
        flat = _texts(name, raw) if raw is not None else _strings(name, text)
    elif raw is not None:
        flat = _from_raw(name, datatype, raw)
    else:
        flat = _from_json(name, datatype, text)
    if flat.size != prod(shape):
        raise _bad(
            "wrong_shape",
            f"input {name!r} has {flat.size} values, shape {list(shape)} needs {prod(shape)}",
            name,
        )
    return flat.reshape(shape)


def _dtype(name: str, datatype: str) -> np.dtype[Any]:
    dtype = DTYPES.get(datatype)
    if dtype is None:
        raise _bad(
            "wrong_datatype",
            f"input {name!r} has datatype {datatype!r}",
            name,
            "one of " + ", ".join([*DTYPES, "BYTES", "BF16 (binary)"]),
        )
    return dtype


def _from_raw(name: str, datatype: str, raw: memoryview) -> np.ndarray[Any, Any]:
    brain = datatype == "BF16"
    dtype = np.dtype("<u2") if brain else _dtype(name, datatype)
    if len(raw) % dtype.itemsize:
        raise _bad(
            "wrong_shape",
            f"input {name!r} has {len(raw)} bytes, no multiple of {dtype.itemsize}",
            name,
        )
    flat: np.ndarray[Any, Any] = np.frombuffer(raw, dtype)
    if brain:
        # The upper half of a float32 is a bfloat16.
        return (flat.astype("<u4") << 16).view("<f4")
    return flat if flat.flags.aligned else flat.copy()


def _from_json(name: str, datatype: str, text: memoryview | None) -> np.ndarray[Any, Any]:
    dtype = _dtype(name, datatype)
    value = _parsed(name, text)
    try:
        array: np.ndarray[Any, Any] = np.asarray(value).ravel()
    except ValueError as error:
        raise _bad("wrong_shape", f"input {name!r} is ragged", name) from error
    kinds = {"b": "b", "f": "iuf"}.get(dtype.kind, "iu")
    if array.size == 0:
        return array.astype(dtype)
    if array.dtype.kind not in kinds:
        raise _bad("wrong_datatype", f"input {name!r} holds values that are not {datatype}", name)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise _bad("wrong_datatype", f"input {name!r} holds values beyond {datatype}", name)
    return array.astype(dtype)


def _parsed(name: str, text: memoryview | None) -> Any:
    if text is None:
        raise _bad("missing_tensor", f"input {name!r} has no data", name)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad("malformed_json", f"data of input {name!r}: {error}", name) from error


def _strings(name: str, text: memoryview | None) -> np.ndarray[Any, Any]:
    found: list[str] = []
    stack: list[Any] = [_parsed(name, text)]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(reversed(value))
        elif isinstance(value, str):
            found.append(value)
        else:
            raise _bad("wrong_datatype", f"input {name!r} holds values that are no strings", name)
    return _objects(found)


def _texts(name: str, raw: memoryview) -> np.ndarray[Any, Any]:
    found: list[str | bytes] = []
    pos = 0
    while pos < len(raw):
        size = int.from_bytes(raw[pos : pos + 4], "little")
        end = pos + 4 + size
        if pos + 4 > len(raw) or end > len(raw):
            raise _bad("wrong_shape", f"input {name!r} ends inside an element", name)
        piece = bytes(raw[pos + 4 : end])
        try:
            found.append(piece.decode())
        except UnicodeDecodeError:
            found.append(piece)
        pos = end
    return _objects(found)


def _objects(values: Sequence[str | bytes]) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def encode_reply(item: TensorItem, results: Any, specs: Sequence[TensorSpec]) -> bytes:
    """The reply of one item from the results of its rows: dicts by output name, or single values.

    Raises UserError where the client asks for an output that the model does not give.
    """
    outputs = _outputs(results, specs)
    wanted = item.wanted or [(name, item.binary) for name in outputs]
    datatypes = {spec.name: spec.datatype for spec in specs}
    parts = []
    for name, binary in wanted:
        if name not in outputs:
            raise _bad(
                "unknown_output", f"no output {name!r}", name, "outputs are " + ", ".join(outputs)
            )
        parts.append(_part(name, outputs[name], datatypes.get(name), binary))
    return pack_tensors(parts)


def _outputs(results: Any, specs: Sequence[TensorSpec]) -> dict[str, np.ndarray[Any, Any]]:
    if len(results) and isinstance(results[0], dict):
        return {name: np.asarray([r[name] for r in results]) for name in results[0]}
    name = specs[0].name if specs else "output"
    return {name: np.asarray(results)}


def _part(name: str, array: np.ndarray[Any, Any], datatype: str | None, binary: bool) -> Any:
    if array.dtype.kind in "OSU" or datatype == "BYTES":
        raw = b"".join(map(_prefixed, array.ravel().tolist())) if binary else None
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in array.ravel().tolist()]
        return name, "BYTES", array.shape, raw, None if binary else msgspec.json.encode(texts)
    if datatype == "BF16":
        array = array.astype("<f4")
        if binary:
            halves = (array.view("<u4") >> 16).astype("<u2")
            return name, datatype, array.shape, halves.tobytes(), None
    elif datatype is not None:
        array = array.astype(DTYPES[datatype], copy=False)
    else:
        datatype = _NAMES[array.dtype]
    if binary:
        return name, datatype, array.shape, array.tobytes(), None
    return name, datatype, array.shape, None, msgspec.json.encode(array.ravel().tolist())


def _prefixed(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else str(value).encode()
    return len(data).to_bytes(4, "little") + data
