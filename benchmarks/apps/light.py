"""A quick model: 1 ms a batch, whatever its size."""

from __future__ import annotations

import time


def predict(batch: list) -> list:
    """Take the device for 1 ms."""
    time.sleep(0.001)
    return [{"y": sum(item["x"])} for item in batch]
