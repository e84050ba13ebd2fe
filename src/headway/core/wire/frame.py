"""How the tensors of one item travel between the front end and a worker (`Codec.TENSORS`).

Knows the binary layout only; must not know numpy, HTTP or what the tensors mean.

One layout serves the item (inputs) and its reply (outputs): a MessagePack array of three,
`[parts, wanted, binary]`, built and read by one call of msgspec.

- `parts`: one `[name, datatype, shape, raw, json]` per tensor. `name` and `datatype` are strings
  as in the Open Inference Protocol, `shape` a list of integers with the batch dimension first.
  Exactly one of `raw` and `json` is bytes, the other nil. `raw` is the protocol's binary form:
  little-endian, row-major; BYTES elements each preceded by a 4-byte little-endian length. `json`
  is the text of the tensor's `data` value, flat or nested, unparsed.
- `wanted` (items only): `[name, binary]` per requested output, in order; empty asks for all.
- `binary` (items only): the form of outputs when `wanted` is empty (`binary_data_output`).

In a reply each part is `raw` where binary was asked for, else `json` (flat, row-major). A name in
`wanted` that the model does not give fails the item with 400.

Use: `payload = pack_tensors(parts, wanted=..., binary=...)`, in the front end
`unpack_tensors(result.body).parts`. `raw` and `json` come back as memoryviews of the payload:
no copy is made, and the payload stays alive as long as they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Part = tuple[str, str, tuple[int, ...], memoryview | None, memoryview | None]
"""(name, datatype, shape, raw, json); exactly one of the last two is set."""

Parts = Sequence[
    tuple[str, str, Sequence[int], bytes | memoryview | None, bytes | memoryview | None]
]
"""What may be packed: as `Part`, with any bytes."""


class Tensors(msgspec.Struct, array_like=True, gc=False):
    """An item, or with `wanted` empty its reply."""

    parts: list[Part]
    wanted: list[tuple[str, bool]] = []
    binary: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Tensors).decode


def pack_tensors(
    parts: Parts, *, wanted: Sequence[tuple[str, bool]] = (), binary: bool = False
) -> bytes:
    """The bytes of an item or a reply. Tensors are limited to 4 GiB each by the format."""
    return _encode((parts, wanted, binary))


def unpack_tensors(payload: bytes | memoryview) -> Tensors:
    """The tensors of an item or a reply. Raises msgspec.DecodeError where `payload` is neither."""
    return _decode(payload)
