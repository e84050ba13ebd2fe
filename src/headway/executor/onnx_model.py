"""An ONNX file as a model: `headway serve x.onnx`.

Knows onnxruntime and numpy; must not know batching. Items are rows, `{"input": values}` or one
value where there is a single input; rows of one shape run together as one stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from headway.core.errors import UserError
from headway.core.ports import TensorSpec
from headway.executor.model import ItemError, Model

_TYPES = {
    "tensor(bool)": ("BOOL", "?"),
    "tensor(uint8)": ("UINT8", "u1"),
    "tensor(uint16)": ("UINT16", "u2"),
    "tensor(uint32)": ("UINT32", "u4"),
    "tensor(uint64)": ("UINT64", "u8"),
    "tensor(int8)": ("INT8", "i1"),
    "tensor(int16)": ("INT16", "i2"),
    "tensor(int32)": ("INT32", "i4"),
    "tensor(int64)": ("INT64", "i8"),
    "tensor(float16)": ("FP16", "f2"),
    "tensor(float)": ("FP32", "f4"),
    "tensor(double)": ("FP64", "f8"),
    "tensor(string)": ("BYTES", "O"),
}


def session_options(threads: int) -> Any:
    """Options for a worker that shares its machine: its own threads only, asleep between runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


class OnnxModel(Model):
    """Runs an ONNX graph on stacked rows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._session: Any = None
        self._dtypes: dict[str, Any] = {}
        self._fixed_rows: int | None = None

    def load(self) -> None:
        """Open the session and read the graph's inputs and outputs. Raises UserError."""
        if not Path(self._path).is_file():
            raise UserError(400, "no_model", f"no file {self._path!r}", hint="give an ONNX file")
        self._session = onnxruntime.InferenceSession(
            self._path,
            sess_options=session_options(self.config.threads),
            providers=["CPUExecutionProvider"],
        )
        inputs = self._session.get_inputs()
        self.inputs = tuple(_spec(value) for value in inputs)
        self.outputs = tuple(_spec(value) for value in self._session.get_outputs())
        self._dtypes = {value.name: np.dtype(_TYPES[value.type][1]) for value in inputs}
        rows = {value.shape[0] for value in inputs if value.shape}
        fixed = [n for n in rows if isinstance(n, int)]
        if fixed:
            # The graph was exported for one batch size: batches are filled up to it.
            self.padded_sizes = (fixed[0],)
            self.max_batch_size = fixed[0]

    def predict(self, batch: list[Any]) -> list[Any]:
        """One dict of outputs per row."""
        results: list[Any] = [None] * len(batch)
        groups: dict[tuple[Any, ...], list[tuple[int, dict[str, Any]]]] = {}
        for place, item in enumerate(batch):
            try:
                row = self._row(item)
            except ItemError as error:
                results[place] = error
                continue
            key = tuple(array.shape for array in row.values())
            groups.setdefault(key, []).append((place, row))
        for members in groups.values():
            self._run(members, results)
        return results

    def _run(self, members: Sequence[tuple[int, dict[str, Any]]], results: list[Any]) -> None:
        feed = {name: np.stack([row[name] for _, row in members]) for name in self._dtypes}
        count = len(members)
        fixed = self.padded_sizes[0] if self.padded_sizes else 0
        if count < fixed:
            # Rows that could not be stacked, or failed, left the batch short of its fixed size.
            feed = {name: _filled(array, fixed) for name, array in feed.items()}
        outputs = self._session.run(None, feed)
        names = [spec.name for spec in self.outputs]
        for row, (place, _) in enumerate(members):
            results[place] = {name: value[row] for name, value in zip(names, outputs, strict=True)}

    def _row(self, item: Any) -> dict[str, Any]:
        names = list(self._dtypes)
        if not isinstance(item, dict):
            if len(names) != 1:
                raise ItemError(
                    422,
                    f"this model has the inputs {', '.join(names)}",
                    code="invalid_item",
                    hint='send {"input name": values, ...}',
                )
            item = {names[0]: item}
        row = {}
        for spec in self.inputs:
            if spec.name not in item:
                raise ItemError(422, f"input {spec.name!r} is missing", code="invalid_item")
            row[spec.name] = self._value(spec, item[spec.name])
        return row

    def _value(self, spec: TensorSpec, value: Any) -> Any:
        try:
            array = np.asarray(value, dtype=self._dtypes[spec.name])
        except (ValueError, TypeError, OverflowError) as error:
            raise ItemError(
                422, f"input {spec.name!r} is not {spec.datatype}: {error}", code="invalid_item"
            ) from error
        want = spec.shape[1:]
        fits = array.ndim == len(want) and all(
            w in (-1, have) for w, have in zip(want, array.shape, strict=True)
        )
        if not fits:
            raise ItemError(
                422,
                f"input {spec.name!r} has shape {list(array.shape)} per row, wanted {list(want)}",
                code="invalid_item",
            )
        return array

    def warmup(self) -> list[Any]:
        """Rows of ones; dimensions of any size are tried at 1, 16 and 64."""
        free = any(-1 in spec.shape[1:] for spec in self.inputs)
        return [
            {
                spec.name: np.ones(
                    [n if n > 0 else length for n in spec.shape[1:]], self._dtypes[spec.name]
                )
                for spec in self.inputs
            }
            for length in ((1, 16, 64) if free else (1,))
        ]


def _filled(array: Any, rows: int) -> Any:
    return np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])


def _spec(value: Any) -> TensorSpec:
    if value.type not in _TYPES:
        raise UserError(400, "bad_model", f"{value.name!r} is a {value.type}", hint="use tensors")
    shape = tuple(n if isinstance(n, int) and n > 0 else -1 for n in value.shape)
    return TensorSpec(value.name, _TYPES[value.type][0], (-1, *shape[1:]))
