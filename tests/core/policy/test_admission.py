"""Who may wait: each refusal says what was wrong, which limit, and when to come back."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.config import ModelConfig
from headway.core.policy.admission import (
    LATE_BUDGET_MAX,
    PLANNED_SHARE,
    LateBudget,
    QueueView,
    Reserve,
    check_item,
    check_queue,
    predicted_late,
    timed_out,
)
from headway.core.request import Request
from tests.core.stage import Answer, Stage


def request(rows: int = 1, size: float = 1.0, payload: bytes = b"") -> Request:
    return Request(
        id=1, payload=payload, arrival_s=0.0, reply=Answer(Stage(start=False)), rows=rows, size=size
    )


def test_lateness_is_earned_before_it_is_spent_and_saved_up_only_so_far() -> None:
    budget = LateBudget(0.01)
    assert not budget.spend(), "a new server owes its promise first"
    budget.earn(100)
    assert not budget.spend(), "a tenth of the allowance is kept for what nobody foresees"
    budget.earn(12)
    assert budget.spend() and not budget.spend()
    budget.earn(100_000)
    assert [budget.spend() for _ in range(12)] == [True] * 10 + [False] * 2


def test_unforeseen_lateness_is_owed_but_not_for_ever() -> None:
    budget = LateBudget(0.01)
    budget.owe(3)
    budget.earn(400)
    assert not budget.spend()
    budget.earn(60)
    assert budget.spend()
    budget.owe(10_000)
    budget.earn(int(100 * (LATE_BUDGET_MAX + 1) / PLANNED_SHARE) + 1)
    assert budget.spend(), "after an outage the promise comes back"


def test_nothing_is_reserved_while_nobody_is_refused() -> None:
    reserve = Reserve()
    assert reserve.seconds(10.0, 0.2, 0.1, 0.01) == 0.0
    reserve.refused(10.0, waited_share=0.0)
    assert reserve.seconds(10.5, 0.2, 0.1, 0.01) > 0.0
    assert reserve.seconds(12.0, 0.2, 0.1, 0.01) == 0.0, "overload is over"


def test_the_reserve_grows_while_refusals_come_late_and_shrinks_while_they_are_quick() -> None:
    reserve = Reserve()
    reserve.refused(0.0, waited_share=0.0)
    first_s = reserve.seconds(0.0, 0.2, 0.1, 0.01)
    reserve.refused(0.0, waited_share=0.9)
    grown_s = reserve.seconds(0.0, 0.2, 0.1, 0.01)
    assert grown_s > first_s
    for _ in range(150):
        reserve.refused(0.0, waited_share=0.0)
    assert reserve.seconds(0.0, 0.2, 0.1, 0.01) < grown_s
    for _ in range(100_000):
        reserve.refused(0.0, waited_share=0.0)
    least_s = reserve.seconds(0.0, 0.2, 0.1, 0.01)
    for _ in range(100):
        reserve.refused(0.0, waited_share=0.9)
    assert 0.0 < least_s < reserve.seconds(0.0, 0.2, 0.1, 0.01) < 0.2


def test_items_that_could_never_run_are_413() -> None:
    config = ModelConfig(item_size_max=10.0, batch_budget_size=20.0)
    assert check_item(request(rows=2, size=5.0), config, 8) is None
    for bad, word in ((request(rows=9), "max_batch_size"), (request(size=11.0), "item_size_max")):
        error = check_item(bad, config, 8)
        assert error is not None and error.status == 413 and word in error.hint
    config = ModelConfig(batch_budget_size=20.0)
    error = check_item(request(rows=3, size=7.0), config, 8)
    assert error is not None and error.message == "the item's size is 21; batch_budget_size is 20"
    assert check_item(request(size=999.0), config, 8, sized=False) is None


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        ("queue_requests_max", 5),
        ("queue_rows_max", 11),
        ("queue_bytes_max", 103),
        ("queue_size_max", 51.0),
    ],
)
def test_q1_q2_each_limit_counts_the_newcomer(key: str, limit: float) -> None:
    view = QueueView(requests=5, rows=10, bytes=100, size=50.0, drain_s=1.5)
    newcomer = request(rows=2, size=1.0, payload=b"1234")
    error = check_queue(newcomer, view, ModelConfig(**{key: limit}))
    assert error is not None and (error.status, error.code) == (429, "queue_full")
    assert key in error.message and error.retry_after_s == 1.5
    roomy = ModelConfig(**{key: limit + 1})
    assert check_queue(newcomer, view, roomy) is None


def test_retry_after_is_never_zero() -> None:
    view = QueueView(requests=1, rows=1, bytes=0, size=0.0, drain_s=0.0)
    error = check_queue(request(), view, ModelConfig(queue_requests_max=1))
    assert error is not None and error.retry_after_s == 0.001


def test_late_refusals_say_by_how_much_where_it_is_known() -> None:
    error = predicted_late(1.25, 1.0)
    assert error.retry_after_s == pytest.approx(0.25) and "by 250 ms" in error.message
    unknown = predicted_late(inf, 1.0)
    assert unknown.retry_after_s == 1.0 and unknown.message == "the answer would be late"
    assert predicted_late(1.0, 1.0).retry_after_s == 0.001


def test_a_time_out_names_its_limit() -> None:
    error = timed_out(0.25, "queue_wait_s_max")
    assert (error.status, error.code) == (504, "timeout")
    assert "0.250 s" in error.message and "queue_wait_s_max" in error.message
