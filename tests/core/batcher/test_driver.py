"""The driver performs what was decided, and tells who asked."""

from __future__ import annotations

from headway.core.batch import BatchResult
from headway.core.batcher.batcher import EVENTS_MAX
from headway.core.events import Refused
from headway.core.ports import ModelInfo, WarmRun
from headway.core.request import ItemResult
from tests.core.stage import Stage


def test_start_up_can_be_followed() -> None:
    stage = Stage(start=False)
    stage.driver.worker_phase(0, "load", 0.25, "nobody listens yet")
    heard: list[tuple[int, str, float, str]] = []
    stage.driver.on_phase = lambda *phase: heard.append(phase)
    stage.driver.worker_phase(0, "load", 0.5, "weights")
    stage.executor.start(stage.driver)
    assert heard == [(0, "load", 0.5, "weights"), (0, "ready", 1.0, "")]
    assert stage.driver.ready()


def test_h1_a_batch_that_starts_is_no_progress_yet() -> None:
    stage = Stage("100")
    stage.ask()
    stage.world.run(0.0)
    stage.driver.batch_started(1)
    assert stage.batcher.stalled_s(0.05) == 0.05


def test_workers_are_saturated_by_the_batch_they_run_and_the_next() -> None:
    stage = Stage("10", max_batch_size=8)
    assert stage.driver.saturating_rows() == 16
    stage.driver.worker_lost(0, "worker_crashed", "gone")
    assert stage.driver.saturating_rows() == 16, "one comes back, and finds work"


def test_the_next_batch_leaves_before_the_answers_are_written() -> None:
    stage = Stage("10", max_batch_size=1)
    _, first = stage.ask()
    stage.ask()
    seen: list[int] = []
    done = first.done

    def look(result: ItemResult) -> None:
        seen.append(len(stage.batches))
        done(result)

    first.done = look  # type: ignore[method-assign]
    stage.world.run()
    assert seen == [2]


def test_b9_one_item_fails_alone_and_a_batch_of_errors_teaches_nothing() -> None:
    stage = Stage("10", max_batch_size=2)
    stage.executor.run = stage.batches.append  # type: ignore[method-assign]
    answers = [stage.ask()[1] for _ in range(4)]
    stage.world.run(0.0)
    bad, good = ItemResult(422, b"no"), ItemResult(200, b"1")
    stage.driver.batch_done(stage.batches[0].id, BatchResult([bad, good], 0.5))
    assert [a.result and a.result.status for a in answers[:2]] == [422, 200]
    assert stage.batcher.curve.predict(2, 1.0, 2.0) == 0.5
    stage.driver.batch_done(stage.batches[1].id, BatchResult([bad, bad], 0.001))
    assert [a.result and a.result.status for a in answers] == [422, 200, 422, 422]
    assert stage.batcher.curve.predict(2, 1.0, 2.0) == 0.5


def test_a_lone_waiting_request_that_became_late_is_refused_when_the_worker_is_free() -> None:
    info = ModelInfo("m", warm=[WarmRun(1, 1.0, 1.0, 0.010)])
    times = iter([0.030, 0.010])
    stage = Stage(lambda batch: next(times), policy="deadline", max_batch_size=1, info=info)
    stage.ask()
    stage.world.run(0.0)
    stage.batcher.tally.return_share = 1.0
    _, answer = stage.ask(deadline_s=0.0305)
    stage.batcher.lanes.all[0].batches[0].predicted_s = 0.030
    stage.world.run()
    assert answer.result is not None and answer.result.code == "predicted_late"
    assert stage.sizes == [1] and stage.driver.idle()


def test_a_full_queue_looks_at_the_workers_before_it_refuses() -> None:
    """One turn of the loop brings more than the queue holds; a worker is idle."""
    stage = Stage("10", max_batch_size=4, queue_requests_max=4)
    answers = [stage.ask()[1] for _ in range(8)]
    assert all(a.result is None for a in answers)
    stage.world.run()
    assert stage.sizes == [4, 4]


def test_records_nobody_reads_are_bounded() -> None:
    stage = Stage("1000", queue_requests_max=1, max_batch_size=1)
    stage.driver.listeners.clear()
    for _ in range(EVENTS_MAX + 100):
        stage.ask()
    records = stage.driver.events()
    assert len(records) == EVENTS_MAX and isinstance(records[-1], Refused)
