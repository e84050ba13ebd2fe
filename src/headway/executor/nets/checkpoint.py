"""Reading a safetensors file into torch tensors, memory-mapped.

Knows the file format (8 bytes of header length, a JSON header, raw data); must not know what the
tensors mean. The format is small enough to read here, so the extra `torch` needs no more packages.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_HEADER_BYTES_MAX = 100 * 2**20


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the file, by name. Data is mapped copy-on-write and read when first touched.

    Raises FileNotFoundError, and ValueError for a file that is not safetensors or is cut short.
    """
    data: Any = np.memmap(path, np.uint8, mode="c")
    if len(data) < 8:
        raise ValueError(f"{path} is no safetensors file: {len(data)} bytes")
    size = int.from_bytes(data[:8].tobytes(), "little")
    if size > min(_HEADER_BYTES_MAX, len(data) - 8):
        raise ValueError(f"{path} is no safetensors file: it names a header of {size} bytes")
    try:
        header = json.loads(data[8 : 8 + size].tobytes())
    except ValueError as e:
        raise ValueError(f"{path} is no safetensors file: its header is not JSON ({e})") from e
    body = data[8 + size :]
    out = {}
    for name, spec in header.items():
        if name != "__metadata__":
            out[name] = _tensor(path, name, spec, body)
    return out


def _tensor(path: Path, name: str, spec: Any, body: Any) -> torch.Tensor:
    dtype = _DTYPES.get(spec["dtype"])
    if dtype is None:
        raise ValueError(f"{path}: tensor {name} has dtype {spec['dtype']}, which is not supported")
    start, end = spec["data_offsets"]
    shape = spec["shape"]
    if end > len(body) or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{path} is cut short or damaged at tensor {name}")
    if start == end:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(body[start:end], dtype=dtype).reshape(shape)
