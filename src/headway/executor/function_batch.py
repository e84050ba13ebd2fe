"""`@headway.batch`: batching inside somebody's own asyncio application, without our server.

Knows asyncio and the driver; must not know bytes: items and results stay Python objects.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import update_wrapper
from math import inf
from time import perf_counter
from typing import Any, Generic, TypeVar, overload

from headway.core.batch import Batch, BatchResult, Form
from headway.core.batcher.batcher import Batcher
from headway.core.batcher.driver import BatchDriver
from headway.core.config import Config, ModelConfig, ServerConfig, validate
from headway.core.errors import UserError
from headway.core.ports import ModelInfo, WorkerSink
from headway.core.request import ItemResult, Request
from headway.executor.items import check_results

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741

_OK = ItemResult(200, b"")
_PROCESS_ONLY = frozenset(
    {
        "device",
        "pad_batches",
        "padded_sizes",
        "path",
        "queue_bytes_max",
        "restart_backoff_s_max",
        "slot_time_ms_max",
        "start_failures_max",
        "stream_gap_s_max",
        "threads",
        "warmup_s_max",
    }
)
"""Settings of models that would do nothing for a function in this process."""


class LoopScheduler:
    """Time of an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.now = loop.time

    def soon(self, callback: Callable[[], None]) -> None:
        """Call in the next turn."""
        self._loop.call_soon(callback)

    def at(self, when_s: float, callback: Callable[[], None]) -> None:
        """Arm the one timer, replacing an earlier one; `inf` disarms it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when_s == inf else self._loop.call_at(when_s, callback)


class Call:
    """One item and who awaits its result."""

    __slots__ = ("future", "item", "outcome")

    def __init__(self, item: Any, future: asyncio.Future[Any]) -> None:
        self.item = item
        self.future = future
        self.outcome: Any = None
        """The result, or the exception of this item, once its batch ran."""

    def chunk(self, body: bytes) -> None:
        """Functions do not stream."""

    def done(self, result: ItemResult) -> None:
        """The batch ran, or the driver turned the item away."""
        if self.future.done():
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        elif result.status == 200:
            self.future.set_result(self.outcome)
        else:
            self.future.set_exception(
                UserError(
                    result.status,
                    result.code,
                    result.body.decode(),
                    hint=result.hint,
                    retry_after_s=result.retry_after_s,
                )
            )


class FunctionExecutor:
    """The executor's port over a function of a list. Batches run one after another per worker."""

    def __init__(self, function: Callable[[list[Any]], Any], info: ModelInfo, workers: int) -> None:
        self.workers = workers
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._info = info
        self._next: list[deque[Batch]] = [deque() for _ in range(workers)]
        self._tasks: list[asyncio.Task[None] | None] = [None] * workers
        self._gone: set[tuple[int, int]] = set()
        self._sink: WorkerSink
        self._loop: asyncio.AbstractEventLoop

    def start(self, sink: WorkerSink) -> None:
        """Functions are ready at once."""
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        for worker in range(self.workers):
            sink.worker_ready(worker, self._info)

    def run(self, batch: Batch) -> None:
        """Run it when what this worker already has is done."""
        self._next[batch.worker].append(batch)
        if self._tasks[batch.worker] is None:
            self._tasks[batch.worker] = self._loop.create_task(self._work(batch.worker))

    async def _work(self, worker: int) -> None:
        mine = asyncio.current_task()
        waiting = self._next[worker]
        while waiting and self._tasks[worker] is mine:
            batch = waiting.popleft()
            begin = perf_counter()
            items = await self._outcomes(batch)
            if self._tasks[worker] is mine:
                result = BatchResult(items, perf_counter() - begin)
                self._sink.batch_done(batch.id, result)
        if self._tasks[worker] is mine:
            self._tasks[worker] = None

    async def _outcomes(self, batch: Batch) -> list[ItemResult]:
        calls: list[Any] = [r.reply for r in batch.requests]
        live = [c for i, c in enumerate(calls) if (batch.id, i) not in self._gone]
        self._gone = {key for key in self._gone if key[0] != batch.id}
        if not live:
            return [ItemResult(499, b"", code="cancelled") for _ in calls]
        items = [call.item for call in live]
        try:
            if self._is_async:
                results = await self._function(items)
            else:
                results = await asyncio.to_thread(self._function, items)
            outcomes = list(check_results(results, len(items)))
        except Exception as error:
            outcomes = [error] * len(items)
        for call, outcome in zip(live, outcomes, strict=True):
            call.outcome = outcome
        return [
            ItemResult(500, b"", code="model_error") if isinstance(c.outcome, Exception) else _OK
            for c in calls
        ]

    def hear(self) -> None:
        """Answers come through the event loop only."""

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Leave the item out if its batch has not begun."""
        if any(batch.id == batch_id for batch in self._next[worker]):
            self._gone.add((batch_id, index))

    def measure(self, requests: Sequence[Request]) -> None:
        """Sizes are known when items are given."""

    def restart(self, worker: int, code: str, message: str) -> None:
        """Stop waiting for what runs (a thread runs on, its result is dropped)."""
        task, self._tasks[worker] = self._tasks[worker], None
        self._next[worker].clear()
        if task is not None:
            task.cancel()
        self._loop.call_soon(self._sink.worker_lost, worker, code, message)
        self._loop.call_soon(self._sink.worker_ready, worker, self._info)

    async def close(self) -> None:
        """End what runs."""
        for task in self._tasks:
            if task is not None:
                task.cancel()


class Batched(Generic[I, O]):
    """A function of a list, called with one item at a time: `await batched(item)`."""

    def __init__(
        self,
        function: Callable[[list[I]], Any],
        config: ModelConfig,
        *,
        size: Callable[[I], float] | None = None,
        form: Form = "list",
    ) -> None:
        self.function = function
        self.config = config
        self._size = size
        self._info = ModelInfo(name=config.name, form=form, max_batch_size=config.max_batch_size)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: BatchDriver
        self._ids = 0
        update_wrapper(self, function)

    def driver(self) -> BatchDriver:
        """The driver on the running event loop (made at the first call on it)."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            executor = FunctionExecutor(self.function, self._info, self.config.workers)
            self._driver = BatchDriver(Batcher(self.config), executor, LoopScheduler(loop))
            executor.start(self._driver)
        return self._driver

    async def __call__(
        self, item: I, *, deadline_s: float = inf, priority: int = 0, tenant: str = ""
    ) -> O:
        """The result for one item; runs in a batch with what else waits.

        `deadline_s` is the time left. Raises what the function raised (for its batch) or returned
        (for this item), and UserError where the item was refused or took too long.
        """
        driver = self.driver()
        loop = self._loop
        assert loop is not None
        self._ids += 1
        future: asyncio.Future[O] = loop.create_future()
        now = loop.time()
        request = Request(
            self._ids,
            b"",
            now,
            Call(item, future),
            size=1.0 if self._size is None else float(self._size(item)),
            priority=priority,
            tenant=tenant,
            deadline_s=now + deadline_s,
        )
        driver.submit(request)
        try:
            return await future
        except asyncio.CancelledError:
            driver.cancel(request)
            raise


