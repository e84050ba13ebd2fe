"""Warm-up stops when it has learned enough, or has no time."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.config import ModelConfig
from headway.executor import warm as warm_module
from headway.executor.adapt import Served
from headway.executor.warm import WarmUp, doublings, samples_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


clock = Clock()


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_module, "perf_counter", clock)


class Costly:
    """Cost per item rises with every doubling past 4."""

    calls: list[int]

    def __init__(self, unit_s: float = 0.0005) -> None:
        self.calls = []
        self.unit_s = unit_s

    def predict(self, batch: list[Any]) -> list[Any]:
        rows = len(batch)
        self.calls.append(rows)
        clock.now += self.unit_s * rows * (rows / 4 if rows > 4 else 4 / rows)
        return batch

    def warmup(self) -> list[str]:
        return ["x"]


def warm(model: Any, **settings: Any) -> WarmUp:
    served = Served(model, ModelConfig(**settings))
    run = WarmUp(served, served.predict, lambda share, detail: None)
    run.go()
    return run


def test_sizes_stop_growing_once_an_item_costs_more_twice() -> None:
    assert [run.rows for run in warm(Costly()).runs] == [1, 2, 4, 8, 16]


def test_the_first_call_is_not_what_is_measured() -> None:
    class Cold(Costly):
        def predict(self, batch: list[Any]) -> list[Any]:
            if not self.calls:
                clock.now += 0.1
            return super().predict(batch)

    assert warm(Cold(), max_batch_size=1).runs[0].run_s < 0.05


def test_at_least_one_batch_runs_however_little_time_there_is() -> None:
    model = Costly(unit_s=0.002)
    run = warm(model, warmup_s_max=0.0)
    assert model.calls == [1] and len(run.runs) == 1


def test_caps_follow_the_class_and_the_setting() -> None:
    fast = Costly(unit_s=0.0)
    assert max(r.rows for r in warm(fast, max_batch_size=6).runs) <= 6
    assert doublings(6) == [1, 2, 4, 6] and doublings(8) == [1, 2, 4, 8] and doublings(1) == [1]


def test_samples_are_the_shortest_the_middle_and_the_longest() -> None:
    class Words(Costly):
        def warmup(self) -> list[str]:
            return ["a" * n for n in (5, 1, 9, 3, 7)]

    assert [size for size, _ in samples_of(Served(Words(), ModelConfig()))] == [1, 5, 9]
    assert samples_of(Served(type("M", (), {"predict": list})(), ModelConfig())) == []


def test_memory_is_judged_only_where_it_grew() -> None:
    assert warm(Costly(unit_s=0.0), max_batch_size=4).free_rows() is None

    class Hungry(Costly):
        def predict(self, batch: list[Any]) -> list[Any]:
            self.held = bytearray(b"x") * (len(batch) * 16 * 2**20)
            return batch

    rows = warm(Hungry(unit_s=0.0), max_batch_size=8).free_rows()
    assert rows is None or rows >= 1
