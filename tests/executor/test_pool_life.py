"""Workers start, hang, crash and end; the pool says so at once and fills the place again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from headway.core.config import ModelConfig
from headway.executor.pool import Pool

from .sink import APPS, Sink, answers, batch_of, pool_of, until

SRC = str(Path(__file__).parents[2] / "src")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def maps_of(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


async def test_c9_a_worker_that_never_returns_is_replaced() -> None:
    async with pool_of("Stuck") as (pool, sink):
        old = pool.pids()[0]
        pool.run(batch_of("stuck"))
        pool.run(batch_of("next"))
        pool.restart(0, "timeout", "ran longer than 1 s")
        assert sink.count("lost") == 0, "not inside the driver's own call"
        await sink.until(lambda: sink.count("lost") == 1)
        assert sink.last("lost") == ("lost", 0, "timeout", "ran longer than 1 s")
        await sink.until(lambda: sink.count("ready") == 2)
        assert not alive(old) and not sink.results
        assert await answers(pool, sink, 1) == [(200, 1)]


async def test_c10_recovers_three_times_with_growing_pauses() -> None:
    async with pool_of("Stuck") as (pool, sink):
        pauses = []
        for turn in range(3):
            pool.run(batch_of("stuck"))
            begin = time.monotonic()
            pool.restart(0, "timeout", "too long")
            await sink.until(lambda turn=turn: sink.count("ready") == turn + 2)  # type: ignore[misc]
            pauses.append(time.monotonic() - begin)
            assert await answers(pool, sink, turn) == [(200, turn)]
        assert sink.count("lost") == 3
        assert pauses[2] > 0.4


async def test_h3_a_killed_worker_is_lost_at_once_and_comes_back() -> None:
    async with pool_of("mock", workers=2) as (pool, sink):
        begin = time.monotonic()
        os.kill(pool.pids()[1], signal.SIGKILL)
        await sink.until(lambda: sink.count("lost") == 1)
        assert time.monotonic() - begin < 0.5
        lost = sink.last("lost")
        assert lost[1:3] == (1, "worker_crashed") and "SIGKILL" in lost[3]
        assert await answers(pool, sink, 1) == [(200, 1)]
        pool.run(batch_of("to nobody", worker=1))
        await sink.until(lambda: sink.count("ready") == 3)
        assert await answers(pool, sink, 2, worker=1) == [(200, 2)]


async def test_h3_what_was_answered_before_a_crash_is_heard() -> None:
    async with pool_of("mock") as (pool, sink):
        batch = batch_of("x")
        pool.run(batch)
        # The loop stands still, so that the answer and the end come together.
        time.sleep(0.05)  # noqa: ASYNC251
        os.kill(pool.pids()[0], signal.SIGKILL)
        time.sleep(0.05)  # noqa: ASYNC251
        await sink.until(lambda: sink.count("lost") == 1)
        assert batch.id in sink.results


async def test_h1_a_stopped_process_is_silent_and_a_busy_one_is_not() -> None:
    async with pool_of("Seen") as (pool, sink):
        pid = pool.pids()[0]
        await answers(pool, sink, {"sleep": 1.0})
        assert pool.silent_s(0) < 0.8, "busy, but its heart beats"
        os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        await until(lambda: pool.silent_s(0) > 1.2)
        assert time.monotonic() - begin < 2.0
        pool.restart(0, "worker_stalled", "stopped")
        await sink.until(lambda: sink.count("ready") == 2)
        assert not alive(pid)


async def test_h1_a_worker_frozen_without_work_is_replaced() -> None:
    async with pool_of("mock", run_s_max=0.6) as (pool, sink):
        pid = pool.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        await sink.until(lambda: sink.count("ready") == 2)
        assert sink.last("lost")[2] == "worker_stalled" and "run_s_max" in sink.last("lost")[3]
        assert not alive(pid)
        assert await answers(pool, sink, 1) == [(200, 1)]


async def test_h1_no_worker_is_blamed_while_the_server_itself_stood_still() -> None:
    async with pool_of("mock", run_s_max=0.6) as (pool, sink):
        os.kill(pool.pids()[0], signal.SIGSTOP)
        time.sleep(1.2)  # noqa: ASYNC251
        os.kill(pool.pids()[0], signal.SIGCONT)
        await asyncio.sleep(0.4)
        assert sink.count("lost") == 0
        assert await answers(pool, sink, 1) == [(200, 1)]


async def test_h4_phases_come_before_ready() -> None:
    async with pool_of("Warm") as (_, sink):
        kinds = [event[2] if event[0] == "phase" else event[0] for event in sink.events]
        assert list(dict.fromkeys(kinds)) == ["import", "load", "warmup", "ready"]
        assert kinds[-1] == "ready"


async def test_h5_a_load_that_fails_is_given_up_with_its_message() -> None:
    heard: list[str] = []
    config = ModelConfig(path=f"{APPS}:BadLoad", start_failures_max=3)
    pool, sink = Pool(config, on_failed=heard.append), Sink()
    pool.start(sink)
    await sink.until(lambda: pool.failed is not None, within_s=5.0)
    assert heard == ["RuntimeError: weights are missing"]
    assert sink.count("lost") == 3 and sink.count("ready") == 0
    assert sink.last("lost")[2:] == ("worker_start_failed", "RuntimeError: weights are missing")
    await pool.close()


async def test_h10_warm_up_tries_every_size_and_length_and_reports_them() -> None:
    async with pool_of("Warm") as (_, sink):
        info = sink.last("ready")[2]
        assert {run.rows for run in info.warm} == {1, 2, 4, 8}
        assert {run.longest for run in info.warm} == {10.0, 40.0, 300.0}
        assert all(run.total == run.rows * run.longest for run in info.warm)
        assert info.warmup_s > 0
        details = [event[4] for event in sink.events if event[0] == "phase"]
        assert "batch size 8" in details


async def test_h10_no_request_meets_a_size_that_was_not_warmed() -> None:
    async with pool_of("Compiles") as (pool, sink):
        for rows in (1, 2, 4, 8, 2):
            got = await answers(pool, sink, *["x" * 10] * rows)
            assert got == [(200, "warm")] * rows


async def test_h13_workers_die_with_their_parent() -> None:
    script = (
        "import asyncio, sys; sys.path[:0] = [sys.argv[1], sys.argv[2]]\n"
        "from tests.executor.sink import *\n"
        "async def main():\n"
        "    async with pool_of('Stuck', workers=2) as (pool, sink):\n"
        "        pool.run(batch_of('stuck'))\n"
        "        await answers(pool, sink, 1, worker=1)\n"
        "        print(*pool.pids(), flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(SRC).parent)
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script, SRC, root], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        line = await asyncio.to_thread(parent.stdout.readline)
        pids = [int(word) for word in line.split()]
        assert len(pids) == 2 and all(map(alive, pids))
        parent.kill()
        for pid in pids:
            await until(lambda pid=pid: not alive(pid))  # type: ignore[misc]


async def test_h13_what_a_worker_started_goes_with_it() -> None:
    async with pool_of("Forks") as (pool, sink):
        [(_, (first, second))] = await answers(pool, sink, 1)
        assert alive(first) and alive(second)
        os.kill(first, signal.SIGTERM)
        await until(lambda: not alive(first))
        os.kill(pool.pids()[0], signal.SIGKILL)
        await sink.until(lambda: sink.count("lost") == 1)
        await until(lambda: not alive(second))


async def test_h14_nothing_is_left_behind() -> None:
    files = len(names("/proc/self/fd"))
    for turn in range(5):
        async with pool_of("mock") as (pool, sink):
            await answers(pool, sink, b'"' + b"x" * 300_000 + b'"')
            if turn % 2:
                pool.run(batch_of(b'"' + b"y" * 300_000 + b'"'))
                os.kill(pool.pids()[0], signal.SIGKILL)
            else:
                assert "/dev/shm" not in maps_of(pool.pids()[0]), (
                    "what has a name there can be left there"
                )
            pids = pool.pids()
        assert not any(map(alive, pids))
    assert not [name for name in names("/dev/shm") if "headway" in name]
    assert len(names("/proc/self/fd")) <= files


async def test_signals_that_ask_to_end_are_for_the_parent() -> None:
    async with pool_of("mock") as (pool, sink):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pool.pids()[0], number)
        assert await answers(pool, sink, 1) == [(200, 1)]
        assert os.getpgid(pool.pids()[0]) != os.getpgid(0)


async def test_a_busy_worker_does_not_hold_close_up() -> None:
    begin = time.monotonic()
    async with pool_of("Stuck") as (pool, _):
        pool.run(batch_of("stuck"))
        pid = pool.pids()[0]
    assert time.monotonic() - begin < 2.0 and not alive(pid)
