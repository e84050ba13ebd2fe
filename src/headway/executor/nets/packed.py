"""The packed batch form: all tokens of a batch in one row, with offsets, and no padding.

Knows lists of numbers and numpy; must not know any network. A model that declares
`form = "packed"` may call `pack` on its items and hand the result to whatever understands offsets
(cumulative sequence lengths, as variable-length attention calls them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class Packed:
    """Items one after another: item `i` is `token_ids[offsets[i]:offsets[i + 1]]`."""

    token_ids: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each item."""
        return np.diff(self.offsets)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Place of each token in its own item, from 0."""
        starts = np.repeat(self.offsets[:-1], self.lengths)
        return np.arange(len(self.token_ids), dtype=np.int64) - starts


def pack(items: Sequence[Sequence[int]]) -> Packed:
    """Concatenate items of whole numbers; empty items keep their place with length 0."""
    lengths = np.fromiter((len(item) for item in items), np.int64, len(items))
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    tokens = np.fromiter(chain.from_iterable(items), np.int64, int(offsets[-1]))
    return Packed(tokens, offsets)


def unpack(rows: NDArray[np.generic], offsets: NDArray[np.int64]) -> list[NDArray[np.generic]]:
    """Per-token results cut into items again: views, no copy."""
    return [rows[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
