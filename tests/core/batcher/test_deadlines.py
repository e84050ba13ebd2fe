"""The deadline policy: order, refusals, the promise's allowance, clients' own deadlines."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.batch import Close
from headway.core.events import BatchFinished, Refused
from headway.core.ports import ModelInfo, WarmRun
from headway.core.request import State
from tests.core.stage import Answer, Stage

LINE = ModelInfo("m", warm=[WarmRun(n, 1.0, float(n), 0.010 * n) for n in (1, 2, 4, 8)])
"""10 ms a row, known from warm-up."""
SIZED = ModelInfo(
    "m", warm=[WarmRun(n, s, n * s, 0.010 * n * s) for s in (1.0, 8.0) for n in (1, 2, 4, 8)]
)
"""10 ms a unit of size, known from warm-up."""


def status(answer: Answer) -> int:
    assert answer.result is not None
    return answer.result.status


def stage_10ms(**settings: object) -> Stage:
    """One row at a time, 10 ms each."""
    settings.setdefault("policy", "deadline")
    settings.setdefault("max_batch_size", 1)
    return Stage("10b", info=LINE, **settings)


def test_the_earliest_deadline_goes_first_and_those_without_go_last() -> None:
    stage = stage_10ms()
    stage.ask()
    stage.world.run(0.0)
    deadlines = [inf, 3.0, 1.0, 2.0]
    requests = [stage.ask(deadline_s=d)[0] for d in deadlines]
    stage.world.run()
    order = [b.requests[0] for b in stage.batches[1:]]
    assert order == [requests[2], requests[3], requests[1], requests[0]]


def test_priority_comes_before_the_deadline() -> None:
    stage = stage_10ms()
    stage.ask()
    stage.world.run(0.0)
    soon, _ = stage.ask(deadline_s=1.0, priority=2)
    urgent, _ = stage.ask(deadline_s=2.0, priority=1)
    stage.world.run()
    assert [b.requests[0] for b in stage.batches[1:]] == [urgent, soon]


def test_b16_a_request_that_meets_nobody_is_served_even_past_its_promise() -> None:
    for objective in ("p99<5ms", "p99<200ms"):
        stage = Stage("3000", objective=objective, info=ModelInfo("m"))
        for _ in range(3):
            _, answer = stage.ask()
            stage.world.run()
            assert status(answer) == 200


def test_a_promise_shorter_than_one_request_takes_does_not_refuse_everyone() -> None:
    stage = stage_10ms(objective="p99<5ms")
    stage.ask()
    stage.world.run(0.0)
    _, second = stage.ask()
    _, third = stage.ask()
    stage.world.run()
    assert (status(second), status(third)) == (200, 429)


def test_predicted_late_on_arrival_is_refused_at_once_with_the_time_to_come_back() -> None:
    stage = stage_10ms(objective="p99<50ms")
    answers = [stage.ask()[1] for _ in range(12)]
    refused = [a for a in answers if a.result is not None]
    assert len(refused) == 12 - 5
    result = refused[0].result
    assert result is not None and (result.status, result.code) == (429, "predicted_late")
    assert result.retry_after_s == pytest.approx(0.010) and b"late by 10 ms" in result.body
    stage.world.run()
    assert all(a.at_s <= 0.050 + 1e-9 for a in answers if status(a) == 200)


def test_a_client_deadline_is_hard_however_much_lateness_is_allowed() -> None:
    stage = stage_10ms(objective="p50<1s")
    stage.batcher.door.budget.left = 10.0
    for _ in range(6):
        stage.ask()
    _, answer = stage.ask(deadline_s=0.015)
    assert status(answer) == 429
    assert stage.batcher.door.budget.left == 10.0


def test_p99_allows_one_in_a_hundred_to_be_late_and_they_are_served_last() -> None:
    stage = stage_10ms(objective="p99<55ms")
    for _ in range(120):
        stage.ask()
        stage.world.run()
    answers = [stage.ask() for _ in range(8)]
    later = stage.ask_at(stage.world.time_s + 0.025)
    stage.world.run()
    demoted = [(r, a) for r, a in answers if r.demoted]
    assert len(demoted) == 1
    assert sum(status(a) == 429 for _, a in answers) == 2
    request, answer = demoted[0]
    assert status(answer) == 200 and answer.at_s - request.arrival_s > 0.055
    assert answer.at_s > later[0][1].at_s


def test_unforeseen_lateness_uses_the_allowance_up_and_is_made_up_for() -> None:
    stage = Stage(lambda batch: 0.3, objective="p90<200ms", info=LINE, max_batch_size=1)
    for _ in range(3):
        stage.ask()
        stage.world.run()
    late = [e.late for e in stage.events if isinstance(e, BatchFinished)]
    assert late == [1, 1, 1]
    assert stage.batcher.door.budget.left == -3.0


def test_those_who_became_late_while_waiting_are_refused_and_the_batch_stays_full() -> None:
    stage = Stage("10s", policy="deadline", info=SIZED, max_batch_size=4)
    stage.batcher.curve.best_rows = lambda size, cap: cap  # type: ignore[method-assign]
    stage.ask(size=5.0)
    stage.world.run(0.0)
    # On arrival each would follow right behind the first; together they take 40 ms.
    early = [stage.ask(deadline_s=d) for d in (0.062, 0.071)]
    fresh = [stage.ask(deadline_s=0.115)[1] for _ in range(4)]
    stage.world.run()
    assert [status(a) for _, a in early] == [429, 429]
    assert [status(a) for a in fresh] == [200] * 4
    assert stage.sizes == [1, 4]
    assert [e.code for e in stage.events if isinstance(e, Refused)] == ["predicted_late"] * 2
    assert all(r.state is State.DONE for r, _ in early)


def test_no_more_are_given_up_than_the_rest_needs() -> None:
    """Three wait, 10 ms each: without the most urgent the other two are on time."""
    stage = Stage("10s", policy="deadline", info=SIZED, max_batch_size=4)
    stage.batcher.curve.best_rows = lambda size, cap: cap  # type: ignore[method-assign]
    stage.ask(size=5.0)
    stage.world.run(0.0)
    answers = [stage.ask(deadline_s=d)[1] for d in (0.062, 0.072, 0.082)]
    stage.world.run()
    assert [status(a) for a in answers] == [429, 200, 200]
    assert stage.sizes == [1, 2]


def test_one_that_is_late_while_waiting_may_use_the_allowance() -> None:
    times = iter([0.066, 0.010, 0.010, 0.010])  # the first runs longer than foreseen
    stage = Stage(lambda batch: next(times), objective="p99<85ms", info=SIZED, max_batch_size=1)
    stage.ask(size=6.0)
    stage.world.run(0.0)
    stage.ask()
    late, answer = stage.ask()
    fresh = stage.ask_at(0.020)
    stage.world.plan(0.050, lambda: setattr(stage.batcher.door.budget, "left", 1.0))
    stage.world.run()
    assert late.demoted and status(answer) == 200
    assert [b.requests[0] for b in stage.batches[2:]] == [fresh[0][0], late]


def test_only_a_few_wait_to_be_late_at_once_however_much_is_allowed() -> None:
    stage = stage_10ms(objective="p50<55ms")
    stage.ask()
    stage.world.run(0.0)
    answers = []
    for _ in range(40):
        stage.batcher.door.budget.left = 10.0
        answers.append(stage.ask())
    stage.world.run()
    assert sum(r.demoted for r, _ in answers) == 10
    assert sum(status(a) == 200 for _, a in answers) == 14
    assert sum(status(a) == 429 for _, a in answers) == 26


def test_no_hold_outlasts_the_slack_of_the_most_urgent() -> None:
    stage = Stage("10s", policy="deadline", info=SIZED, max_batch_size=4)
    stage.batcher.curve.best_rows = lambda size, cap: cap  # type: ignore[method-assign]
    stage.batcher.tally.return_share, stage.batcher.tally.answered_rows = 1.0, 4
    stage.ask(size=5.0)
    stage.world.run(0.0)
    _, urgent = stage.ask(deadline_s=0.062)
    stage.world.run()
    assert stage.batches[1].reason is Close.DEADLINE
    assert 0.060 < urgent.at_s <= 0.062 + 1e-9


def test_a_demoted_request_still_times_out_in_the_queue() -> None:
    stage = stage_10ms(objective="p99<50ms", queue_wait_s_max=0.5)
    stage.batcher.door.budget.left = 5.0
    stage.ask()
    stage.world.run(0.0)
    rows = [stage.ask() for _ in range(5)]
    late = next((r, a) for r, a in rows if r.demoted)
    stop = 0.0
    while stop < 0.7:
        # A steady stream of requests that can be on time keeps it out.
        stage.ask_at(stop)
        stop += 0.009
    stage.world.run()
    assert status(late[1]) == 504 and late[1].at_s == pytest.approx(0.5, abs=0.011)


def test_only_more_urgent_work_counts_as_ahead() -> None:
    """A long queue without deadlines does not refuse a request that goes before all of it."""
    stage = stage_10ms()
    for _ in range(40):
        stage.ask()
    answers = [stage.ask(deadline_s=0.055)[1] for _ in range(6)]
    _, urgent = stage.ask(deadline_s=0.035, priority=1)
    stage.world.run()
    assert [status(a) for a in answers] == [200, 200, 200, 429, 429, 429]
    assert status(urgent) == 200 and urgent.at_s <= 0.035
    assert all(a.at_s <= 0.055 for a in answers)


def test_the_batch_is_no_longer_than_the_promise_can_bear() -> None:
    info = ModelInfo("m", warm=[WarmRun(n, 1.0, float(n), 0.001 * n) for n in (1, 8, 64)])
    stage = Stage("1b", info=info, objective="p99<50ms", max_batch_size=64)
    stage.batcher.curve.best_rows = lambda size, cap: cap  # type: ignore[method-assign]
    for _ in range(40):
        stage.ask()
    stage.world.run()
    assert stage.sizes[0] == 30
    assert stage.batches[0].reason is Close.DEADLINE


def test_a_busy_worker_of_unknown_speed_refuses_nobody() -> None:
    stage = Stage("100", objective="p99<200ms", max_batch_size=1, info=ModelInfo("m"))
    answers = [stage.ask()[1] for _ in range(2)]
    stage.world.run()
    assert [status(a) for a in answers] == [200, 200]
