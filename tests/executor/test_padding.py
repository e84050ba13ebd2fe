"""`pad` and `unpad`: what a model with a rectangular input is offered."""

from __future__ import annotations

import numpy as np
import pytest

from headway.executor.padding import pad, unpad


def test_pads_to_the_longest_and_marks_data() -> None:
    ids, mask = pad([[5, 6, 7], [8]])
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert ids.dtype == np.int64


def test_value_multiple_and_dtype() -> None:
    ids, mask = pad([[1.5], [2.5, 3.5, 4.5]], value=-1, multiple=4, dtype=np.float32)
    assert ids.shape == (2, 4)
    assert ids.dtype == np.float32
    assert ids[0].tolist() == [1.5, -1, -1, -1]
    assert mask.sum() == 4


def test_rows_of_vectors_keep_their_other_dimensions() -> None:
    x, mask = pad([np.ones((2, 3)), np.ones((1, 3))])
    assert x.shape == (2, 2, 3)
    assert x[1, 1].tolist() == [0, 0, 0]
    assert mask.shape == (2, 2)


def test_unpad_gives_the_rows_back() -> None:
    rows = [[1, 2], [], [3, 4, 5]]
    assert [r.tolist() for r in unpad(*pad(rows, dtype=np.int64))] == rows


def test_no_rows() -> None:
    ids, mask = pad([])
    assert ids.shape == mask.shape == (0, 0)


def test_rows_that_cannot_share_a_rectangle_are_named() -> None:
    with pytest.raises(ValueError, match=r"row 1 has shape \(2, 3\)"):
        pad([np.ones((2, 2)), np.ones((2, 3))])
    with pytest.raises(ValueError, match="multiple"):
        pad([[1]], multiple=0)
