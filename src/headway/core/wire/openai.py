"""OpenAI's embeddings and model list: bytes to values and back.

Knows the published shapes and what clients in the field send; must not know how a text becomes a
vector. Vectors come from workers as little-endian float32 bytes.
"""

from __future__ import annotations

from array import array
from binascii import b2a_base64
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import msgspec

from headway.core.errors import UserError
from headway.core.wire.problem import Answer, malformed

_FLOAT_BYTES = 4


class _Body(msgspec.Struct):
    """A request body with its items unread. Unknown fields are accepted: clients send many."""

    input: str | list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    priority: int | None = None


_body = msgspec.json.Decoder(_Body)
_ids = msgspec.json.Decoder(list[int])


@dataclass(slots=True)
class EmbeddingsCall:
    """A parsed call: one payload (`{"text": ...}` or `{"token_ids": [...]}`) per input."""

    model: str
    payloads: list[bytes]
    token_ids: int
    """Token ids the client sent itself; 0 for texts."""
    base64: bool
    dimensions: int | None
    priority: int


def parse_embeddings(body: bytes) -> EmbeddingsCall:
    """Read a request body. Raises UserError 400 with the position or the field that is wrong."""
    try:
        call = _body.decode(body)
        payloads, token_ids = _payloads(call.input)
    except msgspec.DecodeError as exc:
        raise malformed(exc, body) from exc
    if call.dimensions is not None and call.dimensions < 1:
        raise UserError(
            400,
            "malformed",
            f"dimensions is {call.dimensions}",
            hint="at least 1",
            param="dimensions",
        )
    return EmbeddingsCall(
        call.model or "",
        payloads,
        token_ids,
        call.encoding_format == "base64",
        call.dimensions,
        call.priority or 0,
    )


def _payloads(value: str | list[msgspec.Raw] | msgspec.UnsetType) -> tuple[list[bytes], int]:
    """One payload per input, and how many token ids the client sent."""
    if value is msgspec.UNSET or value == []:
        raise UserError(
            400,
            "malformed",
            "input is missing or empty",
            hint="a text, a list of texts, or token ids",
            param="input",
        )
    if isinstance(value, str):
        return [b'{"text":' + msgspec.json.encode(value) + b"}"], 0
    items = [bytes(raw) for raw in value]
    kinds = {_kind(item) for item in items}
    if kinds == {"text"}:
        return [b'{"text":' + item + b"}" for item in items], 0
    if kinds == {"ids"}:
        count = sum(len(_ids.decode(item)) for item in items)
        return [b'{"token_ids":' + item + b"}" for item in items], count
    if kinds == {"id"}:
        joined = b"[" + b",".join(items) + b"]"
        return [b'{"token_ids":' + joined + b"}"], len(_ids.decode(joined))
    raise UserError(
        400,
        "malformed",
        "input mixes kinds",
        hint="all texts, all token ids, or all lists of ids",
        param="input",
    )


def _kind(item: bytes) -> str:
    first = item[:1]
    if first == b'"':
        return "text"
    if first == b"[":
        return "ids"
    return "id" if first.isdigit() else "other"


def vector(raw: bytes, *, dimensions: int | None, base64: bool) -> str | list[float]:
    """One embedding as JSON carries it. Fewer `dimensions` cut and renormalise, as OpenAI's do.

    Raises UserError 400 when more dimensions are wanted than there are.
    """
    if dimensions is not None and dimensions * _FLOAT_BYTES != len(raw):
        have = len(raw) // _FLOAT_BYTES
        if dimensions > have:
            raise UserError(
                400,
                "malformed",
                f"dimensions is {dimensions}, the model gives {have}",
                hint=f"at most {have}",
                param="dimensions",
            )
        values = array("f", raw[: dimensions * _FLOAT_BYTES])
        norm = sqrt(sum(v * v for v in values)) or 1.0
        raw = array("f", [v / norm for v in values]).tobytes()
    if base64:
        return b2a_base64(raw, newline=False).decode("ascii")
    return array("f", raw).tolist()


def embeddings_answer(model: str, vectors: list[str | list[float]], tokens: int) -> Answer:
    """The whole answer, vectors in the order of the inputs (S10)."""
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    document = {"object": "list", "data": data, "model": model, "usage": usage}
    return Answer(200, msgspec.json.encode(document))


def model_entry(name: str, created_s: int) -> dict[str, object]:
    """One row of `GET /v1/models`."""
    return {"id": name, "object": "model", "created": created_s, "owned_by": "headway"}


def model_list(names: list[str], created_s: int) -> Answer:
    """`GET /v1/models`: the names that `model` accepts, the first being the default."""
    data = [model_entry(name, created_s) for name in names]
    return Answer(200, msgspec.json.encode({"object": "list", "data": data}))
