"""Models that stream: every stream ends on its own and its row is used again at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from headway.core.batch import Batch
from headway.core.events import BatchFinished
from headway.core.ports import ModelInfo, WorkerSink
from headway.core.request import ItemResult, Request
from headway.sim.world import World
from tests.core.stage import Stage

TICK_S = 0.010


class StreamExecutor:
    """Says one chunk per stream every 10 ms, as many as the request's size."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.workers = 1
        self.info = ModelInfo("m", streams=True)
        self.live: dict[tuple[int, int], int] = {}
        self.cancelled: list[tuple[int, int]] = []
        self.restarts: list[str] = []
        self.fails: set[int] = set()
        self.silent = False
        self.sink: WorkerSink | None = None

    def start(self, sink: WorkerSink) -> None:
        self.sink = sink
        sink.worker_ready(0, self.info)

    def run(self, batch: Batch) -> None:
        for index, request in enumerate(batch.requests):
            self.live[batch.id, index] = int(request.size)
            self._later(batch.id, index, request.id in self.fails)

    def hear(self) -> None:
        pass

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        self.cancelled.append((batch_id, index))
        self.live[batch_id, index] = 0

    def measure(self, requests: Sequence[Request]) -> None:
        raise AssertionError("nobody measures here")

    def restart(self, worker: int, code: str, message: str) -> None:
        self.restarts.append(message)
        self.crash(code, message)

    def crash(self, code: str = "worker_crashed", message: str = "boom") -> None:
        self.live.clear()
        assert self.sink is not None
        self.sink.worker_lost(0, code, message)
        self.silent = False
        self.sink.worker_ready(0, self.info)

    async def close(self) -> None:
        """Nothing to end."""

    def _later(self, batch_id: int, index: int, fails: bool) -> None:
        self.world.plan(self.world.time_s + TICK_S, lambda: self._tick(batch_id, index, fails))

    def _tick(self, batch_id: int, index: int, fails: bool) -> None:
        left = self.live.get((batch_id, index))
        if left is None or self.silent:
            return
        assert self.sink is not None
        if left == 0 or fails:
            del self.live[batch_id, index]
            result = ItemResult(422, b"no", code="bad_item") if fails else ItemResult(200, b"")
            self.sink.item_done(batch_id, index, result)
            return
        self.live[batch_id, index] = left - 1
        self.sink.chunk(batch_id, index, b"x")
        self._later(batch_id, index, False)


def streaming(**settings: object) -> tuple[Stage, StreamExecutor]:
    stage = Stage(start=False, **settings)
    executor = StreamExecutor(stage.world)
    run: Callable[[Batch], None] = executor.run

    def keep(batch: Batch) -> None:
        stage.batches.append(batch)
        run(batch)

    executor.run = keep  # type: ignore[method-assign]
    stage.driver.executor = executor
    executor.start(stage.driver)
    return stage, executor


def test_b24_a_short_stream_ends_on_its_own_and_its_row_is_refilled() -> None:
    stage, _ = streaming(max_batch_size=2)
    _, short = stage.ask(size=2)
    _, long = stage.ask(size=50)
    _, next_one = stage.ask(size=1)
    stage.world.run()
    assert (len(short.chunks), len(long.chunks), len(next_one.chunks)) == (2, 50, 1)
    assert short.at_s == pytest.approx(0.03)
    assert stage.batches[1].closed_s == pytest.approx(0.03)
    assert next_one.at_s == pytest.approx(0.05) and long.at_s == pytest.approx(0.51)


def test_c7_concurrency_one_the_second_stream_starts_after_the_first_ends() -> None:
    stage, _ = streaming(max_batch_size=1)
    _, first = stage.ask(size=5)
    stage.ask(size=5)
    stage.world.run()
    assert [b.closed_s for b in stage.batches] == pytest.approx([0.0, first.at_s])
    assert stage.driver.idle()


def test_each_stream_is_timed_by_its_own_end_and_counts_its_own_error() -> None:
    stage, executor = streaming(max_batch_size=4, objective="p99<100ms", policy="greedy")
    executor.fails.add(3)
    gone, _ = stage.ask(size=30)
    stage.ask(size=1)
    _, failed = stage.ask(size=5)
    stage.ask(size=20)
    stage.world.run(0.005)
    stage.driver.cancel(gone)
    stage.world.run()
    record = next(e for e in stage.events if isinstance(e, BatchFinished))
    assert sorted(record.latencies_s) == pytest.approx([0.01, 0.02, 0.21])
    assert (record.late, record.errors, record.ok) == (1, 1, True)
    assert failed.result is not None and failed.result.status == 422


def test_a_cancelled_stream_is_closed_and_says_nothing_more() -> None:
    stage, executor = streaming(max_batch_size=1)
    gone, answer = stage.ask(size=50)
    _, after = stage.ask(size=1)
    stage.world.run(0.025)
    stage.driver.cancel(gone)
    stage.world.run()
    assert executor.cancelled == [(1, 0)]
    assert len(answer.chunks) == 2 and answer.result is None
    assert after.at_s == pytest.approx(0.05)


def test_chunks_that_still_arrive_for_a_cancelled_stream_are_dropped() -> None:
    stage, executor = streaming(max_batch_size=1)
    gone, answer = stage.ask(size=3)
    stage.world.run(0.005)
    executor.cancel = lambda worker, batch_id, index: None  # type: ignore[method-assign]
    stage.driver.cancel(gone)
    stage.world.run()
    assert answer.chunks == [] and answer.result is None and stage.driver.idle()


def test_silence_inside_a_stream_replaces_the_worker_but_length_does_not() -> None:
    stage, executor = streaming(max_batch_size=2, stream_gap_s_max=0.2, run_s_max=0.5)
    _, long = stage.ask(size=100)
    stage.world.run()
    assert long.result is not None and long.result.status == 200
    _, answer = stage.ask(size=100)
    stage.world.run(stage.world.time_s + 0.055)
    executor.silent = True
    quiet_s = stage.world.time_s
    stage.world.run()
    assert answer.result is not None and answer.result.code == "timeout"
    assert answer.result.status == 504 and "stream_gap_s_max" in executor.restarts[0]
    assert answer.at_s - quiet_s <= 0.2 and len(answer.chunks) == 5
    _, again = stage.ask(size=1)
    stage.world.run()
    assert again.result is not None and again.result.status == 200


def test_a_crash_ends_open_streams_and_only_those() -> None:
    stage, executor = streaming(max_batch_size=2, crash_retries=1)
    _, short = stage.ask(size=1)
    _, long = stage.ask(size=50)
    _, waiting = stage.ask(size=1)
    _, queued = stage.ask(size=1)
    stage.world.run(0.021)
    executor.crash()
    stage.world.run()
    statuses = [a.result.status for a in (short, long, waiting, queued) if a.result]
    assert statuses == [200, 500, 500, 200], "half a stream is never run again"
    executor.sink.chunk(1, 0, b"late")  # type: ignore[union-attr]
    executor.sink.item_done(1, 0, ItemResult(200, b""))  # type: ignore[union-attr]
    assert stage.driver.idle()


def test_two_workers_the_emptier_one_takes_the_next_stream() -> None:
    stage, executor = streaming(max_batch_size=4)
    stage.driver.worker_ready(1, executor.info)
    for _ in range(3):
        stage.ask(size=50)
        stage.world.run(stage.world.time_s + 0.001)
    assert [b.worker for b in stage.batches] == [0, 1, 0]
