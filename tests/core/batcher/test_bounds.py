"""What may wait is bounded, and what is switched off does nothing: items of users' complaints."""

from __future__ import annotations

import pytest

from headway.core.batcher.slot import ComputeSlot
from headway.core.events import Cancelled
from headway.core.ports import ModelInfo, WarmRun
from headway.sim.world import World
from tests.core.stage import Answer, Stage


def status(answer: Answer) -> int:
    return answer.result.status if answer.result is not None else 0


def known(run_s: float) -> ModelInfo:
    """One row at a time; how long it takes is known from warm-up."""
    return ModelInfo("m", warm=[WarmRun(1, 1.0, 1.0, run_s)])


def test_q3_the_limit_counts_all_but_what_runs() -> None:
    stage = Stage("1000", workers=2, max_batch_size=1, queue_requests_max=2)
    answers = [stage.ask()[1] for _ in range(10)]
    assert [status(a) for a in answers].count(429) == 6
    stage.world.run()
    assert [status(a) for a in answers].count(200) == 4


def test_q3_a_workers_second_place_hides_one_batch_and_only_at_the_end() -> None:
    stage = Stage("1000", info=known(1.0), workers=2, max_batch_size=1, queue_requests_max=2)
    answers: list[Answer] = []
    outstanding: list[tuple[float, int]] = []

    def ask() -> None:
        answers.append(stage.ask()[1])
        outstanding.append((stage.world.time_s % 1.0, sum(a.result is None for a in answers)))

    for i in range(500):
        stage.world.plan(0.0005 + i * 0.01, ask)
    stage.world.run()
    # Two run, two wait; for the last tenth of a run each worker holds its next one as well.
    assert max(n for at, n in outstanding if 0.05 < at < 0.85) == 4
    assert max(n for _, n in outstanding) == 6


def test_b17_without_batching_its_window_does_nothing() -> None:
    stage = Stage("1000", policy="static", max_batch_size=1, batch_window_ms=100)
    _, answer = stage.ask()
    stage.world.run()
    assert status(answer) == 200
    assert answer.at_s == pytest.approx(1.0)
    assert stage.batches[0].closed_s == 0.0


def test_b3_four_in_parallel_after_four_in_sequence_are_one_batch() -> None:
    stage = Stage("50", max_batch_size=8)
    for i in range(4):
        stage.ask_at(float(i))
    for _ in range(4):
        stage.ask_at(10.0)
    stage.world.run()
    assert stage.sizes == [1, 1, 1, 1, 4]


def test_b8_models_that_share_a_device_never_share_a_batch() -> None:
    world, slot = World(), ComputeSlot()
    info = ModelInfo("m", form="padded")
    stages = [Stage("10", world=world, slot=slot, info=info, name=name) for name in ("a", "b")]
    for mine, other in (stages, reversed(stages)):
        mine.driver.neighbours.append(other.driver)
    asked = [(stage, stage.ask(size=size)) for size in (10, 20, 10, 20) for stage in stages]
    world.run()
    assert all(status(answer) == 200 for _, (_, answer) in asked)
    for stage in stages:
        own = {id(request) for of, (request, _) in asked if of is stage}
        assert {id(r) for b in stage.batches for r in b.requests} == own


def test_c8_what_runs_on_for_nobody_is_told_apart() -> None:
    stage = Stage("1000", max_batch_size=1)
    gone, _ = stage.ask()
    stage.world.run(0.1)
    stage.driver.cancel(gone)
    assert stage.driver.idle() is False, "its place is taken until the work stops"
    stage.world.run()
    assert [e.running for e in stage.events if isinstance(e, Cancelled)] == [True]
    assert stage.driver.idle()
