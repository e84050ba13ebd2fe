"""What a batch will cost and how large it should be, learned from batches that ran."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf, nan

import pytest

from headway.core.estimate import PROBE_EVERY, ServiceCurve

ROWS = (1, 2, 4, 8, 16, 32, 64)


def learned(
    tau_s: Callable[[int], float],
    *,
    rows: tuple[int, ...] = ROWS,
    noise: float = 0.0,
    runs: int = 20,
) -> ServiceCurve:
    """A curve that saw `runs` batches of each row count, each row of size 1."""
    rng = random.Random(7)
    curve = ServiceCurve()
    for _ in range(runs):
        for n in rows:
            factor = 1.0 + noise * (2.0 * rng.random() - 1.0)
            curve.observe(n, 1.0, float(n), tau_s(n) * factor)
    return curve


def next_pow2(n: int) -> int:
    return 1 << (n - 1).bit_length()


@pytest.mark.parametrize(
    ("name", "tau_s", "low", "high"),
    [
        ("flat: the more the better", lambda n: 0.010, 64, 64),
        ("line with a fixed part", lambda n: 0.010 + 0.001 * n, 64, 64),
        ("proportional: batching gains nothing", lambda n: 0.001 * n, 1, 1),
        ("superlinear past 8", lambda n: 0.010 + 0.001 * n * max(1.0, n / 8) ** 2, 8, 16),
        ("padded steps", lambda n: 0.004 + 0.001 * next_pow2(n), 64, 64),
        ("a roof from 16 on", lambda n: max(0.010, 0.010 * n / 16), 16, 16),
        ("hurts from the first row", lambda n: 0.001 * n * n, 1, 1),
    ],
)
def test_the_best_size_on_known_curves(
    name: str, tau_s: Callable[[int], float], low: int, high: int
) -> None:
    for noise in (0.0, 0.01):
        curve = learned(tau_s, noise=noise)
        best = curve.best_rows(1.0, 64)
        assert low <= best <= high, name
        optimum = max(n / tau_s(n) for n in ROWS)
        assert best / tau_s(best) >= 0.95 * optimum
        assert curve.helps(1.0, 64) is (best > 1)


def test_noise_does_not_make_large_batches_look_better_than_they_are() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        curve = ServiceCurve()
        for _ in range(200):
            for n in ROWS:
                curve.observe(n, 1.0, float(n), 0.001 * n * rng.uniform(0.8, 1.2))
        # Gains are noise: whatever it picks costs nobody a tenth of the throughput.
        assert curve.best_rows(1.0, 64) >= 1
        assert curve.predict(64, 1.0, 64.0) == pytest.approx(0.064, rel=0.1)


def test_nothing_is_known_before_the_first_batch_and_everything_is_tried() -> None:
    curve = ServiceCurve()
    assert curve.predict(4, 1.0, 4.0) == 0.0
    assert curve.best_rows(1.0, 48) == 48
    assert curve.rates(1.0, 48) == []
    assert not curve.knows(1)
    assert curve.sigma(4) == 0.0


def test_larger_batches_than_ever_ran_are_tried_as_long_as_the_largest_is_best() -> None:
    curve = learned(lambda n: 0.010 + 0.001 * n, rows=(1, 2, 4))
    assert curve.best_rows(1.0, 64) == 64
    curve = learned(lambda n: 0.001 * n * n, rows=(1, 2, 4))
    assert curve.best_rows(1.0, 64) == 1


def test_smaller_batches_than_ever_ran_are_tried_when_the_smallest_is_best() -> None:
    curve = learned(lambda n: 0.001 * n, rows=(8, 16))
    assert curve.best_rows(1.0, 64) == 4


def test_only_row_counts_under_the_cap_count() -> None:
    curve = learned(lambda n: 0.010, rows=(32, 64))
    assert curve.best_rows(1.0, 8) == 8
    assert [rows for rows, _ in learned(lambda n: 0.01).rates(1.0, 5)] == [1, 2, 4, 5]


@pytest.mark.parametrize("form", ["list", "padded", "packed"])
def test_predictions_are_within_five_per_cent_on_a_line(form: str) -> None:
    rng = random.Random(11)
    curve = ServiceCurve(form)  # type: ignore[arg-type]

    def draw() -> tuple[int, float, float, float]:
        sizes = [rng.uniform(10, 200) for _ in range(rng.randint(1, 16))]
        longest, total = max(sizes), sum(sizes)
        work = len(sizes) * longest if form == "padded" else total
        return len(sizes), longest, total, 0.002 + 2e-5 * work

    for _ in range(400):
        rows, longest, total, run_s = draw()
        curve.observe(rows, longest, total, run_s)
    errors = []
    for _ in range(200):
        rows, longest, total, run_s = draw()
        errors.append(abs(curve.predict(rows, longest, total) - run_s) / run_s)
    assert sorted(errors)[190] < 0.05


def test_a_model_that_becomes_slower_is_followed() -> None:
    curve = ServiceCurve()
    for run_s in [0.010] * 200 + [0.020] * 200:
        curve.observe(4, 1.0, 4.0, run_s)
    assert curve.predict(4, 1.0, 4.0) == pytest.approx(0.020, rel=0.05)


def test_unseen_row_counts_err_towards_slow() -> None:
    curve = learned(lambda n: 0.010 + 0.001 * n, rows=(4,))
    assert curve.predict(16, 1.0, 16.0) >= 0.026
    assert curve.predict(1, 1.0, 1.0) == pytest.approx(0.014)
    assert curve.knows(3) and not curve.knows(16)


def test_between_two_warm_up_sizes_the_line_counts() -> None:
    curve = learned(lambda n: 0.010 + 0.001 * n, runs=1)
    for rows in (3, 12, 24, 50):
        assert curve.predict(rows, 1.0, float(rows)) == pytest.approx(0.010 + 0.001 * rows)
    falling = learned(lambda n: 0.010 if n == 4 else 0.020, runs=1)
    assert falling.predict(3, 1.0, 3.0) == pytest.approx(0.020), "never less than what was seen"


def test_a_gap_between_seen_row_counts_is_filled_from_below() -> None:
    curve = learned(lambda n: 0.001 * n, rows=(1, 64))
    assert curve.predict(8, 1.0, 8.0) == pytest.approx(0.008)


@pytest.mark.parametrize("run_s", [0.0, -1.0, nan, inf])
def test_times_that_make_no_sense_are_ignored(run_s: float) -> None:
    curve = learned(lambda n: 0.010)
    curve.observe(4, 1.0, 4.0, run_s)
    assert curve.predict(4, 1.0, 4.0) == pytest.approx(0.010)


@pytest.mark.parametrize("size", [nan, inf, -1.0])
def test_sizes_that_make_no_sense_are_ignored(size: float) -> None:
    curve = learned(lambda n: 0.010)
    curve.observe(4, size, 4 * size, 0.010)
    curve.observe(0, 1.0, 0.0, 0.010)
    assert curve.predict(4, 1.0, 4.0) == pytest.approx(0.010)


def test_empty_items_take_time_too() -> None:
    """Cost in proportion to size: an empty body is predicted to take next to nothing, not zero."""
    curve = ServiceCurve()
    for size in (10.0, 20.0, 30.0) * 10:
        curve.observe(1, size, size, 0.001 * size)
    assert 0.0 < curve.predict(1, 0.0, 0.0) < 0.001
    assert curve.best_rows(0.0, 8) >= 1
    assert curve.rates(0.0, 8)[0][1] > 0.0


def test_zero_sized_rows_alone_are_predicted_too() -> None:
    curve = ServiceCurve()
    curve.observe(1, 0.0, 0.0, 0.010)
    assert curve.predict(8, 0.0, 0.0) == pytest.approx(0.010)


def test_another_layout_forgets_what_was_learned_for_the_first() -> None:
    curve = learned(lambda n: 0.010)
    curve.reform("list")
    assert curve.knows(4)
    curve.reform("padded")
    assert not curve.knows(4) and curve.best_rows(1.0, 32) == 32


def test_sigma_is_the_spread_of_run_times() -> None:
    rng = random.Random(3)
    curve = ServiceCurve()
    times = [0.010 * rng.uniform(0.7, 1.3) for _ in range(500)]
    for run_s in times:
        curve.observe(4, 1.0, 4.0, run_s)
    limit_s = curve.predict(4, 1.0, 4.0) * (1.0 + 1.645 * curve.sigma(4))
    assert 0.90 <= sum(t <= limit_s for t in times) / len(times) <= 1.0
    assert learned(lambda n: 0.010).sigma(4) == pytest.approx(0.0)


def test_the_price_of_a_row_is_that_of_the_best_size() -> None:
    curve = learned(lambda n: 0.010 + 0.001 * n)
    assert curve.row_s(1.0, 64) == pytest.approx(0.074 / 64, rel=0.02)


def test_a_look_past_the_best_size_is_rare() -> None:
    assert PROBE_EVERY >= 64
