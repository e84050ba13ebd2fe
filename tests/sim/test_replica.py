"""The simulator keeps every request: none lost, none answered twice, one log for one seed."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headway.core.config import ModelConfig
from headway.core.events import WorkerChanged
from headway.core.slo import Objective
from headway.sim.arrivals import ClosedLoop, Marks, even, log_uniform, poisson
from headway.sim.replica import Crashes, Log, Replica
from headway.sim.run_time import ServiceTime
from headway.sim.summary import summarize

POLICIES = ("greedy", "deadline", "static")


def stormy(seed: int, policy: str, retries: int = 0) -> Log:
    """Overload, crashes, deadlines and clients that hang up."""
    until_s = 2.0
    config = ModelConfig(
        name="m",
        policy=policy,
        max_batch_size=8,
        workers=2,
        objective="p99<100ms",
        crash_retries=retries,
        queue_requests_max=64,
    )
    service = ServiceTime(
        0.008, 0.001, factors=((1.0, 0.9), (3.0, 0.1)), rng=random.Random(f"{seed} service")
    )
    crashes = Crashes.seeded(
        random.Random(f"{seed} crashes"), every_s=0.1, until_s=until_s, workers=2, away_s=0.05
    )
    marks = Marks(
        sizes=log_uniform(16, 512), priorities=(0, 1), deadlines_s=(0.05, 0.5), leave_s=0.3
    )
    times = poisson(1200.0, until_s, random.Random(f"{seed} times"))
    replica = Replica(config, service, crashes=crashes)
    return replica.play(marks.put_on(times, random.Random(f"{seed} marks")))


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_crashes_lose_no_request_and_answer_none_twice(policy: str, retries: int) -> None:
    for seed in range(6):
        log = stormy(seed, policy, retries)
        crashes = [e for e in log.others if isinstance(e, WorkerChanged) and not e.up]
        assert len(crashes) > 5
        # `SimRequest.done` raises on a second answer; here: each has a first one.
        assert all(r.end_s >= r.arrival_s for r in log.requests)
        found = summarize(log, Objective.parse("p99<100ms"))
        assert found.conserved()
        assert found.answered and found.refused and found.cancelled
        assert found.failed or retries
        ran = Counter(id for batch in log.closed for id in batch.ids)
        assert max(ran.values()) <= 1 + len(crashes)


def test_retries_answer_what_crashes_would_fail() -> None:
    failed = [sum(summarize(stormy(s, "greedy", n)).failed for s in range(4)) for n in (0, 2)]
    assert failed[1] < failed[0] / 4


@pytest.mark.parametrize("policy", POLICIES)
def test_one_seed_twice_gives_one_log(policy: str) -> None:
    a, b, other = stormy(3, policy), stormy(3, policy), stormy(4, policy)
    assert (a.closed, a.finished, a.others) == (b.closed, b.finished, b.others)
    assert [(r.end_s, r.status) for r in a.requests] == [(r.end_s, r.status) for r in b.requests]
    assert a.closed != other.closed


def test_closed_loop_clients_ask_once_at_a_time() -> None:
    replica = Replica(ModelConfig(name="m", policy="greedy", max_batch_size=8), ServiceTime(0.01))
    log = replica.play(ClosedLoop(clients=8, until_s=1.0), seed=1)
    changes = [(r.arrival_s, 1) for r in log.requests] + [(r.end_s, -1) for r in log.requests]
    inside = most = 0
    for _, change in sorted(changes):
        inside += change
        most = max(most, inside)
    assert most == 8
    # The hold after a reply brings the eight together: full batches, one every 10 ms.
    assert Counter(e.rows for e in log.closed)[8] >= 95


def test_a_closed_loop_client_that_is_refused_waits_before_it_asks_again() -> None:
    config = ModelConfig(name="m", policy="greedy", max_batch_size=1, queue_requests_max=2)
    log = Replica(config, ServiceTime(0.05)).play(ClosedLoop(clients=20, until_s=1.0), seed=1)
    assert summarize(log).refusals["queue_full"] < 20_000


def test_summary_numbers_of_a_run_small_enough_to_check_by_hand() -> None:
    config = ModelConfig(name="m", policy="greedy", max_batch_size=4, hold=False)
    replica = Replica(config, ServiceTime(0.01, form="padded"))
    # Arrivals every 4 ms for 20 ms: one alone, then what came meanwhile.
    log = replica.play(Marks().put_on(even(250.0, 0.021), random.Random(0)), until_s=0.1)
    found = summarize(log, Objective.parse("p50<15ms"))
    assert (found.asked, found.answered, found.span_s) == (5, 5, 0.1)
    assert found.batch_rows == {1: 1, 2: 2}
    assert found.batch_rows_mean == pytest.approx(5 / 3)
    assert found.utilisation == pytest.approx(0.3)
    assert found.throughput_per_s == pytest.approx(50)
    ms = sorted(round(r.latency_s * 1e3, 6) for r in log.requests)
    assert ms == [10, 12, 14, 16, 18]
    assert found.latency_s["p50"] == pytest.approx(0.014)
    assert found.latency_s["max"] == found.latency_s["p99"] == pytest.approx(0.018)
    assert found.attainment == pytest.approx(0.6)
    assert found.goodput_per_s == pytest.approx(30)
    assert found.met
    assert found.padding_waste == 0.0


def test_refused_requests_count_against_attainment() -> None:
    config = ModelConfig(name="m", policy="greedy", max_batch_size=1, queue_requests_max=1)
    times = [0.0, 0.0, 0.0, 0.0]
    log = Replica(config, ServiceTime(0.01)).play(Marks().put_on(times, random.Random(0)))
    found = summarize(log, Objective.parse("p90<1s"))
    assert found.refusals == {"queue_full": found.refused}
    assert found.refused > 0
    assert found.attainment == found.answered / 4
    assert found.met is False
