"""Time on a real loop. Intervals are a few milliseconds."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from math import inf

import pytest

from headway.server import clock as clock_module
from headway.server.clock import Heartbeat, LoopClock

pytestmark = pytest.mark.asyncio


async def wait_for(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 5)


@pytest.fixture(params=["timerfd", "loop"])
def timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "loop":
        monkeypatch.setattr(clock_module, "_libc", object())
    return str(request.param)


async def test_at_fires_once_and_not_early(timer: str) -> None:
    clock = LoopClock(asyncio.get_running_loop())
    fired: list[float] = []
    done = asyncio.Event()
    due = clock.now() + 0.003
    clock.at(due, lambda: (fired.append(clock.now()), done.set()))  # type: ignore[func-returns-value]
    await wait_for(done)
    await asyncio.sleep(0.005)
    assert len(fired) == 1
    assert fired[0] >= due
    clock.close()


async def test_a_later_at_replaces_an_earlier_one(timer: str) -> None:
    clock = LoopClock(asyncio.get_running_loop())
    fired: list[str] = []
    done = asyncio.Event()
    clock.at(clock.now() + 0.001, lambda: fired.append("first"))
    clock.at(clock.now() + 0.004, lambda: (fired.append("second"), done.set()))  # type: ignore[func-returns-value]
    await wait_for(done)
    assert fired == ["second"]
    clock.at(clock.now() + 10, lambda: fired.append("never"))
    done.clear()
    clock.at(clock.now(), lambda: (fired.append("sooner"), done.set()))  # type: ignore[func-returns-value]
    await wait_for(done)
    assert fired == ["second", "sooner"]
    clock.close()


async def test_inf_disarms(timer: str) -> None:
    clock = LoopClock(asyncio.get_running_loop())
    fired: list[int] = []
    clock.at(clock.now() + 0.002, lambda: fired.append(1))
    clock.at(inf, lambda: fired.append(2))
    await asyncio.sleep(0.006)
    assert fired == []
    clock.close()
    clock.close()


async def test_timerfd_is_finer_than_a_millisecond() -> None:
    clock = LoopClock(asyncio.get_running_loop())
    took: list[float] = []
    for _ in range(20):
        done = asyncio.Event()
        began = time.monotonic()
        clock.at(clock.now() + 0.0003, done.set)
        await wait_for(done)
        took.append(time.monotonic() - began)
    assert min(took) < 0.001
    clock.close()


async def test_soon_runs_once_after_this_turn() -> None:
    clock = LoopClock(asyncio.get_running_loop())
    order: list[str] = []
    done = asyncio.Event()
    clock.soon(lambda: (order.append("soon"), done.set()))  # type: ignore[func-returns-value]
    order.append("now")
    await wait_for(done)
    assert order == ["now", "soon"]
    clock.close()


async def test_heartbeat_counts_as_late_only_what_sockets_wait_too() -> None:
    loop = asyncio.get_running_loop()
    if not type(loop).__module__.startswith("uvloop"):
        pytest.skip("only libuv keeps its timers waiting")
    # More ready files than libuv takes in one round: it looks at its timers every 48th round only.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    ready = os.eventfd(1)
    files = [os.dup(ready) for _ in range(1100)]
    lags: list[float] = []
    timer_came = asyncio.Event()
    beat = Heartbeat(loop, 0.002, lags.append)
    begun_s = time.monotonic()
    loop.call_later(0.002, timer_came.set)
    for file in files:
        loop.add_reader(file, lambda: None)
    beat.start()
    await timer_came.wait()
    took_s = time.monotonic() - begun_s
    beat.stop()
    for file in [ready, *files]:
        loop.remove_reader(file)
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(lags) >= 3
    assert max(lags) < took_s / 2


async def test_heartbeat_measures_how_late_the_loop_is() -> None:
    lags: list[float] = []
    beat = Heartbeat(asyncio.get_running_loop(), 0.005, lags.append)
    beat.start()
    await asyncio.sleep(0.012)
    time.sleep(0.04)  # noqa: ASYNC251 - a loop that is busy is the point
    await asyncio.sleep(0.006)
    beat.stop()
    assert max(lags) > 0.02
    count = len(lags)
    await asyncio.sleep(0.012)
    assert len(lags) == count
