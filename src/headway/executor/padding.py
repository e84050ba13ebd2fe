"""Padding to the longest, with an attention mask: offered to models that want one rectangle.

Knows rows of numbers and numpy; must not know a model or a batch policy. No torch here, so any
model can use it; `numpy -> torch` is `torch.from_numpy` without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def pad(
    rows: Sequence[ArrayLike],
    *,
    value: float = 0,
    multiple: int = 1,
    dtype: DTypeLike | None = None,
) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    """One array of all rows, filled up with `value` behind each, and its mask (1 = data).

    Rows may differ in their first dimension only. The common length is the longest row's, rounded
    up to a multiple of `multiple` (models compiled for a few lengths). No rows give a (0, 0) array.
    Raises ValueError when the rows differ in any other dimension.
    """
    if multiple < 1:
        raise ValueError(f"multiple must be at least 1, got {multiple}")
    arrays = [np.asarray(row) for row in rows]
    if not arrays:
        return np.empty((0, 0), dtype or np.int64), np.empty((0, 0), np.int64)
    tail = arrays[0].shape[1:]
    for i, a in enumerate(arrays):
        if a.ndim == 0 or a.shape[1:] != tail:
            raise ValueError(f"row {i} has shape {a.shape}, the first row {arrays[0].shape}")
    longest = max(len(a) for a in arrays)
    longest = -(-longest // multiple) * multiple
    kind = dtype or np.result_type(*arrays)
    out: NDArray[np.generic] = np.full((len(arrays), longest, *tail), value, kind)
    mask = np.zeros((len(arrays), longest), np.int64)
    for i, a in enumerate(arrays):
        out[i, : len(a)] = a
        mask[i, : len(a)] = 1
    return out, mask


def unpad(padded: NDArray[np.generic], mask: NDArray[np.int64]) -> list[NDArray[np.generic]]:
    """The rows again, each cut to its own length: views, no copy."""
    return [row[:n] for row, n in zip(padded, mask.sum(axis=1).tolist(), strict=True)]
