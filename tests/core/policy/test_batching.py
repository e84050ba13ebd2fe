"""When a batch goes, as a function of what is seen and the time."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.batch import Close
from headway.core.config import ModelConfig
from headway.core.policy.batching import Dispatch, View, Wait
from headway.core.policy.catalog import BATCHING


def decide(policy: str, now: float, config: dict | None = None, **view: object) -> object:
    view.setdefault("cap_rows", 8)
    return BATCHING[policy](ModelConfig(**(config or {}))).decide(View(**view), now)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["greedy", "deadline", "static"])
def test_a_full_batch_goes_to_an_idle_worker_at_once(policy: str) -> None:
    full = decide(policy, 5.0, waiting_rows=9, cap_reason=Close.BEST_SIZE)
    assert full == Dispatch(8, Close.BEST_SIZE)


@pytest.mark.parametrize("policy", ["greedy", "deadline", "static"])
def test_a_full_batch_leaves_for_a_busy_worker_just_before_it_is_free(policy: str) -> None:
    view = {"waiting_rows": 8, "free_s": 10.0, "lead_s": 0.1, "run_s": 2.0}
    assert decide(policy, 9.0, **view) == Wait(pytest.approx(9.7))
    assert decide(policy, 9.7, **view) == Dispatch(8, Close.FULL)
    assert decide(policy, 9.0, **{**view, "free_s": inf}) == Wait(inf)


@pytest.mark.parametrize("policy", ["greedy", "deadline"])
def test_a_partial_batch_goes_when_idle(policy: str) -> None:
    assert decide(policy, 5.0, waiting_rows=1) == Dispatch(8, Close.IDLE)


def test_a_partial_batch_waits_for_a_busy_worker() -> None:
    busy = {"waiting_rows": 1, "free_s": 10.0, "lead_s": 0.5}
    assert decide("greedy", 9.0, return_share=0.0, **busy) == Wait(9.5)
    assert decide("greedy", 9.6, return_share=0.0, **busy) == Dispatch(8, Close.IDLE)
    loops = {**busy, "answered_rows": 8}
    assert decide("greedy", 9.0, return_share=1.0, **loops) == Wait(inf), "until the reply"
    few = {**busy, "waiting_rows": 8, "cap_rows": 9, "answered_rows": 8}
    assert decide("greedy", 9.0, return_share=0.2, **few) == Wait(9.5), "too few come back"
    assert decide("greedy", 9.0, {"hold": False}, return_share=1.0, **busy) == Wait(9.5)
    assert decide("greedy", 9.0, draining=True, **busy) == Wait(9.5)


def test_where_the_way_is_longer_than_the_work_two_equal_batches_take_turns() -> None:
    short = {"free_s": 10.0, "run_s": 20e-6, "lead_s": 300e-6, "running_rows": 4}
    assert decide("greedy", 9.9, waiting_rows=3, **short) == Wait(inf)
    assert decide("greedy", 9.9, waiting_rows=4, **short) == Dispatch(8, Close.IDLE)


def test_after_a_reply_a_partial_batch_is_held_for_those_who_come_back() -> None:
    held = {
        "waiting_rows": 2, "finished_s": 10.0, "run_s": 1.0, "answered_rows": 8,
        "return_share": 1.0,
    }  # fmt: skip
    assert decide("greedy", 10.05, returned_rows=2, **held) == Wait(pytest.approx(10.1))
    assert decide("greedy", 10.05, returned_rows=8, **held) == Dispatch(8, Close.IDLE)
    assert decide("greedy", 10.2, returned_rows=2, **held) == Dispatch(8, Close.HOLD)
    assert decide("greedy", 10.05, draining=True, **held) == Dispatch(8, Close.DRAIN)
    assert decide("greedy", 10.05, {"hold": False}, **held) == Dispatch(8, Close.IDLE)
    short = {**held, "run_s": 50e-6}
    assert decide("greedy", 10.0, **short) == Dispatch(8, Close.IDLE)


def test_no_hold_outlasts_the_slack() -> None:
    held = {
        "waiting_rows": 2, "finished_s": 10.0, "run_s": 1.0, "answered_rows": 8,
        "return_share": 1.0,
    }  # fmt: skip
    assert decide("deadline", 10.01, latest_s=10.05, **held) == Wait(10.05)
    assert decide("deadline", 10.05, latest_s=10.05, **held) == Dispatch(8, Close.DEADLINE)
    assert decide("deadline", 10.01, latest_s=99.0, **held) == Wait(pytest.approx(10.1))
    assert decide("deadline", 10.01, latest_s=10.0, free_s=11.0, **held) == Wait(inf)


def test_a_static_batch_waits_for_its_window_or_its_size() -> None:
    config = {"policy": "static", "batch_window_ms": 200.0}
    assert decide("static", 1.1, config, waiting_rows=1, oldest_s=1.0) == Wait(1.2)
    assert decide("static", 1.2, config, waiting_rows=1, oldest_s=1.0) == Dispatch(8, Close.WINDOW)
    busy = {"waiting_rows": 1, "oldest_s": 1.0, "free_s": 5.0, "lead_s": 1.0}
    assert decide("static", 2.0, config, **busy) == Wait(4.0)
    assert decide("static", 4.0, config, **busy) == Dispatch(8, Close.WINDOW)
    drain = decide("static", 1.1, config, waiting_rows=1, oldest_s=1.0, draining=True)
    assert drain == Dispatch(8, Close.DRAIN)


def test_only_a_static_policy_that_was_told_to_pads() -> None:
    assert BATCHING["static"](ModelConfig(policy="static", pad_batches=True)).pads
    assert not BATCHING["static"](ModelConfig()).pads
    assert not BATCHING["greedy"](ModelConfig()).pads
    assert {name: p(ModelConfig()).name for name, p in BATCHING.items()} == {
        name: name for name in BATCHING
    }
