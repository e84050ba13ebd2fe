"""How large a batch may be, and where each bound comes from."""

from __future__ import annotations

import pytest

from headway.core.batch import Close
from headway.core.batcher.sizing import FIT_SHARE, Sizing
from headway.core.config import ModelConfig
from headway.core.estimate import PROBE_EVERY, ServiceCurve
from headway.core.ports import ModelInfo
from headway.core.slo import Objective
from tests.core.stage import Stage


def sized(
    info: ModelInfo | None = None, tau_ms: tuple[float, float] = (0, 0), **settings
) -> Sizing:  # type: ignore[no-untyped-def]
    """Sizing of a model with tau = a + b x rows in ms, known where a or b are given."""
    curve = ServiceCurve()
    sizing = Sizing(ModelConfig(name="m", **settings), curve)
    sizing.learn(info or ModelInfo("m"))
    if any(tau_ms):
        for n in (1, 2, 4, 8, 16, 32, 64):
            curve.observe(n, 1.0, float(n), (tau_ms[0] + tau_ms[1] * n) / 1e3)
    return sizing


@pytest.mark.parametrize(
    ("settings", "info", "rows", "origin"),
    [
        ({"max_batch_size": 7}, {"max_batch_size": 9}, 7, "max_batch_size"),
        ({}, {"max_batch_size": 9, "free_rows": 3}, 9, "model"),
        ({}, {}, 64, "class light"),
        ({"weight_class": "heavy"}, {}, 16, "class heavy"),
        ({}, {"free_rows": 5}, 5, "free memory"),
        ({}, {"free_rows": 500}, 64, "class light"),
        ({}, {"free_rows": 0}, 1, "free memory"),
        ({"max_batch_size": 20}, {"padded_sizes": (1, 8, 16, 32)}, 16, "padded_sizes"),
        ({"padded_sizes": (1, 4)}, {"padded_sizes": (1, 8)}, 4, "padded_sizes"),
        ({"max_batch_size": 8}, {"padded_sizes": (1, 8)}, 8, "max_batch_size"),
    ],
)
def test_b15_the_hard_maximum_and_its_origin(
    settings: dict, info: dict, rows: int, origin: str
) -> None:
    sizing = sized(ModelInfo("m", **info), **settings)
    assert (sizing.rows_max, sizing.origin) == (rows, origin)
    assert sizing.limits.rows_max == rows


def test_the_cap_is_the_best_size_and_says_so() -> None:
    sizing = sized(tau_ms=(0, 1))
    assert sizing.cap(1.0, 1.0, objective=None, contended=False) == (1, Close.BEST_SIZE)
    sizing = sized(tau_ms=(10, 0.01))
    assert sizing.cap(1.0, 1.0, objective=None, contended=False) == (64, Close.FULL)


def test_a_static_batch_is_not_cut_by_what_was_measured() -> None:
    sizing = sized(tau_ms=(0, 1), policy="static", max_batch_size=32)
    objective = Objective(0.99, 0.004)
    assert sizing.cap(1.0, 1.0, objective=objective, contended=False) == (32, Close.FULL)
    assert sizing.cap(1.0, 1.0, objective=None, contended=True) == (20, Close.SLOT)


def test_an_objective_and_a_neighbour_each_bound_the_run_time() -> None:
    sizing = sized(tau_ms=(10, 1), max_batch_size=64, slot_time_ms_max=25)
    objective = Objective(0.99, 0.060)
    rows, reason = sizing.cap(1.0, 1.0, objective=objective, contended=False)
    assert reason is Close.DEADLINE
    assert rows == pytest.approx(FIT_SHARE * 60 - 10, abs=1)
    assert sizing.cap(1.0, 1.0, objective=objective, contended=True) == (15, Close.SLOT)


def test_a_row_too_long_for_any_bound_still_goes_alone() -> None:
    sizing = sized(tau_ms=(500, 1))
    assert sizing.cap(1.0, 1.0, objective=Objective(0.99, 0.1), contended=True)[0] == 1


def test_a_larger_head_means_fewer_rows() -> None:
    sizing = sized(ModelInfo("m", form="padded"), slot_time_ms_max=20)
    for n in (1, 4, 16, 64):
        for size in (10.0, 100.0):
            sizing.curve.observe(n, size, n * size, 0.005 + 1e-5 * n * size)
    sizing.curve.reform("padded")
    for n in (1, 4, 16, 64):
        for size in (10.0, 100.0):
            sizing.curve.observe(n, size, n * size, 0.005 + 1e-5 * n * size)
    small, _ = sizing.cap(10.0, 10.0, objective=None, contended=True)
    large, _ = sizing.cap(100.0, 10.0, objective=None, contended=True)
    assert large == 15 and small == 64


def test_looks_past_the_best_size_get_rarer_and_are_not_lost_on_waiting() -> None:
    sizing = sized(tau_ms=(0, 1))

    def batches_until_look() -> int:
        count = 0
        while sizing.cap(1.0, 1.0, objective=None, contended=False)[0] == 1:
            for _ in range(3):  # asking is not a batch
                sizing.cap(1.0, 1.0, objective=None, contended=False)
            sizing.closed(Close.BEST_SIZE)
            sizing.closed(Close.IDLE)
            count += 1
        assert sizing.cap(1.0, 1.0, objective=None, contended=False) == (2, Close.BEST_SIZE)
        sizing.closed(Close.BEST_SIZE)
        return count

    assert [batches_until_look() for _ in range(3)] == [
        PROBE_EVERY,
        2 * PROBE_EVERY,
        4 * PROBE_EVERY,
    ]


def test_an_old_verdict_is_overturned_by_a_look() -> None:
    """The device gets faster in batches (a neighbour left): b* grows again."""
    stage = Stage(lambda b: 0.001 * b.rows if stage.world.time_s < 5 else 0.010, max_batch_size=8)
    for wave in range(60):
        stage.world.plan(wave * 0.5, lambda: [stage.ask() for _ in range(64)])
    stage.world.run()
    assert stage.batcher.sizing.best_rows(1.0) == 8
    assert stage.sizes[-8:] == [8] * 8


@pytest.mark.parametrize(
    ("waiting", "tau_ms", "taken"),
    [
        (8, (0, 1), (8, False)),
        (5, (0, 1), (4, True)),
        (7, (10, 0.01), (7, False)),
        (100, (0, 1), (16, True)),
        (0, (0, 1), (0, False)),
    ],
)
def test_b7_rounding_down_only_where_it_answers_more(
    waiting: int, tau_ms: tuple[float, float], taken: tuple[int, bool]
) -> None:
    sizing = sized(ModelInfo("m", padded_sizes=(1, 4, 8, 16)), tau_ms=tau_ms)
    assert sizing.round(waiting, 1.0) == taken


def test_rounding_is_only_for_models_that_pad_rows() -> None:
    assert sized(tau_ms=(0, 1)).round(5, 1.0) == (5, False)
    assert sized().allowed_up(5) == 5
    padded = sized(ModelInfo("m", padded_sizes=(1, 4, 8)))
    assert [padded.allowed_up(n) for n in (1, 2, 8, 9)] == [1, 4, 8, 9]


def test_fewer_rows_than_the_smallest_size_are_padded_up() -> None:
    sizing = sized(ModelInfo("m", padded_sizes=(4, 8)), tau_ms=(0, 1))
    assert sizing.round(3, 1.0) == (3, False) and sizing.allowed_up(3) == 4
