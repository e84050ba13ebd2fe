"""The packed form: offsets, positions and the way back."""

from __future__ import annotations

from headway.executor.nets.packed import pack, unpack


def test_pack_concatenates_and_counts() -> None:
    p = pack([[7, 8, 9], [], [5]])
    assert p.token_ids.tolist() == [7, 8, 9, 5]
    assert p.offsets.tolist() == [0, 3, 3, 4]
    assert p.lengths.tolist() == [3, 0, 1]
    assert p.positions.tolist() == [0, 1, 2, 0]
    assert len(p) == 3


def test_unpack_is_the_way_back() -> None:
    items = [[1, 2], [3], [4, 5, 6]]
    p = pack(items)
    assert [v.tolist() for v in unpack(p.token_ids, p.offsets)] == items


def test_nothing() -> None:
    p = pack([])
    assert len(p) == 0
    assert p.positions.tolist() == []
