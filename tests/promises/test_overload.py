"""More arrives than can be served: the promise holds for as many as the machine can carry."""

from __future__ import annotations

import math
import random

import pytest

from headway.core.batch import Batch
from headway.core.ports import ModelInfo, WarmRun
from tests.core.stage import Stage
from tests.core.traffic import Outcome, poisson

LIMIT_S = 0.080
CAPACITY_S = 32 / 0.042
"""max over b of b / tau(b) with tau(b) = 10 + b ms <= 80 ms and b <= 32, rows per second."""
SECONDS = 20.0


def overload(load: float, seconds: float, **settings: object) -> Outcome:
    deep = {"queue_requests_max": 10**6, "queue_rows_max": 10**6}
    stage = Stage("10+1b", max_batch_size=32, **deep, **settings)
    outcome = poisson(stage, load * CAPACITY_S, seconds)
    stage.world.run(seconds + 5.0)
    return outcome


@pytest.mark.parametrize(("load", "seconds"), [(1.1, 20.0), (1.5, 8.0), (2.0, 8.0)])
def test_in_overload_the_promise_is_kept_for_as_many_as_can_be_carried(
    load: float, seconds: float
) -> None:
    kept = overload(load, seconds, objective="p99<80ms")
    bound = min(load, 1.0) * CAPACITY_S * seconds
    assert kept.on_time(LIMIT_S) >= 0.96 * bound
    late = len(kept.latencies()) - kept.on_time(LIMIT_S)
    assert late <= 0.01 * len(kept.latencies()) + 1
    assert all(answer.result is not None for _, answer in kept.asked)


@pytest.mark.parametrize(("load", "seconds"), [(1.1, 10.0), (2.0, 4.0)])
def test_without_deadlines_overload_makes_nearly_everyone_late(load: float, seconds: float) -> None:
    kept = overload(load, seconds, policy="greedy")
    assert kept.on_time(LIMIT_S) < 0.15 * CAPACITY_S * seconds


def test_below_capacity_the_deadline_policy_turns_nobody_away() -> None:
    warm = [WarmRun(n, 1.0, float(n), 0.010 + 0.001 * n) for n in (1, 2, 4, 8, 16, 32)]
    outcome = overload(0.8, 5.0, objective="p99<80ms", info=ModelInfo("m", warm=warm))
    assert outcome.refused == 0
    assert outcome.quantile(0.99) <= LIMIT_S


def test_clients_deadlines_alone_are_kept_in_overload_too() -> None:
    stage = Stage("10+1b", max_batch_size=32, policy="deadline", queue_requests_max=10**6)
    outcome = poisson(
        stage,
        1.5 * CAPACITY_S,
        4.0,
        fields=lambda now: {"deadline_s": now + LIMIT_S, "expires_s": now + LIMIT_S},
    )
    stage.world.run(10.0)
    assert outcome.on_time(LIMIT_S) >= 0.95 * CAPACITY_S * 4.0
    late = len(outcome.latencies()) - outcome.on_time(LIMIT_S)
    assert late <= 0.01 * len(outcome.latencies())


def embed_size(rng: random.Random) -> float:
    return math.exp(rng.uniform(math.log(5), math.log(199)))


def embed_s(batch: Batch) -> float:
    """2 ms and 0.2 ms per padded unit; batches cost half as much again per unit (a CPU)."""
    return 0.002 + 0.0002 * batch.rows * batch.longest * (1.0 if batch.rows == 1 else 1.5)


EMBED_MEAN_S = 0.002 + 0.0002 * (199 - 5) / math.log(199 / 5)
"""Mean run time of one item, so one over the rate that fits without batching."""


def embed(load: float, seconds: float = SECONDS, **settings: object) -> Outcome:
    stage = Stage(embed_s, info=ModelInfo("m", form="padded"), **settings)
    outcome = poisson(stage, load / EMBED_MEAN_S, seconds, size=embed_size)
    stage.world.run(seconds + 5.0)
    return outcome


def test_mixed_sizes_below_capacity_all_keep_the_promise() -> None:
    outcome = embed(0.66, objective="p99<200ms")
    assert outcome.refused == 0
    assert outcome.quantile(0.99) < 0.200


