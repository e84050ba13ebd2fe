"""How a batch's bytes become items, and results become answers, each item on its own.

Knows codecs, the model's `decode`, `encode` and `measure`, and how a failure reads to its caller;
must not know sockets, threads or when anything runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headway.core.errors import UserError
from headway.core.request import Codec, ItemResult
from headway.core.wire.problem import malformed
from headway.executor.adapt import Served
from headway.executor.model import (
    BYTES_TYPE,
    JSON_TYPE,
    ItemError,
    default_decode,
    default_encode,
    json_encode,
)

_PLAIN = (dict, list, tuple, str, int, float, bool, type(None))
_BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BAD_VALUE = (TypeError, ValueError, RecursionError, ItemError)


class Job:
    """One batch on its way through a worker."""

    __slots__ = (
        "codecs",
        "counts",
        "decode_s",
        "failed",
        "gone",
        "ident",
        "ids",
        "items",
        "live",
        "pad",
        "payloads",
        "rows",
        "simple",
        "sizes",
        "types",
    )

    def __init__(self, ident: int, payloads: list[bytes], pad: int = 0) -> None:
        self.ident = ident
        self.payloads = payloads
        self.pad = pad
        """Rows to add by copying (B7)."""
        self.codecs: bytes = b""
        """One `Codec` per item; empty where all are JSON."""
        self.types: Sequence[str] = ()
        self.ids: Sequence[int] = ()
        """Request ids, where sizes were asked for before."""
        self.gone: set[int] = set()
        """Items nobody waits for."""
        self.rows: list[Any] | None = None
        """What `predict` gets; None before decoding."""
        self.simple = False
        """Every item is alive, has one row and the default formats: nothing to regroup."""
        self.live: list[int] = []
        self.counts: list[int] = []
        """Rows of each live item."""
        self.items: dict[int, Any] = {}
        """What the tensor codec remembers of an item for its reply."""
        self.failed: dict[int, ItemResult] = {}
        self.sizes: list[float] | None = None
        self.decode_s = 0.0


def failure(error: BaseException, where: str, body: bytes = b"") -> ItemResult:
    """An exception as its caller hears it. Unforeseen ones are logged, with an id to find them.

    With the `body` that was parsed, broken JSON is told with its byte, line and column.
    """
    if isinstance(error, ItemError):
        return ItemResult(error.status, error.message.encode(), code=error.code, hint=error.hint)
    if isinstance(error, UserError):
        return ItemResult(error.status, error.message.encode(), code=error.code, hint=error.hint)
    if isinstance(error, msgspec.ValidationError):
        return ItemResult(
            422,
            str(error).encode(),
            code="invalid_item",
            hint="the schema is at /docs",
        )
    bad_json = isinstance(error, _BAD_JSON) or type(error).__name__ == "JSONDecodeError"
    if where == "decode" and bad_json:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if body and isinstance(error, msgspec.DecodeError):
            text = malformed(error, body).message
        return ItemResult(400, text.encode(), code="malformed_json", hint="send valid JSON")
    ident = os.urandom(4).hex()
    print(f"headway: {where} failed, error id {ident}", file=sys.stderr)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.stderr.flush()
    return ItemResult(
        500,
        f"{where} raised {type(error).__name__} (error id {ident})".encode(),
        code="model_error",
        hint="the server's log has the traceback under this id",
    )


def cancelled() -> ItemResult:
    """The place of an item that nobody waits for."""
    return ItemResult(499, b"", code="cancelled")


def check_results(results: Any, wanted: int) -> Any:
    """`results` as a sequence of `wanted`, never split out of one value. Raises ItemError (500)."""
    fits = isinstance(results, (list, tuple)) or (
        hasattr(results, "shape") and len(results.shape) > 0
    )
    if not fits:
        raise ItemError(
            500,
            f"predict returned {type(results).__name__} for a batch of {wanted}",
            code="wrong_result_type",
            hint="return a list with one result per item",
        )
    if len(results) != wanted:
        raise ItemError(
            500,
            f"predict returned {len(results)} results for {wanted} items",
            code="wrong_result_count",
            hint="return a list with one result per item, in order",
        )
    return results


def to_floats(result: Any) -> bytes:
    """A vector (or `{"embedding": vector}`) as little-endian float32."""
    if isinstance(result, dict):
        result = result["embedding"]
    astype = getattr(result, "astype", None)
    if astype is not None:
        return bytes(astype("<f4").tobytes())
    values = array("f", result.tolist() if hasattr(result, "tolist") else result)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


class ItemCodec:
    """Decodes and encodes the items of one model."""

    def __init__(self, served: Served, padded_sizes: Sequence[int] = ()) -> None:
        self._served = served
        self._padded_sizes = tuple(padded_sizes) or tuple(served.info.padded_sizes)
        kind = served.type_in
        self._json: Callable[[bytes], Any] = (
            msgspec.json.Decoder() if kind is None else msgspec.json.Decoder(kind)
        ).decode
        self._typed = kind is not None
        self._default = served.decode is None and served.measure is None
        safe = set(_PLAIN)
        if isinstance(served.type_out, type):
            safe.add(served.type_out)
        self._safe = frozenset(safe)
        self.known: dict[int, tuple[Any, float]] = {}
        """Items decoded when their size was asked for, by request id; the caller bounds it."""

    def decode(self, job: Job) -> None:
        """Fill `job.rows`; what cannot be decoded goes to `job.failed`."""
        if self._default and not job.codecs and not job.gone:
            json = self._json
            try:
                job.rows = [json(body) for body in job.payloads]
                job.simple = True
                return
            except _BAD_JSON:
                pass  # at least one is bad: find out which below
        self._decode_each(job)

    def _decode_each(self, job: Job) -> None:
        rows: list[Any] = []
        measured = self._served.measure is not None
        sizes = [0.0] * len(job.payloads) if measured else None
        for index in range(len(job.payloads)):
            if index in job.gone:
                job.failed[index] = cancelled()
                continue
            try:
                more, size = self._decode_one(job, index)
            except Exception as error:
                job.failed[index] = failure(error, "decode", self._parsed(job, index, error))
                continue
            rows.extend(more)
            job.live.append(index)
            job.counts.append(len(more))
            if sizes is not None:
                sizes[index] = size
        job.rows = rows
        job.sizes = sizes

    def _parsed(self, job: Job, index: int, error: Exception) -> bytes:
        """The body if it is what broke as JSON; empty where that was tensors, or a part of it that
        the model's own `decode` parsed."""
        body = job.payloads[index]
        if job.codecs and job.codecs[index] == Codec.TENSORS:
            return b""
        if self._served.decode is None:
            return body
        try:
            default_decode(body, JSON_TYPE)
        except _BAD_JSON as whole:
            return body if str(whole) == str(error) else b""
        return b""

    def _decode_one(self, job: Job, index: int) -> tuple[list[Any], float]:
        if job.ids:
            known = self.known.pop(job.ids[index], None)
            if known is not None:
                return [known[0]], known[1]
        body = job.payloads[index]
        codec = job.codecs[index] if job.codecs else Codec.JSON
        if codec == Codec.TENSORS:
            item = tensors().decode_item(body, self._served.info.inputs)
            job.items[index] = item
            rows: list[Any] = item.rows
            measure = self._served.measure
            return rows, max(map(float, map(measure, rows))) if measure and rows else 0.0
        value, size = self.item(body, codec, job.types[index] if job.types else JSON_TYPE)
        return [value], size

    def item(self, body: bytes, codec: int, content_type: str) -> tuple[Any, float]:
        """One item of one row and its size (0 where the model does not measure)."""
        if codec != Codec.RAW:
            content_type = JSON_TYPE
        value: Any = body
        if self._served.decode is not None:
            value = self._served.decode(body, content_type)
        elif codec != Codec.RAW:
            value = self._json(body)
        elif self._typed:
            raise ItemError(
                415,
                f"this model takes JSON, not {content_type or 'bytes of no stated type'}",
                code="unsupported_media_type",
                hint="send the header content-type: application/json",
            )
        measure = self._served.measure
        return value, 0.0 if measure is None else float(measure(value))

    def padded(self, job: Job) -> list[Any]:
        """Rows for `predict`, filled up with copies of the last to a count the model allows."""
        rows = job.rows or []
        if not job.pad and not self._padded_sizes:
            return rows
        target = next((n for n in self._padded_sizes if n >= len(rows)), len(rows))
        if not self._padded_sizes:
            target = sum(job.counts) + job.pad if job.counts else len(rows) + job.pad
        return rows + [rows[-1]] * (target - len(rows))

    def is_plain(self, results: Any) -> bool:
        """Nothing but values with a JSON form: no streams, errors, bytes or arrays among them."""
        return type(results) is list and self._safe.issuperset(map(type, results))

    def encode(
        self, job: Job, results: Any, plain: bool
    ) -> tuple[list[bytes], list[ItemResult] | None]:
        """Bodies in item order; the second is None where all are JSON answers with status 200."""
        if plain and job.simple and self._served.encode is None:
            try:
                return [json_encode(value) for value in results], None
            except _BAD_VALUE:
                pass  # one has no JSON form: find out which below
        items = self._encode_each(job, results)
        return [item.body for item in items], items

    def _encode_each(self, job: Job, results: Any) -> list[ItemResult]:
        total = len(job.payloads)
        live = range(total) if job.simple else job.live
        items: list[ItemResult] = [cancelled()] * total
        for index, failed in job.failed.items():
            items[index] = failed
        pos = 0
        for place, index in enumerate(live):
            count = 1 if job.simple else job.counts[place]
            part = results[pos : pos + count]
            pos += count
            if index in job.gone:
                continue
            item = self.encode_one(job, index, part)
            if job.sizes is not None:
                item.size = job.sizes[index]
            items[index] = item
        return items

    def encode_one(self, job: Job, index: int, part: Any) -> ItemResult:
        """The answer of one item from its rows' results; a failure is its own."""
        try:
            for value in part:
                if isinstance(value, ItemError):
                    return failure(value, "predict")
            codec = job.codecs[index] if job.codecs else Codec.JSON
            if codec == Codec.TENSORS:
                outputs = self._served.info.outputs
                body = tensors().encode_reply(job.items[index], part, outputs)
                return ItemResult(200, body, BYTES_TYPE)
            if codec == Codec.EMBED:
                return ItemResult(200, to_floats(part[0]), BYTES_TYPE)
            return ItemResult(200, *self.body(part[0]))
        except Exception as error:
            return failure(error, "encode")

    def body(self, result: Any) -> tuple[bytes, str]:
        """The bytes and content type of one result, or of one piece of a stream."""
        encode = self._served.encode
        made = default_encode(result) if encode is None else encode(result)
        if isinstance(made, bytes):
            return made, JSON_TYPE
        if isinstance(made, tuple) and len(made) == 2:
            return bytes(made[0]), str(made[1])
        raise TypeError(
            f"encode returned {type(made).__name__}; return bytes or (bytes, content type)"
        )

    def fail_all(self, job: Job, error: ItemResult) -> list[ItemResult]:
        """Every item that had not failed by itself gets `error`."""
        return [
            job.failed.get(i) or (cancelled() if i in job.gone else error)
            for i in range(len(job.payloads))
        ]


def tensors() -> Any:
    """`core.wire.tensors`, loaded at the first use: it needs numpy, most models do not."""
    return importlib.import_module("headway.core.wire.tensors")
