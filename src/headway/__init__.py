"""Headway: an inference server that keeps latency promises and explains every batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headway.executor.model import END, ItemError, Model, Tensor

if TYPE_CHECKING:
    from headway.executor.function_batch import batch

__all__ = ["END", "ItemError", "Model", "Tensor", "batch"]


def __getattr__(name: str) -> Any:
    # Workers import this package too; only who uses `batch` pays for asyncio (30 ms, 8 MB).
    if name == "batch":
        return importlib.import_module("headway.executor.function_batch").batch
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
