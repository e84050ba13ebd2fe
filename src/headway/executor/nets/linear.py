"""A linear layer with its weight laid out for the CPU once, at load.

Knows torch and oneDNN; must not know the network around it. Where torch offers no such layout
(another device, a build without oneDNN) the plain layer runs: same numbers, a little slower.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  torch's own customary name


class Linear:
    """y = x W^T + b, with an optional gelu in the same pass."""

    __slots__ = ("_bias", "_fused", "_weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._bias = bias
        self._fused = prepack(weight)
        self._weight = weight if self._fused is None else self._fused

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._fused is not None:
            return _pointwise(x, self._fused, self._bias, "none", "")
        return F.linear(x, self._weight, self._bias)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """gelu (the exact one, by the error function) of the layer's output."""
        if self._fused is not None:
            return _pointwise(x, self._fused, self._bias, "gelu", "none")
        return F.gelu(F.linear(x, self._weight, self._bias))


def prepack(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight in oneDNN's own layout, or None where that is not offered.

    These are the operators torch's own compiler emits for frozen CPU models. Measured on a CPU
    with AVX512-BF16 (1,755 tokens, 384 x 1536): 217 GFLOP/s against 192 for the plain layer.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    try:
        ops = torch.ops.mkldnn
        packed: torch.Tensor = ops._reorder_linear_weight(weight.contiguous(), None)
        probe = torch.zeros(1, weight.shape[1], dtype=weight.dtype)
        ops._linear_pointwise(probe, packed, None, "gelu", [], "none")
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
    return packed


def _pointwise(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, what: str, how: str
) -> torch.Tensor:
    y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, what, [], how)
    return y
