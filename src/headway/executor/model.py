"""What a user writes: `Model`, the errors and marks it may use, and the default item formats.

Knows Python values and their JSON; must not know processes, sockets or batching. Imported with
`headway` itself, so it stays light: no numpy, no web framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from headway.core.batch import Form
from headway.core.config import ModelConfig
from headway.core.ports import TensorSpec

Tensor = TensorSpec
"""A declared input or output of a model: name, datatype and shape, batch dimension first."""

JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"


class ItemError(Exception):
    """One item cannot be served: its caller gets `status` and `message`, the others their answers.

    Return an instance in the result list, or raise it from `decode`, `measure` or `encode`. Raised
    from `predict` it fails the whole batch.
    """

    def __init__(
        self, status: int, message: str, *, code: str = "item_error", hint: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.hint = hint


class End:
    """The type of `END`."""

    def __repr__(self) -> str:
        return "headway.END"


END: Final = End()
"""In a step of a streamed batch: this item is finished."""


class Model:
    """Base class of served models. Everything but `predict` is optional."""

    version: str = ""
    form: Form = "list"
    """How sizes add up in a batch: `list`, `padded` (to the longest) or `packed`."""
    size_unit: str = "bytes"
    max_batch_size: int | None = None
    padded_sizes: tuple[int, ...] = ()
    """Row counts `predict` can run; a batch is filled up to the next with copies of its last."""
    embeds: bool = False
    """Serve `/v1/embeddings`: items are `{"text": ...}`, results vectors."""
    streams: bool = False
    """`predict` returns generators, one per item (found by itself for generator functions)."""
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    config: ModelConfig = ModelConfig()
    """The settings in effect: `threads`, `device` and so on; set before `load`."""

    def load(self) -> None:
        """Make ready to predict: read weights, open sessions. Called once, before anything else."""

    def predict(self, batch: Any) -> Any:
        """Answer a list of items with a list of results of the same length."""
        raise NotImplementedError(f"{type(self).__name__} needs a predict(self, batch)")

    def decode(self, body: bytes, content_type: str) -> Any:
        """Make an item of a request's body: JSON is parsed, anything else stays bytes."""
        return default_decode(body, content_type)

    def encode(self, result: Any) -> bytes | tuple[bytes, str]:
        """Make an answer's body of a result, or the body and its content type."""
        return default_encode(result)

    def measure(self, item: Any) -> float:
        """Size of an item in `size_unit`. Only asked where a model defines it."""
        raise NotImplementedError

    def warmup(self) -> Sequence[Any]:
        """Sample items, as `predict` gets them, of the lengths that matter."""
        return ()


def to_plain(value: Any) -> Any:
    """JSON for what msgspec does not know: arrays and tensors by their `tolist`."""
    tolist = getattr(value, "tolist", None)
    if tolist is not None:
        return tolist()
    if isinstance(value, ItemError):
        raise value
    raise TypeError(
        f"a result of type {type(value).__name__} has no JSON form; "
        "return plain values or arrays, or define encode"
    )


_json_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
json_encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=to_plain).encode
"""Any result to JSON, numpy and torch aware."""


def is_json(content_type: str) -> bool:
    """`application/json`, with or without parameters, and the `+json` family."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON_TYPE or kind.endswith("+json")


def default_decode(body: bytes, content_type: str) -> Any:
    """An item from a body: parsed where JSON, else the bytes. Raises msgspec.DecodeError."""
    return _json_decode(body) if is_json(content_type) else body


def default_encode(result: Any) -> bytes | tuple[bytes, str]:
    """A result's body: bytes stay bytes, all else becomes JSON."""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result), BYTES_TYPE
    return json_encode(result)
