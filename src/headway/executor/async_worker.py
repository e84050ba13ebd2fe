"""A worker whose model awaits: batches run on one asyncio loop, streams side by side.

Knows asyncio and the runner; must not know where a process comes from.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
from functools import partial
from time import perf_counter
from typing import Any

from headway.core.request import ItemResult
from headway.executor.adapt import Served
from headway.executor.channel import FrameReader
from headway.executor.items import ItemCodec, Job, cancelled, check_results, failure
from headway.executor.model import END, ItemError
from headway.executor.runner import Out, Runner, check_step, places_of
from headway.executor.worker_io import Inbox, SocketOut


class AsyncRunner:
    """Runs batches of a model whose `predict` is a coroutine or asynchronous generator."""

    def __init__(self, served: Served, codec: ItemCodec, out: Out) -> None:
        self.served = served
        self.codec = codec
        self.out = out
        self.runner = Runner(served, codec, out)
        self.tasks: dict[tuple[int, int], asyncio.Task[Any]] = {}
        """Streams that run, by batch and item."""
        self._turn = asyncio.Lock()

    async def run(self, job: Job) -> None:
        """One batch to its end, streams included."""
        async with self._turn:  # one batch computes at a time, so that run times mean something
            streams = await self._begin(job)
        if streams:
            await asyncio.wait(streams)

    async def _begin(self, job: Job) -> list[asyncio.Task[None]]:
        if job.rows is None:
            self.runner.decode(job)
        if not job.rows:
            self.runner.fail(job, ItemError(500, "no item was decoded"))
            return []
        rows = self.codec.padded(job)
        begin = perf_counter()
        try:
            results = self.served.predict(rows)
            if hasattr(results, "__anext__"):
                return [asyncio.create_task(self._steps(job, results))]
            results = check_results(await results, len(rows))
        except (Exception, asyncio.CancelledError) as error:
            self.runner.fail(job, error, perf_counter() - begin)
            return []
        if any(hasattr(result, "__anext__") for result in results):
            return self._streams(job, results)
        plain = self.codec.is_plain(results)
        self.runner.encode_and_send(job, results, plain, perf_counter() - begin)
        return []

    def cancel(self, job: Job, index: int) -> None:
        """Nobody reads item `index` any more: its generator is closed at once."""
        task = self.tasks.get((job.ident, index))
        if task is not None:
            task.cancel()

    def _streams(self, job: Job, results: Any) -> list[asyncio.Task[None]]:
        tasks = []
        for index, item in job.failed.items():
            self.out.item_done(job, index, item)
        for index, result in zip(places_of(job), results, strict=False):
            if hasattr(result, "__anext__"):
                tasks.append(asyncio.create_task(self._one(job, index, result)))
            elif self._piece(job, index, result):
                self.out.item_done(job, index, ItemResult(200, b""))
        return tasks

    async def _one(self, job: Job, index: int, stream: Any) -> None:
        end = ItemResult(200, b"")
        alive = True
        try:
            # Registered from inside, so that only a stream that has begun is interrupted.
            task = asyncio.current_task()
            assert task is not None
            self.tasks[job.ident, index] = task
            if index in job.gone:
                raise asyncio.CancelledError
            async for piece in stream:
                alive = self._piece(job, index, piece)
                if not alive:
                    break
                await asyncio.sleep(0)  # a stream that never waits must not hold the others
        except asyncio.CancelledError:
            end = cancelled()
        except Exception as error:
            end = failure(error, "predict")
        finally:
            self.tasks.pop((job.ident, index), None)
        await _close(stream)
        if alive:
            self.out.item_done(job, index, end)

    async def _steps(self, job: Job, steps: Any) -> None:
        places = places_of(job)
        for index, item in job.failed.items():
            self.out.item_done(job, index, item)
        live = set(places)
        end = ItemResult(200, b"")
        try:
            async for entries in steps:
                check_step(entries, len(places))
                for index in sorted(live & job.gone):
                    live.discard(index)
                    self.out.item_done(job, index, cancelled())
                for row, index in enumerate(places):
                    if index in live and not self._piece(job, index, entries[row]):
                        live.discard(index)
                if not live:
                    break
                await asyncio.sleep(0)
        except Exception as error:
            end = failure(error, "predict")
        await _close(steps)
        for index in sorted(live):
            self.out.item_done(job, index, end)

    def _piece(self, job: Job, index: int, piece: Any) -> bool:
        """Send one piece; False when it was the stream's last."""
        if piece is None:
            return True
        if piece is END:
            item = ItemResult(200, b"")
        elif isinstance(piece, ItemError):
            item = failure(piece, "predict")
        else:
            try:
                body, _ = self.codec.body(piece)
            except Exception as error:
                item = failure(error, "encode")
            else:
                self.out.chunk(job, index, body)
                return True
        self.out.item_done(job, index, item)
        return False


async def _close(stream: Any) -> None:
    try:
        await stream.aclose()
    except Exception as error:
        failure(error, "closing a stream")


class AsyncWorker:
    """Serves a model from its socket on an asyncio loop."""

    def __init__(self, served: Served, reader: FrameReader, out: SocketOut) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._served = served
        self._reader = reader
        self._out = out
        self._running: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Run the model's `load`, which may be a coroutine."""
        work = self._served.load()
        if inspect.isawaitable(work):
            self._loop.run_until_complete(value_of(work))

    def predict(self, batch: list[Any]) -> object:
        """One warm-up run; of a stream, its first step."""
        return self._loop.run_until_complete(first_of(self._served.predict(batch)))

    def serve(self) -> None:
        """Until the socket closes (EOFError)."""
        codec = ItemCodec(self._served, self._served.config.padded_sizes)
        runner = AsyncRunner(self._served, codec, self._out)
        inbox = Inbox(self._reader, codec, self._out)
        inbox.on_cancel = runner.cancel
        ended = self._loop.create_future()
        readable = partial(self._readable, inbox, runner, ended)
        self._loop.add_reader(self._reader.fileno(), readable)
        self._loop.run_until_complete(ended)

    def _readable(self, inbox: Inbox, runner: AsyncRunner, ended: asyncio.Future[None]) -> None:
        try:
            inbox.handle(self._reader.read(socket.MSG_DONTWAIT))
        except BlockingIOError:
            return
        except (EOFError, OSError) as error:
            if not ended.done():
                ended.set_exception(EOFError(str(error)))
            return
        while inbox.jobs:
            job = inbox.jobs.popleft()
            inbox.current[job.ident] = job
            task = self._loop.create_task(self._serve_one(inbox, runner, job))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _serve_one(self, inbox: Inbox, runner: AsyncRunner, job: Job) -> None:
        try:
            await runner.run(job)
        except OSError:
            os._exit(0)  # nobody reads the socket any more
        finally:
            inbox.current.pop(job.ident, None)


async def value_of(work: Any) -> Any:
    """An awaitable as a coroutine."""
    return await work


async def first_of(work: Any) -> object:
    """What `predict` gives; of streams only their first step."""
    results = work if hasattr(work, "__anext__") else await work
    streams = results if isinstance(results, (list, tuple)) else [results]
    for stream in streams:
        if hasattr(stream, "__anext__"):
            await anext(stream, None)
            await stream.aclose()
    return results
