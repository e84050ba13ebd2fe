"""Two models on one device: they take turns, and neither waits long for the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headway.core.batch import Close
from headway.core.batcher.slot import ComputeSlot
from headway.core.ports import ModelInfo, WarmRun
from tests.core.stage import pair


def test_heavy_batches_are_cut_only_while_somebody_else_uses_the_device() -> None:
    warm = [WarmRun(n, 1.0, float(n), 0.002 + 0.004 * n) for n in (1, 2, 4, 8, 16)]
    world, light, heavy = pair("1b", "2+4b", max_batch_size=16, info=ModelInfo("heavy", warm=warm))
    light.ask()
    for _ in range(20):
        heavy.ask()
    world.run()
    assert max(heavy.sizes) == 4 and heavy.batches[0].reason is Close.SLOT
    assert all(b.predicted_s <= 0.020 for b in heavy.batches)
    world.time_s += 60.0
    heavy.batches.clear()
    heavy.batcher.curve.best_rows = lambda size, cap: cap  # type: ignore[method-assign]
    for _ in range(16):
        heavy.ask()
    world.run()
    assert heavy.sizes == [16]


def test_both_get_their_turn_when_both_always_have_work() -> None:
    world, light, heavy = pair("5", "5", max_batch_size=1)
    light.batcher.sizing.rows_max = 1
    for _ in range(40):
        light.ask()
        heavy.ask()
    world.run()
    order = sorted([(b.closed_s, b.model) for s in (light, heavy) for b in s.batches])
    names = [name for _, name in order]
    assert names[:40] == ["light", "heavy"] * 20 or names[:40] == ["heavy", "light"] * 20
    assert max(b.closed_s for b in heavy.batches) <= 0.395 + 1e-9


def test_turns_are_fair_in_time_not_in_batches() -> None:
    world, light, heavy = pair("1b", "10b", max_batch_size=1)
    light.batcher.sizing.rows_max = 1
    for _ in range(400):
        light.ask()
    for _ in range(20):
        heavy.ask()
    world.run(0.2)
    assert light.executor.busy_s == pytest.approx(0.1, abs=0.011)
    assert heavy.executor.busy_s == pytest.approx(0.1, abs=0.011)
    gaps = [b.closed_s for b in heavy.batches]
    assert max(b - a for a, b in pairwise(gaps)) <= 0.010 + 0.011


def test_an_idle_model_saves_up_no_time_to_lock_the_other_out() -> None:
    world, light, heavy = pair("1b", "10b", max_batch_size=1)
    light.batcher.sizing.rows_max = 1
    for _ in range(30):
        heavy.ask()
    world.plan(0.2, lambda: [light.ask() for _ in range(200)])
    world.run(0.3)
    ran = [b for b in heavy.batches if b.closed_s > 0.2]
    assert len(ran) >= 4


def test_a_place_in_the_line_is_given_up_when_its_request_is_cancelled() -> None:
    world, a, b = pair("10", "10", max_batch_size=1)
    a.batcher.sizing.rows_max = 1
    a.ask()
    world.run(0.001)
    gone, _ = b.ask()
    world.run(0.002)
    _, answer = a.ask()
    world.run(0.003)
    b.driver.cancel(gone)
    world.run(1.0)
    assert answer.at_s == pytest.approx(0.020)


def test_a_model_whose_worker_died_does_not_block_the_other() -> None:
    world, a, b = pair("10", "10", max_batch_size=1)
    a.batcher.sizing.rows_max = 1
    a.ask()
    world.run(0.001)
    b.ask()
    world.run(0.002)
    _, answer = a.ask()
    world.run(0.003)
    b.executor.crash(0)
    world.run(1.0)
    assert answer.at_s == pytest.approx(0.020)


def test_a_model_that_decides_to_wait_lets_the_other_go_first() -> None:
    world, a, b = pair("10", "10", policy="static", batch_window_ms=500, max_batch_size=2)
    a.batcher.sizing.rows_max = 1
    a.ask()
    world.run(0.001)
    b.ask()
    gone, _ = b.ask()
    world.run(0.002)
    _, answer = a.ask()
    world.run(0.003)
    b.driver.cancel(gone)  # no longer full: it waits for its window now
    world.run(0.2)
    assert answer.at_s == pytest.approx(0.020)
    world.run()
    assert b.sizes == [1] and b.batches[0].closed_s == pytest.approx(0.500)


def test_a_crash_gives_the_device_back() -> None:
    world, a, b = pair("1000", "10", max_batch_size=1)
    a.ask()
    world.run(0.001)
    _, answer = b.ask()
    world.run(0.002)
    a.executor.crash(0)
    world.run()
    assert answer.at_s == pytest.approx(0.010)
    assert a.batcher.slot.holder is None


def test_a_turn_on_which_everyone_turned_out_late_is_passed_on() -> None:
    info = ModelInfo("heavy", warm=[WarmRun(1, 1.0, 1.0, 0.030)])
    world, a, b = pair("50", "30", policy="deadline", max_batch_size=1, info=info)
    a.ask()
    world.run(0.0)
    _, late = b.ask(deadline_s=0.040)  # it meets nobody of its own, so it may try
    world.run(0.001)
    _, answer = a.ask()
    world.run()
    assert late.result is not None and late.result.status == 429
    assert late.at_s == pytest.approx(0.050)
    assert answer.at_s == pytest.approx(0.100)
    assert a.batcher.slot.holder is None


def test_the_slot_knows_who_else_was_active_lately() -> None:
    slot = ComputeSlot()
    slot.join("a")
    assert not slot.shared
    slot.join("b")
    assert slot.shared
    slot.saw("b", 0.0)
    assert slot.contended("a", 9.0) and not slot.contended("a", 11.0)
    assert not slot.contended("b", 1.0)


def test_only_the_holder_gives_the_slot_back() -> None:
    slot = ComputeSlot()
    for name in ("a", "b"):
        slot.join(name)
    assert slot.try_take("a", 0.0)
    assert not slot.try_take("b", 1.0)
    with pytest.raises(AssertionError):
        slot.give_back("b", 1.5)
    slot.give_back("a", 1.5)
    assert slot.wanted("a") and not slot.wanted("b")
    assert not slot.try_take("a", 2.0), "b has had less"
    assert slot.try_take("b", 3.0)
    slot.give_back("b", 4.0)
    slot.withdraw("a")
    assert not slot.wanted("b")
