"""What is remembered of the recent past: overlap, progress, clients that come back."""

from __future__ import annotations

import pytest

from headway.core.batch import Close
from headway.core.batcher.lanes import HOP_S_START, Lanes
from headway.core.batcher.tally import COUNT_MAX, Tally
from headway.core.ports import ModelInfo
from tests.core.stage import Stage


def test_nothing_is_said_before_enough_was_seen() -> None:
    tally = Tally()
    for i in range(15):
        tally.arrived(1, float(i), alone=True)
    assert tally.advice(8) is None
    tally.arrived(1, 16.0, alone=True)
    assert "never overlap" in str(tally.advice(8))


def test_full_batches_need_no_advice_and_small_ones_name_the_cap() -> None:
    tally = Tally()
    for i in range(100):
        tally.arrived(1, float(i), alone=False)
        tally.closed(8, float(i), Close.IDLE)
    assert tally.advice(8) is None and tally.advice(1) is None
    assert "average batch 8.0 of 64" in str(tally.advice(64))


LIMITS = {
    Close.BEST_SIZE: "per row",
    Close.UNLIKE: "differs in size",
    Close.BUDGET: "batch_budget_size",
    Close.SLOT: "slot_time_ms_max",
    Close.DEADLINE: "late",
    Close.FULL: "free",
}


@pytest.mark.parametrize("reason", Close)
def test_o8_small_batches_are_explained_by_what_closed_them(reason: Close) -> None:
    tally = Tally()
    for i in range(40):
        tally.arrived(2, float(i), alone=False)
        # Now and then nobody else waits; that does not hide what cuts the others.
        tally.closed(2, float(i), Close.IDLE if i % 4 == 0 else reason)
    text = str(tally.advice(64))
    assert text.startswith("average batch 2.0 of 64: ")
    assert ("concurrency" in text) is (reason not in LIMITS)
    assert LIMITS.get(reason, "") in text
    # An old reason gives way to the present one.
    for i in range(4 * COUNT_MAX):
        tally.closed(2, float(i), Close.HOLD)
    assert "concurrency" in str(tally.advice(64))


def test_o8_a_cap_that_cuts_batches_is_told_instead_of_the_clients() -> None:
    info = ModelInfo("m", form="packed")
    stage = Stage("1", info=info, max_batch_size=64, batch_budget_size=100.0)
    for _ in range(200):
        stage.ask(size=40.0)
    stage.world.run()
    assert max(stage.sizes) == 2
    text = str(stage.batcher.advice())
    assert "of 64" in text and "batch_budget_size" in text and "concurrency" not in text


def test_old_habits_are_forgotten() -> None:
    tally = Tally()
    for i in range(40 * COUNT_MAX):
        tally.arrived(1, float(i), alone=True)
    for i in range(COUNT_MAX):
        tally.arrived(1, float(i), alone=False)
    tally.closed(8, 0.0, Close.IDLE)
    assert tally.advice(8) is None


def test_the_share_that_comes_back_within_the_hold_is_learned() -> None:
    tally = Tally()
    now = 0.0
    for _ in range(20):
        now += 1.0
        tally.answered(4, 0.5, now)
        for _ in range(4):
            tally.arrived(1, now + 0.04, alone=False)
    assert tally.return_share > 0.95
    for _ in range(20):
        now += 1.0
        tally.answered(4, 0.5, now)
        tally.arrived(4, now + 0.06, alone=False)
    assert tally.return_share < 0.05


def test_progress_is_what_arrived_first_left_or_ended_last() -> None:
    tally = Tally()
    for now, act in ((1.0, lambda t: tally.arrived(1, t, alone=True)),
                     (2.0, lambda t: tally.closed(1, t, Close.IDLE)),
                     (3.0, lambda t: tally.answered(1, 0.1, t)),
                     (4.0, tally.progressed)):  # fmt: skip
        act(now)
        assert tally.progress_s == now
    tally.arrived(1, 9.0, alone=False)
    assert tally.progress_s == 4.0


def test_the_way_to_a_worker_is_measured_and_nonsense_ignored() -> None:
    lanes = Lanes()
    for odd in (0.0, -1.0, 2.0):
        lanes.saw_hop(odd)
    assert lanes.hop_s == HOP_S_START
    for _ in range(100):
        lanes.saw_hop(0.002)
    assert lanes.hop_s == pytest.approx(0.002, rel=0.01)
