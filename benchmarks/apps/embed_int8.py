"""The int8 ONNX sentence encoder with the natural batch function: tokenise, pad, run.

The very code the peers serve. All it tells Headway is that batches are padded.
"""

from __future__ import annotations

from typing import Any

import workload  # benchmarks/peers, on PYTHONPATH

import headway


class EmbedInt8(headway.Model):
    """Texts in, `{"e": vector}` out."""

    form = "padded"

    def load(self) -> None:
        """Open the session."""
        self.embedder = workload.Embedder(self.config.threads)

    def predict(self, batch: list[Any]) -> list[Any]:
        """One vector per item."""
        return self.embedder(batch)

    def warmup(self) -> list[Any]:
        """Short and long texts."""
        return [{"text": "word " * n} for n in (3, 8, 16, 30, 60, 120, 190)]
