"""The Open Inference Protocol (KServe v2, as Triton speaks it): bytes to tensors and back.

Knows the JSON bodies, the binary tensor extension and how a call is checked against what a model
declared; must not know how a worker stores a tensor: data stays unparsed (`frame`) unless a call
has to be split by rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import msgspec

from headway.core.errors import UserError
from headway.core.ports import ModelInfo, TensorSpec
from headway.core.wire.frame import Part as Framed
from headway.core.wire.frame import Parts, Tensors
from headway.core.wire.problem import Answer, json_answer, malformed

ITEM_BYTES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 0,
}
"""Bytes of one element; BYTES elements carry their own length."""
_RAW_ONLY = {"FP16", "BF16"}
EXTENSIONS = ("binary_tensor_data", "statistics", "schedule_policy")
_HEADER = "inference-header-content-length"


class _In(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = msgspec.Raw()
    parameters: dict[str, Any] | None = None


class _Out(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Infer(msgspec.Struct):
    inputs: list[_In]
    id: str | int | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[_Out] | None = None


_infer = msgspec.json.Decoder(_Infer)
_raws = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(slots=True)
class Part:
    """One input tensor, its data unparsed: exactly one of `raw` and `json` is set."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: memoryview | None
    json: bytes | None

    def packed(self) -> tuple[str, str, tuple[int, ...], memoryview | None, bytes | None]:
        """As `frame.pack_tensors` takes it."""
        return self.name, self.datatype, self.shape, self.raw, self.json


@dataclass(slots=True)
class InferCall:
    """A parsed and checked call."""

    id: str | int | None
    parts: list[Part]
    rows: int
    wanted: list[tuple[str, bool]] = field(default_factory=list)
    """Outputs asked for by name, each with its form (True is binary); empty asks for all."""
    binary: bool = False
    priority: int = 0
    timeout_s: float | None = None


def parse_infer(body: bytes, header_bytes: str | None, info: ModelInfo) -> InferCall:
    """Read `POST .../infer`. `header_bytes` is the header Inference-Header-Content-Length.

    Raises UserError 400 naming the position, or the tensor, what came and what was wanted.
    """
    split = len(body)
    if header_bytes is not None:
        if not header_bytes.isdecimal() or int(header_bytes) > len(body):
            raise _bad(
                f"{_HEADER} is {header_bytes!r} in a body of {len(body)} bytes",
                hint="it is the length of the JSON part",
            )
        split = int(header_bytes)
    head = body[:split] if split < len(body) else body
    try:
        call = _infer.decode(head)
    except msgspec.DecodeError as exc:
        raise malformed(exc, head) from exc
    parts = _parts(call.inputs, memoryview(body)[split:])
    rows = check(parts, info.inputs)
    found = InferCall(call.id, parts, rows)
    _read_outputs(found, call, info)
    _read_schedule(found, call.parameters or {})
    return found


def _parts(inputs: Sequence[_In], tail: memoryview) -> list[Part]:
    """Tensors with their data; binary ones take theirs from `tail`, in order."""
    parts = []
    at = 0
    for given in inputs:
        size = (given.parameters or {}).get("binary_data_size")
        shape = tuple(given.shape)
        if given.parameters and "shared_memory_region" in given.parameters:
            raise _bad(f"input {given.name!r} is in shared memory", hint="send its data")
        if size is None:
            parts.append(Part(given.name, given.datatype, shape, None, bytes(given.data)))
            continue
        if not isinstance(size, int) or not 0 <= size <= len(tail) - at:
            raise _bad(
                f"input {given.name!r} has binary_data_size {size!r}, "
                f"{len(tail) - at} bytes are left in the body",
                hint=f"send the binary data after the JSON, and its start in {_HEADER}",
            )
        parts.append(Part(given.name, given.datatype, shape, tail[at : at + size], None))
        at += size
    if at != len(tail):
        raise _bad(f"{len(tail) - at} bytes follow the last tensor", hint="see binary_data_size")
    return parts


def check(parts: Sequence[Part], specs: Sequence[TensorSpec]) -> int:
    """Check tensors against the declared inputs; returns the rows they share.

    Raises UserError 400 naming the tensor, what came and what was wanted.
    """
    _check_names([p.name for p in parts], [s.name for s in specs])
    declared = {s.name: s for s in specs}
    for part in parts:
        _check_part(part, declared.get(part.name))
    rows = {p.shape[0] for p in parts}
    if len(rows) > 1:
        told = ", ".join(f"{p.name} {list(p.shape)}" for p in parts)
        raise _bad(f"inputs differ in their first dimension: {told}", hint="it is the batch")
    return rows.pop()


