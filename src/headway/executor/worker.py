"""A worker process: loads one model, then serves batches from its socket until it closes.

Run as `python -m headway.executor.worker SOCKET_FD BEAT_FD PARENT_PID`. Knows the channel, the
runner and the process it lives in; must not know requests, deadlines or other workers.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import mmap
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol

import msgspec

from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.executor import channel
from headway.executor.adapt import Served, load_model
from headway.executor.channel import FrameReader
from headway.executor.items import ItemCodec, Job, cancelled
from headway.executor.runner import Runner, Stream
from headway.executor.warm import warm_up
from headway.executor.worker_io import Inbox, SocketOut

BEAT_S = 0.25
"""How often a worker shows that its process runs."""

SWITCH_S = 0.0005
"""How long one thread of a worker may keep Python to itself while another waits."""

_PR_SET_PDEATHSIG = 1


class Worker:
    """Serves a model in one thread, or with decode and encode in threads of their own."""

    def __init__(self, served: Served, reader: FrameReader, out: SocketOut) -> None:
        self._served = served
        self._reader = reader
        self._out = out
        self._streams: list[Stream] = []

    def load(self) -> None:
        """Run the model's `load`."""
        self._served.load()

    def predict(self, batch: list[Any]) -> object:
        """One warm-up run; of a stream, its first step."""
        return first_steps(self._served.predict(batch))

    def serve(self) -> None:
        """Until the socket closes (EOFError)."""
        served = self._served
        codec = ItemCodec(served, served.config.padded_sizes)
        runner = Runner(served, codec, self._out)
        inbox = Inbox(self._reader, codec, self._out)
        take: Callable[[bool], Job | None] = inbox.take
        if served.encode is not None:
            encode_behind(runner)
        ahead = served.decode is not None or served.measure is not None
        if ahead:
            take = read_ahead(inbox, runner)
        if ahead or served.encode is not None:
            # Python's own 5 ms would keep finished answers waiting behind the next batch.
            sys.setswitchinterval(SWITCH_S)
        while True:
            job = take(not self._streams)
            if job is not None:
                if ahead:
                    drop_gone(job)
                stream = runner.begin(job)
                if stream is None:
                    inbox.current.pop(job.ident, None)
                else:
                    inbox.current[job.ident] = job
                    self._streams.append(stream)
            if self._streams:
                self._step(inbox)

    def _step(self, inbox: Inbox) -> None:
        for stream in self._streams[:]:
            if not stream.step():
                self._streams.remove(stream)
                inbox.current.pop(stream.job.ident, None)


def first_steps(results: Any) -> object:
    """What `predict` gave; streams are advanced once and closed."""
    for stream in results if isinstance(results, (list, tuple)) else [results]:
        if hasattr(stream, "__next__"):
            next(stream, None)
            stream.close()
    return results


def read_ahead(inbox: Inbox, runner: Runner) -> Callable[[bool], Job | None]:
    """Read and decode the next batch in a thread while the current one runs; how to take it."""
    ready: SimpleQueue[Job] = SimpleQueue()

    def read() -> None:
        try:
            while True:
                inbox.handle(inbox.reader.read())
                while inbox.jobs:
                    job = inbox.jobs[0]
                    runner.decode(job)
                    # Known as current before it leaves the queue: a cancel always finds it.
                    inbox.current[job.ident] = job
                    inbox.jobs.popleft()
                    ready.put(job)
        except BaseException as error:
            end_with(error)

    def take(block: bool) -> Job | None:
        return None if not block and ready.empty() else ready.get()

    threading.Thread(target=read, name="headway-read", daemon=True).start()
    return take


def end_with(error: BaseException) -> None:
    """End the process from a thread of its own: quietly where the parent hung up."""
    if isinstance(error, (EOFError, OSError)):
        os._exit(0)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.stderr.flush()
    os._exit(1)


