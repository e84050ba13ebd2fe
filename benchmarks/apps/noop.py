"""The no-op of the benchmark: sums eight floats; NOOP_SLEEP_MS adds a fixed sleep a batch."""

from __future__ import annotations

import workload  # benchmarks/peers, on PYTHONPATH


def predict(batch: list) -> list:
    """The peers' own batch function."""
    return workload.noop(batch)
