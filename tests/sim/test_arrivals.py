"""Arrival processes have the rates and shapes they are named for, and one seed gives one load."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from statistics import mean, pvariance

import pytest

from headway.core.errors import ConfigError
from headway.sim.arrivals import (
    Marks,
    bursty,
    constant,
    even,
    log_uniform,
    parse_sizes,
    poisson,
    tied,
)


def rng() -> random.Random:
    return random.Random(5)


def dispersion(times: list[float], until_s: int) -> float:
    """Variance over mean of the counts in bins of a second; 1 for Poisson."""
    counts = Counter(int(t) for t in times)
    bins = [counts[n] for n in range(until_s)]
    return pvariance(bins) / mean(bins)


def test_poisson_has_its_rate_and_dispersion() -> None:
    times = list(poisson(100.0, 400.0, rng()))
    assert len(times) == pytest.approx(40_000, rel=0.03)
    assert 0.8 < dispersion(times, 400) < 1.25


def test_even_times_are_evenly_spaced() -> None:
    assert list(even(4.0, 1.25)) == [0.25, 0.5, 0.75, 1.0]


def test_bursts_keep_the_mean_rate_and_are_bursty() -> None:
    times = list(bursty(100.0, 2000.0, rng()))
    assert len(times) == pytest.approx(200_000, rel=0.06)
    assert dispersion(times, 2000) > 10
    assert times == sorted(times)


def test_tied_arrivals_share_their_times_exactly() -> None:
    times = list(tied(100.0, 100.0, rng(), together_max=4, grid_s=0.01))
    counts = Counter(times)
    assert len(times) == pytest.approx(10_000, rel=0.1)
    assert max(counts.values()) >= 4
    assert all(t == pytest.approx(round(t / 0.01) * 0.01) for t in counts)
    assert all(a <= b for a, b in pairwise(times))


def test_one_seed_gives_one_load() -> None:
    def load(seed: int) -> list[object]:
        marks = Marks(sizes=log_uniform(1, 9), priorities=(0, 1), deadlines_s=(1.0, 2.0), leave_s=3)
        times = poisson(50.0, 2.0, random.Random(seed))
        return list(marks.put_on(times, random.Random(seed)))

    assert load(1) == load(1) != load(2)


def test_log_uniform_sizes_are_equally_likely_per_doubling() -> None:
    draw, r = log_uniform(16, 256), rng()
    sizes = [draw(r) for _ in range(8000)]
    assert all(16 <= s <= 256 for s in sizes)
    assert sum(s < 64 for s in sizes) / 8000 == pytest.approx(0.5, abs=0.02)


def test_sizes_are_read_from_text() -> None:
    assert parse_sizes("128")(rng()) == constant(128)(rng()) == 128
    assert 16 <= parse_sizes("16:32")(rng()) <= 32


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "9:3", "1:2:3", "inf", "nan"])
def test_sizes_that_make_no_sense_are_named(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sizes(text)
    assert repr(text) in caught.value.message
    assert caught.value.hint
