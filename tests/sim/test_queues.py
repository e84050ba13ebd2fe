"""The simulator against queueing theory: with batches of one it is a queue with a known answer."""

from __future__ import annotations

import random
from math import sqrt
from statistics import mean, stdev

import pytest

from headway.core.config import ModelConfig
from headway.sim.arrivals import Marks, poisson
from headway.sim.replica import Replica
from headway.sim.summary import summarize

SERVICE_S = 0.01
RUNS = 12


def latencies(rate: float, *, exponential: bool) -> list[float]:
    """Mean latency of each of several runs, the filling-up of the first seconds left out."""
    found = []
    for seed in range(RUNS):
        draw = random.Random(f"{seed} service").expovariate
        replica = Replica(
            ModelConfig(name="m", policy="greedy", max_batch_size=1),
            (lambda _, draw=draw: draw(1 / SERVICE_S)) if exponential else (lambda _: SERVICE_S),
        )
        times = poisson(rate, 30.0, random.Random(f"{seed} times"))
        log = replica.play(Marks().put_on(times, random.Random(0)))
        found.append(summarize(log, since_s=5.0).latency_s["mean"])
    return found


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("exponential", [False, True], ids=["M/D/1", "M/M/1"])
def test_mean_latency_is_the_closed_form(load: float, exponential: bool) -> None:
    found = latencies(load / SERVICE_S, exponential=exponential)
    # Pollaczek-Khinchine: service x (1 + load (1 + cv^2) / (2 (1 - load))), cv 0 or 1.
    expected = SERVICE_S * (1 + load * (2 if exponential else 1) / (2 * (1 - load)))
    error = stdev(found) / sqrt(RUNS)
    assert abs(mean(found) - expected) <= 3 * error
    assert error < 0.05 * expected  # three standard errors must mean something
