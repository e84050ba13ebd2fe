"""Headway: an inference server that keeps latency promises and explains every batch."""

from __future__ import annotations

from headway.executor.model import END, ItemError, Model, Tensor

__all__ = ["END", "ItemError", "Model", "Tensor"]