@pytest.mark.parametrize(("load", "share", "seconds"), [(0.95, 0.95, 20.0), (1.9, 1.25, 12.0)])
def test_mixed_sizes_near_and_beyond_capacity_beat_first_come_first_served(
    load: float, share: float, seconds: float
) -> None:
    kept = embed(load, seconds, objective="p99<200ms")
    plain = embed(load, seconds, policy="greedy", max_batch_size=1)
    capacity = seconds / EMBED_MEAN_S
    # Beyond capacity those that fit in time are small: more are carried than the mean suggests.
    assert kept.on_time(0.200) >= share * min(load, 1.0) * capacity
    assert kept.on_time(0.200) > 1.2 * plain.on_time(0.200)
    assert kept.quantile(0.98) <= 0.200


def test_a_mix_of_sizes_starves_nobody() -> None:
    """The most urgent request always leads the next batch, so a rare size waits for at most what
    was there before it."""
    stage = Stage(
        embed_s, info=ModelInfo("m", form="padded"), max_batch_size=16, queue_requests_max=10**6
    )
    small = poisson(stage, 60.0, SECONDS, size=lambda rng: rng.uniform(5, 20))
    rare = poisson(stage, 3.0, SECONDS, seed=2, size=lambda rng: 190.0)
    stage.world.run(SECONDS + 30.0)
    assert all(a.result and a.result.status == 200 for _, a in small.asked + rare.asked)
    waiting = iter(sorted((r.arrival_s, r.id) for r, _ in small.asked + rare.asked))
    gone: set[int] = set()
    for batch in stage.batches:
        oldest = next(r for r in waiting if r[1] not in gone)
        assert oldest == min((r.arrival_s, r.id) for r in batch.requests)
        gone.update(r.id for r in batch.requests)
    assert max(a.at_s - r.arrival_s for r, a in rare.asked) < 1.0


def test_demoted_requests_neither_pile_up_nor_count_as_ahead_of_others() -> None:
    stage = Stage("10+1b", max_batch_size=32, objective="p99<80ms", queue_wait_s_max=2.0)
    outcome = poisson(stage, 2.0 * CAPACITY_S, 4.0)
    most = 0
    for tenth in range(40):
        stage.world.run(tenth / 10)
        room = stage.batcher.room
        most = max(most, sum(r.demoted for r in room))
    stage.world.run(20.0)
    assert most <= 10
    last = [x for x in outcome.asked if x[0].arrival_s > 3.0]
    on_time = sum(a.at_s - r.arrival_s <= LIMIT_S for r, a in last if a.result.status == 200)  # type: ignore[union-attr]
    assert on_time >= 0.9 * CAPACITY_S


@pytest.mark.parametrize("load", [0.95, 1.9])
def test_refusals_come_at_once_even_where_run_times_scatter(load: float) -> None:
    rng = random.Random(5)
    stage = Stage(
        lambda batch: embed_s(batch) * rng.lognormvariate(0.0, 0.25),
        info=ModelInfo("m", form="padded"),
        objective="p99<200ms",
    )
    outcome = poisson(stage, load / EMBED_MEAN_S, 12.0, size=embed_size)
    stage.world.run(17.0)
    waits = [
        answer.at_s - request.arrival_s
        for request, answer in outcome.asked
        if answer.result is not None and answer.result.status != 200
    ]
    assert len(waits) > 10
    assert sum(wait > 0.050 for wait in waits) <= 0.01 * len(waits) + 1


@pytest.mark.parametrize("settings", [{}, {"queue_requests_max": 50}])
def test_q1_at_three_times_capacity_refusals_are_instant_and_answers_bounded(
    settings: dict[str, int],
) -> None:
    stage = Stage("10", max_batch_size=1, **settings)
    boxes = [stage.ask_at(i / 300) for i in range(15 * 300)]
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, stage.batcher.room.requests)

    for i in range(1500):
        stage.world.plan(i / 100, look)
    stage.world.run()
    limit = stage.config.queue_requests_max
    asked = [box[0] for box in boxes]
    refused = [(r, a) for r, a in asked if a.result and a.result.status == 429]
    served = [(r, a) for r, a in asked if a.result and a.result.status == 200]
    assert len(refused) + len(served) == len(asked)
    assert len(refused) > 1000 and most <= limit
    assert all(a.at_s == r.arrival_s for r, a in refused)
    assert all(a.result and a.result.retry_after_s for _, a in refused)
    # Capacity is 100 a second: the queue, what runs and what is next.
    assert max(a.at_s - r.arrival_s for r, a in served) <= (limit + 2) / 100 + 1e-9