def encode_behind(runner: Runner) -> None:
    """Encode and send in a thread while the next batch runs."""
    waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def send() -> None:
        try:
            while True:
                waiting.get()()
        except BaseException as error:
            end_with(error)

    runner.finish = waiting.put
    threading.Thread(target=send, name="headway-encode", daemon=True).start()


def drop_gone(job: Job) -> None:
    """Take rows out that were decoded before their reader left."""
    if not job.gone or not job.rows or job.items:
        return
    live = list(range(len(job.payloads))) if job.simple else job.live
    kept = [(i, row) for i, row in zip(live, job.rows, strict=True) if i not in job.gone]
    job.live = [i for i, _ in kept]
    job.rows = [row for _, row in kept]
    job.counts = [1] * len(kept)
    job.simple = False
    for index in set(live) & job.gone:
        job.failed[index] = cancelled()


def beat(fd: int, parent: int) -> None:
    """Count up in shared memory while this process runs, and end with the parent."""
    memory = mmap.mmap(fd, mmap.PAGESIZE)
    os.close(fd)
    pause = threading.Event()
    count = 0
    while True:
        count += 1
        struct.pack_into("<Q", memory, 0, count)
        if os.getppid() != parent:
            os._exit(0)
        pause.wait(BEAT_S)


class Serving(Protocol):
    """What `start` makes: this module's `Worker`, or the asynchronous one."""

    def load(self) -> None:
        """Run the model's `load`."""

    def predict(self, batch: list[Any]) -> object:
        """One warm-up run."""

    def serve(self) -> None:
        """Until the socket closes."""


def leave_signals_to_parent() -> None:
    """Live through SIGINT and SIGTERM: the parent drains first, then hangs up.

    A terminal or a service's supervisor may send them to every process. What the model itself has
    forked obeys them as usual.
    """
    worker = os.getpid()

    def ignore(number: int, frame: object) -> None:
        if os.getpid() != worker:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ignore)


def start(config: ModelConfig, reader: FrameReader, out: SocketOut) -> Serving:
    """Import, load and warm the model, saying so; what then serves it."""
    out.say(channel.PHASE, ("import", 0.0, config.path))
    served = load_model(config.path, config)
    out.say(channel.PHASE, ("load", 0.0, ""))
    begin = perf_counter()
    worker: Serving
    if served.is_async:
        # asyncio takes tens of milliseconds to import; only models that await pay for it.
        module = importlib.import_module("headway.executor.async_worker")
        worker = module.AsyncWorker(served, reader, out)
    else:
        worker = Worker(served, reader, out)
    worker.load()
    load_s = perf_counter() - begin

    def report(share: float, detail: str) -> None:
        out.say(channel.PHASE, ("warmup", share, detail))

    info = warm_up(served, worker.predict, report)
    info.load_s = load_s
    out.say(channel.READY, info)
    return worker


def main(argv: list[str]) -> int:
    """Serve until the parent goes. Exit status 1 where the model did not start."""
    fd, beat_fd, parent = map(int, argv)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 0
    leave_signals_to_parent()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    os.set_inheritable(fd, False)
    threading.Thread(target=beat, args=(beat_fd, parent), daemon=True).start()
    sock = socket.socket(fileno=fd)
    reader = FrameReader(sock)
    try:
        serve(reader, SocketOut(sock))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 0
    return 1


def serve(reader: FrameReader, out: SocketOut) -> None:
    """Start with the settings that come first, then serve; returns where the start failed."""
    frames = reader.read()
    while not frames:
        frames = reader.read()
    first = frames[0]
    config = msgspec.msgpack.decode(first.data[first.pos : first.end], type=ModelConfig)
    try:
        worker = start(config, reader, out)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
        hint = error.hint if isinstance(error, UserError) else ""
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        out.say(channel.FAILED, (text, hint))
        return
    worker.serve()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # No interpreter shutdown: daemon threads and native pools may still hold locks.
    os._exit(code)
