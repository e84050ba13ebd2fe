"""`@headway.batch` inside an asyncio application."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import headway
from headway.core.errors import UserError


async def test_concurrent_calls_share_batches() -> None:
    sizes: list[int] = []

    @headway.batch(max_batch_size=8)
    async def double(items: list[int]) -> list[int]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return [2 * item for item in items]

    assert await asyncio.gather(*map(double, range(20))) == [2 * n for n in range(20)]
    assert max(sizes) == 8 and sum(sizes) == 20
    assert double.__name__ == "double"


async def test_a_sync_function_leaves_the_loop_free() -> None:
    @headway.batch
    def where(items: list[int]) -> list[int]:
        return [threading.get_ident()] * len(items)

    assert await where(1) != threading.get_ident()


async def test_b9_one_call_fails_alone_and_b10_a_batch_together() -> None:
    @headway.batch
    async def picky(items: list[int]) -> list[Any]:
        if 0 in items:
            raise RuntimeError("zero")
        return [ValueError("three") if item == 3 else item for item in items]

    got = await asyncio.gather(picky(1), picky(3), return_exceptions=True)
    assert got[0] == 1 and isinstance(got[1], ValueError)
    got = await asyncio.gather(picky(0), picky(1), return_exceptions=True)
    assert [str(error) for error in got] == ["zero", "zero"]
    assert await picky(2) == 2


async def test_b13_b14_wrong_results_are_named() -> None:
    @headway.batch
    async def wrong(items: list[str]) -> Any:
        return "Hello" if items[0] == "text" else [1, 2, 3]

    with pytest.raises(headway.ItemError, match="str"):
        await wrong("text")
    with pytest.raises(headway.ItemError, match=r"3 .* 1 "):
        await wrong("count")


async def test_c4_a_cancelled_call_never_runs() -> None:
    seen: list[str] = []
    begun, gate = asyncio.Event(), asyncio.Event()

    @headway.batch(max_batch_size=1)
    async def slow(items: list[str]) -> list[str]:
        seen.extend(items)
        begun.set()
        await gate.wait()
        return items

    calls = [asyncio.ensure_future(slow(name)) for name in ("a", "b", "c", "d")]
    await begun.wait()
    calls[1].cancel()
    calls[3].cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await calls[0] == "a" and await calls[2] == "c"
    assert seen == ["a", "c"]


async def test_too_many_calls_are_refused_with_a_hint() -> None:
    gate = asyncio.Event()

    @headway.batch(max_batch_size=1, queue_requests_max=1)
    async def slow(items: list[int]) -> list[int]:
        await gate.wait()
        return items

    calls = [asyncio.ensure_future(slow(n)) for n in range(8)]
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    error = done.pop().exception()
    assert isinstance(error, UserError) and error.status == 429
    gate.set()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_b2_a_setting_that_does_nothing_is_an_error() -> None:
    with pytest.raises(UserError):
        headway.batch(batch_window_ms=5.0)(lambda items: items)
    with pytest.raises(UserError, match="threads does nothing here"):
        headway.batch(threads=4)(lambda items: items)
    with pytest.raises(UserError, match="colour"):
        headway.batch(colour=1)(lambda items: items)


def test_one_function_serves_several_loops() -> None:
    @headway.batch
    async def same(items: list[int]) -> list[int]:
        return items

    async def call(n: int) -> int:
        return await same(n)

    assert [asyncio.run(call(1)), asyncio.run(call(2))] == [1, 2]
