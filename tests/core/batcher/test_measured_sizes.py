"""Sizes in the model's own unit, asked of a worker while a request waits."""

from __future__ import annotations

from math import inf, nan

import pytest

from headway.core.batch import BatchResult
from headway.core.events import Refused
from headway.core.ports import ModelInfo
from headway.core.request import ItemResult
from tests.core.stage import Stage


def measuring(**settings: object) -> tuple[Stage, list[int]]:
    info = ModelInfo("m", form="padded", measures=True, size_unit="tokens")
    stage = Stage("100", info=info, **settings)
    asked: list[int] = []
    stage.executor.measure = lambda requests: asked.extend(r.id for r in requests)  # type: ignore[method-assign]
    return stage, asked


def test_a_measured_size_puts_a_waiting_request_among_its_like() -> None:
    stage, asked = measuring(max_batch_size=8)
    stage.ask(size=10)
    stage.world.run(0.0)
    a, _ = stage.ask(size=100)
    b, _ = stage.ask(size=100)
    c, _ = stage.ask(size=100)
    assert asked == [1, 2, 3, 4]
    stage.driver.measured([a.id, b.id, c.id], [40.0, 1000.0, 41.0])
    assert stage.batcher.room.size == pytest.approx(1081.0)
    stage.world.run()
    assert [sorted(r.size for r in x.requests) for x in stage.batches[1:]] == [[40, 41], [1000]]


def test_a_size_within_the_same_class_counts_too() -> None:
    stage, _ = measuring(max_batch_size=1, queue_size_max=250.0)
    stage.ask(size=10)
    stage.world.run(0.0)
    a, _ = stage.ask(size=100)
    stage.driver.measured([a.id], [101.0])
    assert stage.batcher.room.size == pytest.approx(101.0)
    _, answer = stage.ask(size=150)
    assert answer.result is not None and answer.result.code == "queue_full"


def test_answers_that_come_late_or_make_no_sense_change_nothing() -> None:
    stage, _ = measuring(max_batch_size=1)
    running, _ = stage.ask(size=10)
    stage.world.run(0.0)
    gone, _ = stage.ask(size=10)
    stage.driver.cancel(gone)
    kept, _ = stage.ask(size=10)
    sizes = [999.0, 999.0, inf]
    stage.driver.measured([running.id, gone.id, kept.id], sizes)
    stage.driver.measured([12345], [5.0])
    for odd in (nan, -1.0, 0.0):
        stage.batcher.resize(kept, odd, 0.0)
    assert (running.size, gone.size, kept.size) == (10, 10, 10)
    assert stage.batcher.room.size == 10
    stage.world.run()
    assert stage.driver.idle()


def test_limits_on_size_are_judged_in_the_models_unit_not_in_bytes() -> None:
    stage, _ = measuring(max_batch_size=1, item_size_max=256.0)
    _, running = stage.ask(size=2000.0)
    stage.world.run(0.0)
    fits, small = stage.ask(size=1500.0)
    above, large = stage.ask(size=300.0)
    stage.driver.measured([fits.id, above.id], [250.0, 257.0])
    assert large.result is not None and large.result.code == "item_too_large"
    assert b"257; item_size_max is 256" in large.result.body
    stage.world.run()
    assert [a.result.status for a in (running, small) if a.result] == [200, 200]
    assert [e.code for e in stage.events if isinstance(e, Refused)] == ["item_too_large"]


def test_sizes_never_answered_are_forgotten_with_the_worker() -> None:
    stage, _ = measuring(max_batch_size=1)
    for _ in range(10):
        stage.ask()
    stage.world.run()
    assert len(stage.driver._measuring) == 10
    stage.executor.restart(0, "worker_crashed", "boom")
    assert stage.driver._measuring == {}


def test_the_size_a_worker_reports_with_its_answer_is_what_the_curve_learns() -> None:
    stage, _ = measuring(max_batch_size=4)
    stage.ask(size=10)
    stage.ask(size=10)
    stage.executor.run = lambda batch: None  # type: ignore[method-assign]
    stage.driver.executor.run = stage.batches.append  # type: ignore[method-assign]
    stage.world.run(0.0)
    batch = stage.batches[0]
    items = [ItemResult(200, b"", size=7.0), ItemResult(200, b"")]
    stage.driver.batch_done(batch.id, BatchResult(items, 0.5))
    assert (batch.longest, batch.total) == (10.0, 17.0)
    assert stage.batcher.curve.predict(2, 10.0, 17.0) == pytest.approx(0.5)
