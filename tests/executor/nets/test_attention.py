"""Attention of one length: the plain steps and the fused kernel agree."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from headway.executor.nets.attention import PLAIN_FROM, attend  # noqa: E402


@pytest.mark.parametrize("length", [1, PLAIN_FROM - 1, PLAIN_FROM, PLAIN_FROM + 9])
def test_both_ways_agree_with_float32(length: int) -> None:
    g = torch.Generator().manual_seed(5)
    exact = torch.randn(3, 2, 4, length, 16, generator=g)
    wanted = torch.softmax(exact[0] @ exact[1].transpose(2, 3) / 4, -1) @ exact[2]
    torch.testing.assert_close(attend(exact), wanted, atol=1e-5, rtol=1e-5)
    short = attend(exact.bfloat16())
    assert short.shape == wanted.shape
    torch.testing.assert_close(short.float(), wanted, atol=0.05, rtol=0.05)