def _check_names(given: Sequence[str], declared: Sequence[str]) -> None:
    if not given:
        raise _bad("inputs is empty", hint="send at least one tensor")
    if len(set(given)) < len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise _bad(f"input {twice!r} is given twice", hint="give each tensor once")
    hint = "the model's inputs are: " + ", ".join(declared)
    for name in given:
        if declared and name not in declared:
            raise _bad(f"unknown input {name!r}", hint=hint)
    for name in declared:
        if name not in given:
            raise _bad(f"input {name!r} is missing", hint=hint)


def _check_part(part: Part, spec: TensorSpec | None) -> None:
    name, shape = part.name, part.shape
    item = ITEM_BYTES.get(part.datatype)
    if spec is not None and part.datatype != spec.datatype:
        raise _bad(
            f"input {name!r} has datatype {part.datatype}, wanted {spec.datatype}",
            hint=f"send {spec.datatype}",
        )
    if item is None:
        raise _bad(f"input {name!r} has unknown datatype {part.datatype!r}", hint=_known_types())
    if not shape or min(shape) < 0 or shape[0] < 1:
        raise _bad(
            f"input {name!r} has shape {list(shape)}, wanted a batch dimension of at least 1 first"
        )
    if spec is not None and not _fits(shape, spec.shape):
        raise _bad(
            f"input {name!r} has shape {list(shape)}, wanted {list(spec.shape)}",
            hint="-1 stands for any size; the first dimension is the batch",
        )
    if part.raw is None:
        if part.datatype in _RAW_ONLY:
            raise _bad(f"input {name!r} is {part.datatype}", hint="send it in binary form only")
        if not part.json or part.json[:1] != b"[":
            raise _bad(f"input {name!r} has no data list", hint="send data as a JSON list")
    elif item and len(part.raw) != prod(shape) * item:
        raise _bad(
            f"input {name!r} has {len(part.raw)} bytes, wanted {prod(shape) * item} for "
            f"{part.datatype} {list(shape)}"
        )


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """The first dimension is the batch: any size, within the declared one when it is fixed."""
    return len(shape) == len(wanted) and all(
        want in {-1, got} for got, want in zip(shape, wanted, strict=True)
    )


def _known_types() -> str:
    return "one of " + ", ".join(ITEM_BYTES)


def _read_outputs(found: InferCall, call: _Infer, info: ModelInfo) -> None:
    default = bool((call.parameters or {}).get("binary_data_output", False))
    found.binary = default
    known = [s.name for s in info.outputs]
    for out in call.outputs or ():
        parameters = out.parameters or {}
        if known and out.name not in known:
            raise _bad(
                f"unknown output {out.name!r}", hint="the model's outputs are: " + ", ".join(known)
            )
        for refused in ("classification", "shared_memory_region"):
            if refused in parameters:
                raise _bad(f"output {out.name!r} asks for {refused}", hint="it is not supported")
        found.wanted.append((out.name, bool(parameters.get("binary_data", default))))


def _read_schedule(found: InferCall, parameters: dict[str, Any]) -> None:
    """Triton's request parameters `priority` (1 is highest) and `timeout` (microseconds)."""
    for name in ("priority", "timeout"):
        value = parameters.get(name, 0)
        if not isinstance(value, int) or value < 0:
            raise _bad(f"parameter {name} is {value!r}", hint="send a whole number, at least 0")
    if parameters.get("sequence_id"):
        raise _bad("sequence_id is set", hint="sequences are not supported")
    found.priority = parameters.get("priority", 0)
    timeout_us = parameters.get("timeout", 0)
    found.timeout_s = timeout_us / 1e6 if timeout_us else None


def split_rows(call: InferCall, rows_max: int) -> list[tuple[int, Parts]]:
    """The call in pieces of at most `rows_max` rows, each ready to pack (B22).

    Raises UserError 400 where data does not have the elements its shape names.
    """
    starts = range(0, call.rows, rows_max)
    sliced = [_slices(part, rows_max) for part in call.parts]
    return [
        (min(rows_max, call.rows - start), [one[i].packed() for one in sliced])
        for i, start in enumerate(starts)
    ]


