"""A worker's two ends of its socket: batches and cancels come in, answers go out.

Knows frames and jobs; must not know models' methods, threads' purposes or when anything runs.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from headway.core.request import ItemResult
from headway.executor import channel
from headway.executor.channel import Frame, FrameReader
from headway.executor.items import ItemCodec, Job

KNOWN_MAX = 512
"""Items kept decoded after their size was asked for."""

TIMES = struct.Struct("<ddd")
"""Lead of a DONE frame: run, decode and encode in seconds."""


class SocketOut:
    """Answers as frames. Blocks while the socket is full, which holds a stream back (H15)."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, packed: channel.Packed) -> None:
        """One frame, whole, from whichever thread."""
        with self._lock:
            channel.send_blocking(self._sock, packed)

    def done(
        self,
        job: Job,
        bodies: list[bytes],
        items: list[ItemResult] | None,
        times: tuple[float, float, float],
    ) -> None:
        """A whole batch in one frame."""
        extra = None
        if items is not None:
            extra = msgspec.msgpack.encode(
                [(r.status, r.content_type, r.code, r.hint, r.size) for r in items]
            )
        lead = TIMES.pack(*times)
        self.send(channel.pack(channel.DONE, bodies, ident=job.ident, lead=lead, extra=extra))

    def chunk(self, job: Job, index: int, body: bytes) -> None:
        """One piece of a stream."""
        self.send(channel.message(channel.CHUNK, body, ident=job.ident, number=index))

    def item_done(self, job: Job, index: int, item: ItemResult) -> None:
        """The end of a stream."""
        body = msgspec.msgpack.encode(item)
        self.send(channel.message(channel.ITEM_END, body, ident=job.ident, number=index))

    def say(self, kind: int, value: Any) -> None:
        """A rare message: its body is MessagePack."""
        self.send(channel.message(kind, msgspec.msgpack.encode(value)))


class Inbox:
    """Batches from the socket; cancels are applied to what still waits here or runs."""

    def __init__(self, reader: FrameReader, codec: ItemCodec, out: SocketOut) -> None:
        self.reader = reader
        self._codec = codec
        self._out = out
        self.jobs: deque[Job] = deque()
        self.current: dict[int, Job] = {}
        """Batches taken whose items may still be cancelled, by id."""
        self.on_cancel: Callable[[Job, int], None] | None = None

    def take(self, block: bool) -> Job | None:
        """The next batch, with every cancel that has arrived applied. EOFError at the end."""
        if block and not self.jobs:
            while not self.jobs:
                self.handle(self.reader.read())
        try:
            while True:
                self.handle(self.reader.read(socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        return self.jobs.popleft() if self.jobs else None

    def handle(self, frames: list[Frame]) -> None:
        """Act on what arrived."""
        for frame in frames:
            if frame.kind == channel.RUN:
                self.jobs.append(job_of(frame))
            elif frame.kind == channel.CANCEL:
                self.cancel(frame.ident, frame.number)
            elif frame.kind == channel.MEASURE:
                self.measure(frame)

    def cancel(self, ident: int, index: int) -> None:
        """Mark an item that nobody waits for any more."""
        job = self.current.get(ident)
        if job is None:
            job = next((j for j in self.jobs if j.ident == ident), None)
        if job is not None:
            job.gone.add(index)
            if self.on_cancel is not None:
                self.on_cancel(job, index)

    def measure(self, frame: Frame) -> None:
        """Sizes of items, which are kept decoded for the batch they will come in."""
        job = job_of(frame)
        sizes: list[float] = []
        for ident, body, codec, kind in zip(
            job.ids, job.payloads, job.codecs, job.types, strict=True
        ):
            size = 0.0
            try:
                item, size = self._codec.item(body, codec, kind)
            except Exception:
                pass  # it fails again, and alone, when its batch is decoded
            else:
                self._remember(ident, item, size)
            sizes.append(size)
        self._out.say(channel.MEASURED, (list(job.ids), sizes))

    def _remember(self, ident: int, item: Any, size: float) -> None:
        known = self._codec.known
        known[ident] = (item, size)
        while len(known) > KNOWN_MAX:
            known.pop(next(iter(known)), None)


def job_of(frame: Frame) -> Job:
    """A batch as it came over the channel."""
    read = channel.unpack(frame)
    job = Job(frame.ident, read.bodies, frame.number)
    if read.extra is not None:
        codecs, types, job.ids = msgspec.msgpack.decode(read.extra)
        job.codecs, job.types = codecs, types
    return job