@overload
def batch(function: Callable[[list[I]], Awaitable[Sequence[O]]], /) -> Batched[I, O]: ...


@overload
def batch(function: Callable[[list[I]], Sequence[O]], /) -> Batched[I, O]: ...


@overload
def batch(
    *, size: Callable[[Any], float] | None = None, form: Form = "list", **settings: Any
) -> Callable[[Callable[[list[Any]], Any]], Batched[Any, Any]]: ...


def batch(
    function: Callable[[list[Any]], Any] | None = None,
    /,
    *,
    size: Callable[[Any], float] | None = None,
    form: Form = "list",
    **settings: Any,
) -> Any:
    """Decorate a function of a list (async, or sync: then it runs in a thread).

    `size` gives an item's size and `form` says how sizes add up; every other setting is one of
    `ModelConfig` (`max_batch_size`, `policy`, `objective`, `queue_requests_max`, ...).
    """

    def decorate(inner: Callable[[list[Any]], Any]) -> Batched[Any, Any]:
        for idle in sorted(_PROCESS_ONLY.intersection(settings)):
            raise UserError(
                400,
                "bad_config",
                f"@headway.batch: {idle} does nothing here",
                hint="it is for models in worker processes; remove it",
                param=idle,
            )
        name = settings.pop("name", getattr(inner, "__name__", "function"))
        try:
            config = ModelConfig(name=name, **settings)
        except TypeError as error:
            raise UserError(
                400, "bad_config", f"@headway.batch: {error}", hint="see the configuration page"
            ) from error
        validate(Config(ServerConfig(), (config,)))
        return Batched(inner, config, size=size, form=form)

    return decorate if function is None else decorate(function)
