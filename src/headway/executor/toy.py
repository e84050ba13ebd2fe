"""Small deterministic models, for tests, demonstrations of the server and measurements of it.

Knows the model interface; must not know batching or processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from headway.executor.model import END, ItemError, Model


class Echo(Model):
    """Answers every item with itself: the no-op that measures everything around a model."""

    def predict(self, batch: list[Any]) -> list[Any]:
        """The items."""
        return batch

    def warmup(self) -> list[Any]:
        """One small item."""
        return [{"x": 1}]


class Sleepy(Echo):
    """Takes 5 ms a batch, whatever its size."""

    batch_s = 0.005

    def predict(self, batch: list[Any]) -> list[Any]:
        """The items, later."""
        time.sleep(self.batch_s)
        return batch


class Moody(Model):
    """Does what each item tells it: `{"fail": 422}`, `{"raise": "text"}`, `{"count": 3}`."""

    def predict(self, batch: list[Any]) -> Any:
        """Echo, except where an item asks for trouble."""
        results: list[Any] = []
        for item in batch:
            asked = item if isinstance(item, dict) else {}
            if "raise" in asked:
                raise ValueError(asked["raise"])
            if "count" in asked:
                return [0] * int(asked["count"])
            if "return" in asked:
                return asked["return"]
            if "sleep" in asked:
                time.sleep(float(asked["sleep"]))
            results.append(ItemError(asked["fail"], "asked to fail") if "fail" in asked else item)
        return results


class Counter(Model):
    """Streams numbers: item `n` yields 0 to n - 1, each item ending on its own."""

    def predict(self, batch: list[int]) -> Iterator[list[Any]]:
        """Steps over the whole batch."""
        step = 0
        longest = max(batch)
        while step < longest:
            yield [step if step < n else END if step == n else None for n in batch]
            step += 1
        yield [END if n >= step else None for n in batch]
