"""Requests that come back to the waiting room (their worker died) expire once and in order."""

from __future__ import annotations

from math import inf

from tests.core.stage import Stage


def test_a_request_put_back_after_a_crash_expires_once() -> None:
    stage = Stage("50", max_batch_size=4, crash_retries=1)
    # Waits all along with an earlier time, which keeps the first entry of the other where it is.
    sooner = stage.ask_at(0.0, rows=4, priority=2, expires_s=0.09)
    crashed = stage.ask_at(0.0, priority=1, expires_s=0.1)
    stage.world.plan(0.01, lambda: stage.executor.crash(0))
    stage.world.run()
    # `Answer.done` raises on a second answer, and requests themselves have no order.
    assert crashed[0][0].attempts == 1
    assert crashed[0][1].at_s == 0.1
    assert sooner[0][1].at_s == 0.09


def test_a_request_put_back_is_the_oldest_again() -> None:
    stage = Stage("50", max_batch_size=1, crash_retries=1, queue_wait_s_max=0.2)
    old = stage.ask_at(0.0)
    young = stage.ask_at(0.02)
    stage.world.plan(0.03, lambda: stage.executor.crash(0))
    stage.world.run()
    assert old[0][1].at_s == 0.2
    assert young[0][1].at_s == 0.02 + 0.2


def test_a_time_out_that_rounds_down_does_not_come_for_ever() -> None:
    # 0.057864741729303906 - 0.05 is more than the arrival it was summed from.
    arrival_s = 0.007864741729303905
    assert (arrival_s + 0.05) - 0.05 != arrival_s
    stage = Stage("90", max_batch_size=1, queue_wait_s_max=0.05)
    stage.ask_at(0.0)
    late = stage.ask_at(arrival_s)
    later = stage.ask_at(arrival_s)
    stage.world.run(1.0)
    assert [box[0][1].at_s for box in (late, later)] == [arrival_s + 0.05] * 2


def test_size_zero_does_not_stop_predictions() -> None:
    """Where time is all size, nothing waiting means a mean size of 0: no rate, no error."""
    stage = Stage("1s", max_batch_size=8, policy="deadline", objective="p99<60ms")
    answers = [stage.ask(size=size)[1] for size in (1.0, 2.0, 4.0)]
    stage.world.run()
    answers += [stage.ask(size=size)[1] for size in (1.0, 2.0, 4.0, 8.0)]
    stage.world.run()
    assert all(0 < rate < inf for _, rate in stage.batcher.curve.rates(0.0, 8))
    assert all(a.result is not None and a.result.status == 200 for a in answers)
