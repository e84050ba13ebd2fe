"""Batches form as people expect: the items of users' complaints, in virtual time."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.batch import Close
from headway.core.errors import UserError
from headway.core.events import BatchFinished, Cancelled, Refused, WorkerChanged
from headway.core.ports import ModelInfo, WarmRun
from headway.core.request import State
from tests.core.stage import Stage


def warm(run_s: float, *rows: int) -> ModelInfo:
    """A model whose curve is known from warm-up, flat in rows."""
    return ModelInfo("m", warm=[WarmRun(n, 1.0, float(n), run_s) for n in rows])


def codes(stage: Stage) -> list[str]:
    return [e.code for e in stage.events if isinstance(e, Refused)]


def test_b1_what_waits_behind_a_busy_worker_runs_together() -> None:
    stage = Stage("200", max_batch_size=8)
    stage.ask()
    for _ in range(4):
        stage.ask_at(0.010)
    stage.world.run()
    assert stage.sizes == [1, 4]


def test_b4_more_waiting_work_never_makes_smaller_batches() -> None:
    means = []
    for waiting in (20, 40, 80):
        stage = Stage("20+0.1b", max_batch_size=400)
        for _ in range(waiting):
            stage.ask()
        stage.world.run()
        means.append(sum(stage.sizes) / len(stage.sizes))
    assert means == sorted(means)


def test_b5_a_list_taking_model_gets_one_list_whatever_the_sizes() -> None:
    stage = Stage("10", max_batch_size=8)
    for size in (3, 5, 7, 9):
        stage.ask(size=size)
    stage.world.run()
    assert stage.sizes == [4]


def test_b6_like_sizes_share_a_batch_and_padding_stays_under_15_per_cent() -> None:
    stage = Stage("10+0.01s", info=ModelInfo("m", form="padded"), max_batch_size=8)
    for size in (100, 110, 1000):
        stage.ask(size=size)
    stage.world.run()
    assert sorted(sorted(r.size for r in b.requests) for b in stage.batches) == [
        [100, 110],
        [1000],
    ]
    for event in stage.events:
        if isinstance(event, BatchFinished):
            assert 1 - event.useful / event.padded < 0.15
    assert Close.UNLIKE in {b.reason for b in stage.batches}


@pytest.mark.parametrize(("waiting", "sizes", "padded"), [(1, [1], [0]), (2, [2], [6])])
def test_b7_the_smallest_allowed_size_runs_and_padded_rows_are_counted(
    waiting: int, sizes: list[int], padded: list[int]
) -> None:
    stage = Stage("10", padded_sizes=(1, 8))
    for _ in range(waiting):
        stage.ask()
    stage.world.run()
    assert stage.sizes == sizes
    assert [b.padded_rows for b in stage.batches] == padded


def test_padded_sizes_round_down_to_a_full_one_where_that_answers_more() -> None:
    warm = [WarmRun(n, 1.0, float(n), 0.001 * n) for n in (1, 2, 4, 8)]
    info = ModelInfo("m", padded_sizes=(1, 2, 4, 8), warm=warm)
    stage = Stage("1b", info=info)
    stage.batcher.curve.best_rows = lambda size, cap: cap  # type: ignore[method-assign]
    for _ in range(5):
        stage.ask()
    stage.world.run()
    assert stage.sizes == [4, 1]
    assert stage.batches[0].reason is Close.BUCKET


def test_b15_no_batch_is_above_the_maximum() -> None:
    stage = Stage("5", max_batch_size=4)
    for _ in range(50):
        stage.ask()
    stage.world.run()
    assert max(stage.sizes) == 4


def test_b16_a_lone_request_is_not_shed_by_an_objective() -> None:
    stage = Stage("3000", objective="p99<200ms")
    _, answer = stage.ask()
    stage.world.run()
    assert answer.result is not None and answer.result.status == 200
    assert answer.at_s == pytest.approx(3.0)


def test_b18_a_static_window_is_the_one_that_was_set() -> None:
    stage = Stage("1", policy="static", batch_window_ms=300, max_batch_size=8)
    _, answer = stage.ask()
    stage.world.run()
    assert 0.3 <= answer.at_s < 0.4
    assert stage.batches[0].reason is Close.WINDOW


def test_static_fills_up_to_its_size_and_can_pad() -> None:
    stage = Stage("1", policy="static", batch_window_ms=50, max_batch_size=4, pad_batches=True)
    for _ in range(5):
        stage.ask()
    stage.world.run()
    assert stage.sizes == [4, 1]
    assert [b.padded_rows for b in stage.batches] == [0, 3]
    assert stage.batches[0].reason is Close.FULL


def test_b19_a_lone_request_is_not_held_once_arrivals_are_sparse() -> None:
    stage = Stage("50", max_batch_size=8)
    boxes = [stage.ask_at(float(second)) for second in range(20)]
    stage.world.run()
    last = boxes[-1][0][1]
    assert last.at_s - 19.0 < 0.055


def test_b20_the_curve_says_when_batching_does_not_help() -> None:
    stage = Stage("10b", max_batch_size=32)
    for _ in range(6):
        for _ in range(100):
            stage.ask()
        stage.world.run()
    assert stage.batcher.sizing.best_rows(1.0) == 1
    assert "does not help" in str(stage.batcher.advice())


def test_b21_no_batch_exceeds_the_budget() -> None:
    for form in ("padded", "packed", "list"):
        info = ModelInfo("m", form=form)  # type: ignore[arg-type]
        stage = Stage("10", info=info, max_batch_size=64, batch_budget_size=1000.0)
        for _ in range(8):
            stage.ask(size=400)
            stage.ask(size=20)
        stage.world.run()
        assert all(b.padded(info.form) <= 1000 for b in stage.batches)
        assert Close.BUDGET in {b.reason for b in stage.batches}
        assert sum(stage.sizes) == 16


def test_an_item_above_the_budget_is_refused_with_the_setting() -> None:
    stage = Stage("10", batch_budget_size=100.0)
    _, answer = stage.ask(size=101)
    assert answer.result is not None and answer.result.status == 413
    assert b"batch_budget_size" in answer.result.body


def test_b3_a_sequential_client_is_told_so_and_a_parallel_one_is_not() -> None:
    stage = Stage("5", max_batch_size=8)
    for second in range(20):
        stage.ask_at(float(second))
    stage.world.run()
    assert "never overlap" in str(stage.batcher.advice())
    for _ in range(300):
        stage.ask()
    stage.world.run()
    assert "never overlap" not in str(stage.batcher.advice())


def test_o8_small_batches_are_explained() -> None:
    stage = Stage("5", max_batch_size=32)
    for pair in range(20):
        stage.ask_at(pair * 1.0)
        stage.ask_at(pair * 1.0)
    stage.world.run()
    assert "of 32" in str(stage.batcher.advice())


def test_q4_a_full_queue_answers_at_once() -> None:
    stage = Stage("100", max_batch_size=1, queue_requests_max=2)
    answers = [stage.ask()[1] for _ in range(6)]
    refused = [a for a in answers if a.result is not None]
    assert [a.result.status for a in refused if a.result] == [429] * 3
    assert all(a.at_s == 0.0 for a in refused)
    stage.world.run()
    assert codes(stage) == ["queue_full"] * 3


def test_q6_exactly_as_many_refusals_as_the_limit_says() -> None:
    stage = Stage("1000", max_batch_size=1, queue_requests_max=20)
    stage.ask()
    stage.world.run(0.0)
    answers = [stage.ask()[1] for _ in range(25)]
    assert sum(a.result is not None for a in answers) == 5


@pytest.mark.parametrize(
    ("limit", "fields"),
    [
        ({"queue_rows_max": 8, "max_batch_size": 8}, {"rows": 4}),
        ({"queue_bytes_max": 100}, {"payload": b"x" * 40}),
        ({"queue_size_max": 1000.0}, {"size": 400.0}),
    ],
)
def test_q2_the_queue_is_bounded_by_rows_bytes_and_size(limit: dict, fields: dict) -> None:
    stage = Stage(
        "1000", **{"max_batch_size": 1, **limit} if "max_batch_size" not in limit else limit
    )
    stage.ask(size=1.0)
    stage.world.run(0.0)
    results = [stage.ask(**fields)[1].result for _ in range(3)]
    assert [r.status if r else 0 for r in results] == [0, 0, 429]
    small = stage.ask(size=1.0)[1].result
    assert small is None or "queue_rows_max" in limit


def test_q7_priority_one_is_in_the_next_batch() -> None:
    stage = Stage("100", max_batch_size=4)
    stage.ask()
    stage.world.run(0.0)
    for _ in range(20):
        stage.ask(priority=2)
    urgent, _ = stage.ask(priority=1)
    stage.world.run()
    assert urgent in stage.batches[1].requests


def test_q10_retry_after_is_backlog_over_rate() -> None:
    stage = Stage("100", max_batch_size=1, queue_requests_max=20)
    for _ in range(10):
        stage.ask()
    stage.world.run()
    for _ in range(30):
        _, answer = stage.ask()
    assert answer.result is not None and answer.result.status == 429
    assert answer.result.retry_after_s == pytest.approx(2.1, abs=0.3)


def test_c1_c4_a_request_cancelled_while_it_waits_never_runs() -> None:
    stage = Stage("100", max_batch_size=1)
    stage.ask()
    stage.world.run(0.0)
    gone, answer = stage.ask()
    stage.driver.cancel(gone)
    kept, _ = stage.ask()
    stage.world.run()
    assert [b.requests[0] for b in stage.batches][1:] == [kept]
    assert answer.result is None and gone.state is State.CANCELLED
    assert [e.running for e in stage.events if isinstance(e, Cancelled)] == [False]


def test_b11_completing_an_already_cancelled_caller_is_a_no_op() -> None:
    stage = Stage("100", max_batch_size=8)
    gone, answer = stage.ask()
    stage.world.run(0.05)
    stage.driver.cancel(gone)
    stage.driver.cancel(gone)
    stage.world.run()
    stage.driver.cancel(gone)
    assert answer.result is None
    _, later = stage.ask()
    stage.world.run()
    assert later.result is not None and later.result.status == 200


def test_c8_a_cancelled_running_request_keeps_its_slot_until_the_work_stops() -> None:
    stage = Stage("1000", max_batch_size=1)
    gone, _ = stage.ask()
    stage.world.run(0.1)
    stage.driver.cancel(gone)
    _, answer = stage.ask()
    stage.world.run()
    assert answer.at_s == pytest.approx(2.0)


def test_c9_c10_c11_an_overlong_batch_times_out_and_the_worker_is_replaced() -> None:
    stage = Stage(lambda batch: 1e6, run_s_max=1.0, max_batch_size=1)
    for attempt in range(3):
        _, answer = stage.ask()
        stage.world.run(stage.world.time_s + 2.0)
        assert answer.result is not None, attempt
        assert (answer.result.status, answer.result.code) == (504, "timeout")
        assert b"run_s_max" in answer.result.body
    ups = [e.up for e in stage.events if isinstance(e, WorkerChanged)]
    assert ups == [True, False, True, False, True, False, True]


def test_c12_the_limit_on_waiting_does_not_end_a_long_run() -> None:
    stage = Stage("1000", queue_wait_s_max=0.2)
    _, answer = stage.ask()
    stage.world.run()
    assert answer.result is not None and answer.result.status == 200


def test_a_request_that_waited_too_long_is_refused_or_demoted() -> None:
    for action, status in (("reject", 504), ("delay", 200)):
        stage = Stage("1000", max_batch_size=1, queue_wait_s_max=0.2, timeout_action=action)
        stage.ask()
        stage.world.run(0.0)
        _, answer = stage.ask()
        stage.world.run()
        assert answer.result is not None and answer.result.status == status
    assert codes(stage) == []


def test_delay_serves_the_demoted_after_everyone_on_time() -> None:
    stage = Stage("150", max_batch_size=1, queue_wait_s_max=0.1, timeout_action="delay")
    stage.ask()
    stage.world.run(0.0)
    early, _ = stage.ask()
    box = stage.ask_at(0.12)
    stage.world.run()
    assert [b.requests[0] for b in stage.batches[1:]] == [box[0][0], early]


def test_a_deadline_passed_in_the_queue_is_a_504_under_any_policy() -> None:
    stage = Stage("1000", max_batch_size=1, timeout_action="delay")
    stage.ask()
    stage.world.run(0.0)
    _, answer = stage.ask(deadline_s=0.3, expires_s=0.3)
    stage.world.run()
    assert answer.result is not None and answer.result.status == 504
    assert answer.at_s == pytest.approx(0.3)
    assert b"deadline" in answer.result.body


def test_closed_loop_clients_are_held_together() -> None:
    stage = Stage("5", max_batch_size=32, hop_s=50e-6)

    def again() -> None:
        _, answer = stage.ask()
        done = answer.done

        def come_back(result: object) -> None:
            done(result)  # type: ignore[arg-type]
            if stage.world.time_s < 1.0:
                stage.world.plan(stage.world.time_s + 200e-6, again)

        answer.done = come_back  # type: ignore[method-assign]

    for i in range(8):
        stage.world.plan(i * 1e-3, again)
    stage.world.run()
    assert stage.sizes[-20:-1] == [8] * 19


def test_a_full_batch_is_handed_over_while_the_last_one_runs() -> None:
    stage = Stage("100", info=warm(0.1, 2), max_batch_size=2)
    for _ in range(4):
        stage.ask()
    stage.world.run(0.0999)
    assert stage.sizes == [2, 2]


def test_a_partial_batch_leaves_just_before_an_open_loop_worker_is_free() -> None:
    warm = [WarmRun(1, 1.0, 1.0, 0.1), WarmRun(8, 1.0, 8.0, 0.1)]
    stage = Stage("100", info=ModelInfo("m", warm=warm), max_batch_size=8)
    stage.batcher.tally.return_share = 0.0
    stage.ask()
    stage.ask_at(0.05)
    stage.world.run()
    closed = stage.batches[1].closed_s
    assert closed == pytest.approx(0.1 - 2 * stage.batcher.lanes.hop_s, abs=1e-4)


def test_hold_ends_when_its_time_is_up() -> None:
    stage = Stage("100", max_batch_size=8)
    stage.batcher.tally.return_share = 1.0
    for _ in range(4):
        stage.ask()
    stage.ask_at(0.101)
    stage.world.run()
    assert stage.batches[1].reason is Close.HOLD
    assert stage.batches[1].closed_s == pytest.approx(0.11)


def test_draining_holds_nothing_back() -> None:
    for policy in ("static", "greedy"):
        stage = Stage("100", policy=policy, max_batch_size=8)
        stage.batcher.tally.return_share = 1.0
        for _ in range(2):
            stage.ask()
        stage.world.run(0.0)
        stage.driver.drain()
        assert stage.sizes == [2]
        assert stage.batches[0].reason in (Close.DRAIN, Close.IDLE)
        stage.world.run()
        assert stage.driver.idle()


def test_workers_share_the_work() -> None:
    stage = Stage("100", workers=2, max_batch_size=1)
    answers = [stage.ask()[1] for _ in range(4)]
    stage.world.run()
    assert {b.worker for b in stage.batches} == {0, 1}
    assert max(a.at_s for a in answers) == pytest.approx(0.2, abs=0.01)


def test_a_crash_loses_only_the_batch_that_ran() -> None:
    stage = Stage("100", info=warm(0.1, 2), max_batch_size=2)
    answers = [stage.ask()[1] for _ in range(4)]
    stage.world.run(0.0999)
    assert stage.sizes == [2, 2]
    stage.executor.crash(0)
    stage.executor.start(stage.driver)
    stage.world.run()
    assert [a.result.status for a in answers if a.result] == [500, 500, 200, 200]
    assert answers[0].result is not None and answers[0].result.code == "worker_crashed"


def test_a_crashed_batch_runs_again_where_retries_allow() -> None:
    stage = Stage("100", max_batch_size=2, crash_retries=1)
    gone, _ = stage.ask()
    _, answer = stage.ask()
    stage.world.run(0.05)
    stage.driver.cancel(gone)
    stage.executor.restart(0, "worker_crashed", "boom")
    stage.world.run()
    assert answer.result is not None and answer.result.status == 200
    assert stage.sizes == [2, 1]


def test_too_many_rows_are_refused_and_a_soft_cap_never_locks_rows_out() -> None:
    stage = Stage("10b", max_batch_size=8)
    _, answer = stage.ask(rows=9)
    assert answer.result is not None and answer.result.code == "too_many_rows"
    for _ in range(100):
        stage.ask()
    stage.world.run()
    assert stage.batcher.sizing.best_rows(1.0) < 8
    _, answer = stage.ask(rows=8)
    stage.world.run()
    assert answer.result is not None and answer.result.status == 200


def test_nothing_runs_before_a_worker_is_ready() -> None:
    stage = Stage("5", start=False)
    _, answer = stage.ask()
    stage.world.run(1.0)
    assert stage.sizes == [] and not stage.driver.ready()
    stage.executor.start(stage.driver)
    stage.world.run()
    assert answer.result is not None and stage.driver.ready()


def test_the_room_is_sorted_by_size_once_the_model_says_it_pads() -> None:
    stage = Stage("5", start=False, info=ModelInfo("m", form="padded"))
    for size in (10, 1000, 11):
        stage.ask(size=size)
    stage.executor.start(stage.driver)
    stage.world.run()
    assert stage.sizes == [2, 1]


def test_h1_pending_work_without_progress_is_a_stall() -> None:
    stage = Stage(lambda batch: 100.0, run_s_max=1e9)
    assert stage.batcher.stalled_s(50.0) == 0.0
    stage.ask()
    stage.world.run(0.0)
    assert stage.batcher.stalled_s(30.0) == pytest.approx(30.0)


def test_undrained_events_are_bounded_and_can_be_fetched() -> None:
    stage = Stage("1")
    stage.driver.listeners.clear()
    stage.events.clear()
    for _ in range(3):
        stage.ask()
    stage.world.run()
    kinds = {type(e).__name__ for e in stage.driver.events()}
    assert {"BatchClosed", "BatchFinished"} <= kinds
    assert stage.driver.events() == []


def test_requests_have_no_deadline_unless_they_name_one() -> None:
    request, _ = Stage("1").ask()
    assert request.deadline_s == inf and request.bytes == 2


def test_a_user_error_carries_what_was_wrong_and_what_to_change() -> None:
    error = UserError(429, "queue_full", "full", hint="wait", param="x", retry_after_s=2.0)
    assert (error.status, error.code, error.hint, error.param) == (429, "queue_full", "wait", "x")


def test_c12_the_limit_on_a_whole_request_counts_waiting_and_running() -> None:
    stage = Stage("300", max_batch_size=1, request_s_max=0.5)
    answers = [stage.ask()[1] for _ in range(3)]
    stage.world.run()
    assert [a.result.status for a in answers if a.result] == [200, 504, 504]
    assert [round(a.at_s, 6) for a in answers] == [0.3, 0.5, 0.5]
    assert all(b"request_s_max" in a.result.body for a in answers[1:] if a.result)
    # The second was running: its slot was taken until the work stopped, and the third never ran.
    assert stage.sizes == [1, 1]
    assert stage.driver.idle()
