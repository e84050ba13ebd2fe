"""Thousands of random operations: nothing is lost, answered twice, or grown without bound."""

from __future__ import annotations

import random

import pytest

from headway.core.batch import BatchResult
from headway.core.events import BatchClosed, BatchFinished
from headway.core.ports import ModelInfo, WarmRun
from headway.core.request import ItemResult, Request, State
from tests.core.stage import Answer, Stage

SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("list", {"policy": "greedy", "queue_requests_max": 50}),
    ("padded", {"objective": "p90<80ms", "batch_budget_size": 600.0}),
    ("padded", {"policy": "greedy", "timeout_action": "delay", "queue_wait_s_max": 0.1}),
    ("packed", {"policy": "deadline", "batch_budget_size": 600.0, "crash_retries": 1}),
    ("list", {"policy": "static", "batch_window_ms": 20.0, "pad_batches": True}),
    ("list", {"padded_sizes": (1, 2, 4, 8), "queue_wait_s_max": 0.05}),
]


class Play:
    """One random run and what must hold all along."""

    def __init__(self, seed: int, form: str, settings: dict[str, object], workers: int) -> None:
        self.rng = random.Random(seed)
        info = ModelInfo("m", form=form, measures=True)  # type: ignore[arg-type]
        self.stage = Stage("2+1b", info=info, workers=workers, max_batch_size=8, **settings)
        self.asked: list[tuple[Request, Answer]] = []
        self.cancelled: set[int] = set()
        self.budget = self.stage.config.batch_budget_size or float("inf")

    def step(self) -> None:
        stage, rng = self.stage, self.rng
        draw = rng.random()
        if draw < 0.70:
            self.ask()
        elif draw < 0.82 and self.asked:
            request = rng.choice(self.asked[-60:])[0]
            if request.state in (State.WAITING, State.RUNNING):
                self.cancelled.add(request.id)
            stage.driver.cancel(request)
        elif draw < 0.95 and self.asked:
            request = rng.choice(self.asked[-30:])[0]
            stage.driver.measured([request.id], [rng.choice([0.0, 1.0, 40.0, 75.0])])
        elif draw > 0.995:
            stage.executor.restart(rng.randrange(stage.executor.workers), "worker_crashed", "boom")
        if rng.random() < 0.3:
            stage.world.run(stage.world.time_s + rng.expovariate(1 / 0.004))

    def ask(self) -> None:
        rng, now = self.rng, self.stage.world.time_s
        fields: dict[str, object] = {}
        if rng.random() < 0.3:
            fields["deadline_s"] = fields["expires_s"] = now + rng.uniform(0.005, 0.2)
        self.asked.append(
            self.stage.ask(
                size=float(rng.choice([0, 1, 5, 30, 60, 70, 75])),
                rows=rng.choice([1, 1, 1, 2, 8, 9]),
                priority=rng.choice([0, 1, 2, 7]),
                payload=b"x" * rng.randrange(5),
                **fields,
            )
        )

    def check(self) -> None:
        room = self.stage.batcher.room
        waiting = [r for r, _ in self.asked if r.state is State.WAITING]
        assert room.requests == len(waiting)
        assert set(room) == set(waiting)
        assert room.rows == sum(r.rows for r in waiting)
        assert room.bytes == sum(len(r.payload) for r in waiting)
        assert room.size == pytest.approx(sum(r.size * r.rows for r in waiting), abs=1e-6)
        assert all(n >= 0 for n in room.class_rows.values())
        assert not room.classed or sum(room.class_rows.values()) == room.rows
        if room._ranks is not None:
            assert room._ranks == sorted((r.level, r.due_s) for r in waiting)
        head = room.head()
        if waiting:
            assert head is not None
            assert (head.level, head.due_s, head.id) == min(
                (r.level, r.due_s, r.id) for r in waiting
            )
        heaps = [room._ages, room._deadlines, [e for h in room._classes.values() for e in h]]
        assert all(len(heap) <= 64 + 6 * max(room.requests, 1) for heap in heaps)

    def finish(self) -> None:
        stage = self.stage
        stage.driver.drain()
        stage.world.run()
        assert stage.driver.idle() and stage.batcher.slot.holder is None
        for request, answer in self.asked:
            assert (answer.result is None) == (request.id in self.cancelled), request.id
        for batch in stage.batches:
            assert 1 <= batch.rows <= 8
        for event in stage.events:
            if isinstance(event, BatchClosed):
                assert event.rows <= 8
        finished = [e for e in stage.events if isinstance(e, BatchFinished)]
        assert len({e.batch_id for e in finished}) == len(finished)
        room = stage.batcher.room
        assert (room.requests, room.rows, room.bytes, room.size) == (0, 0, 0, 0.0)
        assert all(not lane.batches for lane in stage.batcher.lanes.all.values())