def _slices(part: Part, step: int) -> list[Part]:
    rows, per_row = part.shape[0], prod(part.shape[1:])
    out = []
    if part.json is not None:
        items = _raws.decode(part.json)
        width = 1 if len(items) == rows and bytes(items[0])[:1] == b"[" else per_row
        if len(items) != rows * width:
            raise _miscounted(part, len(items))
        for start in range(0, rows, step):
            n = min(step, rows - start)
            text = b",".join([bytes(i) for i in items[start * width : (start + n) * width]])
            shape = (n, *part.shape[1:])
            out.append(Part(part.name, part.datatype, shape, None, b"[" + text + b"]"))
        return out
    assert part.raw is not None
    edges = _row_edges(part, part.raw, per_row)
    for start in range(0, rows, step):
        n = min(step, rows - start)
        raw = part.raw[edges[start] : edges[start + n]]
        out.append(Part(part.name, part.datatype, (n, *part.shape[1:]), raw, None))
    return out


def _row_edges(part: Part, raw: memoryview, per_row: int) -> Sequence[int]:
    """Byte offset of each row and of the end."""
    rows, item = part.shape[0], ITEM_BYTES[part.datatype]
    if item:
        return range(0, len(raw) + 1, per_row * item) if per_row else [0] * (rows + 1)
    edges = [0]
    at = 0
    for _ in range(rows):
        for _ in range(per_row):
            at += 4 + int.from_bytes(raw[at : at + 4], "little")
        edges.append(at)
    if at != len(raw):
        raise _miscounted(part, len(raw))
    return edges


def _miscounted(part: Part, got: int) -> UserError:
    what = "items" if part.json is not None else "bytes"
    return _bad(
        f"input {part.name!r} has {got} {what} of data, which is not what shape "
        f"{list(part.shape)} holds"
    )


def join_rows(pieces: Sequence[Tensors]) -> Tensors:
    """The replies of the pieces of one call, as one."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    parts: list[Framed] = []
    for i, (name, datatype, shape, raw, _) in enumerate(first.parts):
        same = [p.parts[i] for p in pieces]
        rows = sum(p[2][0] for p in same)
        joined = (rows, *shape[1:])
        if raw is not None:
            data = memoryview(b"".join([p[3] for p in same if p[3] is not None]))
            parts.append((name, datatype, joined, data, None))
        else:
            texts = [bytes(p[4])[1:-1] for p in same if p[4] is not None]
            text = b"[" + b",".join([t for t in texts if t]) + b"]"
            parts.append((name, datatype, joined, None, memoryview(text)))
    return Tensors(parts)


def infer_answer(call: InferCall, reply: Tensors, name: str, version: str) -> Answer:
    """The answer: JSON, or JSON followed by the binary outputs."""
    outputs: list[dict[str, Any]] = []
    tail: list[memoryview] = []
    for part_name, datatype, shape, raw, json in reply.parts:
        out: dict[str, Any] = {"name": part_name, "datatype": datatype, "shape": shape}
        if raw is not None:
            out["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        else:
            out["data"] = msgspec.Raw(json or b"[]")
        outputs.append(out)
    document: dict[str, Any] = {"model_name": name}
    if version:
        document["model_version"] = version
    if call.id is not None:
        document["id"] = str(call.id)
    document["outputs"] = outputs
    head = msgspec.json.encode(document)
    if not tail:
        return Answer(200, head)
    headers = ((_HEADER, str(len(head))),)
    return Answer(200, b"".join([head, *tail]), "application/octet-stream", headers)


def server_metadata(version: str) -> Answer:
    """`GET /v2`."""
    return json_answer({"name": "headway", "version": version, "extensions": EXTENSIONS})


def model_metadata(name: str, info: ModelInfo | None) -> Answer:
    """`GET /v2/models/{m}`; no tensors until it is loaded, or when it declares none."""
    info = info or ModelInfo(name)
    return json_answer(
        {
            "name": name,
            "versions": [info.version] if info.version else [],
            "platform": "headway_python",
            "inputs": [_spec(s) for s in info.inputs],
            "outputs": [_spec(s) for s in info.outputs],
        }
    )


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def _bad(message: str, *, hint: str = "") -> UserError:
    return UserError(400, "bad_tensor", message, hint=hint)
