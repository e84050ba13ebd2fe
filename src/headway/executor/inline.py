"""The executor's port in this process: for tests, notebooks and models that need no process.

Runs a model on a thread of its own, on the event loop when it awaits, or directly where told to.
Knows asyncio and the runner; must not know frames or processes. What runs on a thread cannot be
ended: `restart` leaves it behind and begins another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from headway.core.batch import Batch, BatchResult
from headway.core.config import ModelConfig
from headway.core.ports import WorkerSink
from headway.core.request import ItemResult, Request
from headway.executor.adapt import Served, made
from headway.executor.async_worker import AsyncRunner, first_of, value_of
from headway.executor.items import ItemCodec, Job
from headway.executor.runner import Runner, Stream
from headway.executor.warm import warm_up
from headway.executor.worker import drop_gone, first_steps


class SinkOut:
    """Answers straight to the sink, through `call` where another thread makes them."""

    def __init__(self, sink: WorkerSink, call: Callable[..., object]) -> None:
        self._sink = sink
        self._call = call
        self.open = True
        """Turned off when what runs behind it was given up."""

    def done(
        self,
        job: Job,
        bodies: list[bytes],
        items: list[ItemResult] | None,
        times: tuple[float, float, float],
    ) -> None:
        """A whole batch."""
        if items is None:
            items = [ItemResult(200, body) for body in bodies]
        self.tell(self._sink.batch_done, job.ident, BatchResult(items, *times))

    def chunk(self, job: Job, index: int, body: bytes) -> None:
        """One piece of a stream."""
        self.tell(self._sink.chunk, job.ident, index, body)

    def item_done(self, job: Job, index: int, item: ItemResult) -> None:
        """The end of a stream."""
        self.tell(self._sink.item_done, job.ident, index, item)

    def tell(self, method: Callable[..., object], *args: object) -> None:
        """Call a method of the sink on its thread, unless given up meanwhile."""
        if self.open:
            self._call(self._said, method, *args)

    def _said(self, method: Callable[..., object], *args: object) -> None:
        if self.open:
            method(*args)


class InlineExecutor:
    """One model in this process. `thread=False` runs it on the event loop, which then waits."""

    workers = 1

    def __init__(
        self, model: Any, config: ModelConfig | None = None, *, thread: bool = True
    ) -> None:
        self.served = Served(made(model), config or ModelConfig())
        self.failed: str | None = None
        self._thread = thread and not self.served.is_async
        self._jobs: dict[int, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sink: WorkerSink
        self._loop: asyncio.AbstractEventLoop
        self._codec: ItemCodec
        self._out: SinkOut
        self._inbox: SimpleQueue[Job | None]
        self._async: AsyncRunner

    def start(self, sink: WorkerSink) -> None:
        """Load the model; `worker_ready` follows. Call on the event loop."""
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._begin()

    def _begin(self) -> None:
        self._out = SinkOut(
            self._sink, self._loop.call_soon_threadsafe if self._thread else self._loop.call_soon
        )
        if self._thread:
            self._inbox = SimpleQueue()
            work = partial(self._serve, self._inbox, self._out)
            threading.Thread(target=work, name="headway-inline", daemon=True).start()
        else:
            self._keep(self._load_here())

    def run(self, batch: Batch) -> None:
        """Run a batch after those already given."""
        requests = batch.requests
        job = Job(batch.id, [r.payload for r in requests], batch.padded_rows)
        codecs = bytes([r.codec for r in requests])
        if codecs.count(0) != len(codecs):
            job.codecs, job.types = codecs, [r.content_type for r in requests]
        self._jobs[batch.id] = job
        if self._thread:
            self._inbox.put(job)
        elif self.served.is_async:
            self._keep(self._run_async(job))
        else:
            self._loop.call_soon(self._run_here, job)

    def hear(self) -> None:
        """Answers come through the event loop only."""

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Skip an item that has not begun, or close its stream."""
        job = self._jobs.get(batch_id)
        if job is not None:
            job.gone.add(index)
            if self.served.is_async:
                self._async.cancel(job, index)

    def measure(self, requests: Sequence[Request]) -> None:
        """Sizes, in the next turn."""
        sizes: list[float] = []
        for r in requests:
            try:
                sizes.append(self._codec.item(r.payload, r.codec, r.content_type)[1])
            except Exception:
                sizes.append(0.0)  # it fails again, and alone, when its batch is decoded
        self._loop.call_soon(self._sink.measured, [r.id for r in requests], sizes)

    def restart(self, worker: int, code: str, message: str) -> None:
        """Leave what runs behind and begin again."""
        self._out.open = False
        self._jobs.clear()
        for task in self._tasks:
            task.cancel()
        if self._thread:
            self._inbox.put(None)
        self._loop.call_soon(self._sink.worker_lost, worker, code, message)
        self._loop.call_soon(self._begin)

    async def close(self) -> None:
        """Take no more; a thread ends after the batch it runs."""
        self._out.open = False
        if self._thread:
            self._inbox.put(None)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def silent_s(self, worker: int) -> float:
        """It shares our process: while we run, so does it."""
        return 0.0

    def _keep(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- on the event loop --------------------------------------------------------------------

    async def _load_here(self) -> None:
        out, begin = self._out, perf_counter()
        try:
            work = self.served.load()
            if hasattr(work, "__await__"):
                await value_of(work)
            load_s = perf_counter() - begin
            self._codec = ItemCodec(self.served, self.served.config.padded_sizes)
            if self.served.is_async:
                self._async = AsyncRunner(self.served, self._codec, out)
                info = self.served.info  # warm-up runs would need this loop, which is in use
                if self.served.warmup is not None:
                    for item in list(self.served.warmup())[:1]:
                        await first_of(self.served.predict([item]))
            else:
                info = warm_up(self.served, self._predict, self._report)
        except Exception as error:
            self._fail(error)
            return
        info.load_s = load_s
        if out.open:
            self._sink.worker_ready(0, info)

    def _fail(self, error: Exception) -> None:
        self.failed = f"{type(error).__name__}: {error}"
        self._sink.worker_lost(0, "worker_start_failed", self.failed)

    def _report(self, share: float, detail: str) -> None:
        self._out.tell(self._sink.worker_phase, 0, "warmup", share, detail)

    def _predict(self, batch: list[Any]) -> object:
        return first_steps(self.served.predict(batch))

    async def _run_async(self, job: Job) -> None:
        try:
            await self._async.run(job)
        finally:
            self._jobs.pop(job.ident, None)

    def _run_here(self, job: Job) -> None:
        stream = Runner(self.served, self._codec, self._out).begin(job)
        if stream is None:
            self._jobs.pop(job.ident, None)
        else:
            self._step_here(stream)

    def _step_here(self, stream: Stream) -> None:
        if stream.step() and self._out.open:
            self._loop.call_soon(self._step_here, stream)
        else:
            self._jobs.pop(stream.job.ident, None)

    # -- on the thread ------------------------------------------------------------------------

    def _serve(self, inbox: SimpleQueue[Job | None], out: SinkOut) -> None:
        begin = perf_counter()
        try:
            self.served.load()
            load_s = perf_counter() - begin
            self._codec = ItemCodec(self.served, self.served.config.padded_sizes)
            info = warm_up(self.served, self._predict, self._report)
        except Exception as error:
            self._loop.call_soon_threadsafe(self._fail, error)
            return
        info.load_s = load_s
        out.tell(self._sink.worker_ready, 0, info)
        runner = Runner(self.served, self._codec, out)
        try:
            self._serve_jobs(inbox, runner)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _serve_jobs(self, inbox: SimpleQueue[Job | None], runner: Runner) -> None:
        streams: list[Stream] = []
        while True:
            try:
                job = inbox.get(block=not streams)
            except Empty:
                pass
            else:
                if job is None:
                    return
                drop_gone(job)
                stream = runner.begin(job)
                if stream is None:
                    self._jobs.pop(job.ident, None)
                else:
                    streams.append(stream)
            for stream in streams[:]:
                if not stream.step():
                    streams.remove(stream)
                    self._jobs.pop(stream.job.ident, None)