@pytest.mark.parametrize(("form", "settings"), SETTINGS)
@pytest.mark.parametrize("workers", [1, 2])
def test_ten_thousand_operations_lose_nothing(
    form: str, settings: dict[str, object], workers: int
) -> None:
    play = Play(len(str(settings)) + workers, form, settings, workers)
    for step in range(850):
        play.step()
        if step % 25 == 0:
            play.check()
    play.finish()
    statuses = {a.result.status for _, a in play.asked if a.result}
    assert 200 in statuses


@pytest.mark.parametrize("form", ["padded", "packed", "list"])
def test_no_batch_is_above_the_budget_whatever_is_measured_before(form: str) -> None:
    info = ModelInfo("m", form=form)  # type: ignore[arg-type]
    stage = Stage("2+1b", info=info, max_batch_size=16, batch_budget_size=500.0)
    rng = random.Random(3)
    rows = []
    for _ in range(400):
        rows.append(stage.ask(size=rng.uniform(1, 160), rows=rng.choice([1, 2, 3])))
        if rng.random() < 0.1:
            stage.world.run(stage.world.time_s + 0.01)
    stage.world.run()
    assert max(b.padded(info.form) for b in stage.batches) <= 500.0
    assert sum(len(b.requests) for b in stage.batches) == len(rows)


def test_many_cancels_leave_no_garbage_behind_one_starved_request() -> None:
    """A low-priority request stays while ten thousand urgent ones come and go."""
    stage = Stage("1", max_batch_size=1, queue_requests_max=20_000, start=False)
    stage.ask(priority=2, expires_s=1e9)
    room = stage.batcher.room
    for _ in range(2_000):
        request, _ = stage.ask(priority=1, expires_s=1e9)
        stage.driver.cancel(request)
        entries = len(room._ages) + len(room._deadlines) + sum(map(len, room._classes.values()))
        assert entries <= 3 * (64 + 6 * 1)


def test_many_served_leave_no_garbage_behind_one_starved_request() -> None:
    warm = [WarmRun(1, 1.0, 1.0, 0.001)]
    stage = Stage("1", max_batch_size=1, info=ModelInfo("m", warm=warm))
    stage.ask(priority=1)
    stage.ask(priority=2)
    for i in range(1_000):
        stage.ask_at(i * 0.001, priority=1)
    stage.world.run(0.9)
    room = stage.batcher.room
    assert len(room._ages) <= 64 + 6 * room.requests


def test_repeated_resizing_leaves_no_garbage() -> None:
    stage = Stage("1", info=ModelInfo("m", form="padded"), start=False)
    stage.batcher.room.reclass(classed=True)
    request, _ = stage.ask(size=10)
    for i in range(2_000):
        stage.batcher.resize(request, 10.0 if i % 2 else 1000.0, 0.0)
    assert sum(map(len, stage.batcher.room._classes.values())) <= 64 + 6
    assert list(stage.batcher.room) == [request]


def test_a_result_for_a_batch_that_was_lost_is_ignored() -> None:
    stage = Stage("100", max_batch_size=1)
    _, answer = stage.ask()
    stage.world.run(0.0)
    stage.executor.crash(0)
    stage.driver.batch_done(1, BatchResult([ItemResult(200, b"")], 0.1))
    assert answer.result is not None and answer.result.status == 500
