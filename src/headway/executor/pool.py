"""The pool: worker processes of one model, started, watched, fed and replaced.

Implements `core.ports.Executor` on an asyncio event loop, on that loop's thread only. Knows
processes and frames; must not know policies, HTTP or what a model computes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from headway.core.batch import Batch, BatchResult
from headway.core.config import ModelConfig
from headway.core.ports import ModelInfo, WorkerSink
from headway.core.request import ItemResult, Request
from headway.executor import channel
from headway.executor.channel import Frame
from headway.executor.process import Process
from headway.executor.worker_io import TIMES

BACKOFF_S = 0.1
"""First pause before a lost worker starts again; it doubles up to `restart_backoff_s_max`."""
GOOD_S = 10.0
"""A worker that was ready this long starts its successor's pauses from the beginning."""
HANG_UP_S = 0.2
"""How long a worker may take to end when its connection is closed; then it is killed."""
SAMPLE_S = 0.25
"""How often heartbeats are looked at."""
STOOD_STILL_S = 1.0
"""A look this late says that this process was stopped, and no worker is to blame."""

_info = msgspec.msgpack.Decoder(ModelInfo)
_item = msgspec.msgpack.Decoder(ItemResult)
_extra = msgspec.msgpack.Decoder(list[tuple[int, str, str, str, float]])
_phase = msgspec.msgpack.Decoder(tuple[str, float, str])
_failed = msgspec.msgpack.Decoder(tuple[str, str])
_measured = msgspec.msgpack.Decoder(tuple[list[int], list[float]])


class Seat:
    """One worker's place: the process in it, and what its predecessors teach."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: Process | None = None
        self.info: ModelInfo | None = None
        """Set while the worker is ready."""
        self.ready_at_s = 0.0
        self.beat = 0
        self.beat_at_s = 0.0
        self.losses = 0
        """Losses in a row without a good period between them."""
        self.start_failures = 0
        self.reason = ""
        """What a failed start said."""
        self.told = False
        """The sink knows that this process is lost."""
        self.timer: asyncio.TimerHandle | None = None
        self.measuring: dict[int, float] = {}
        """Requests whose size was asked for, with the size assumed until then."""


class Pool:
    """Workers of one model. `on_failed` hears the message when they cannot be started at all."""

    def __init__(
        self, config: ModelConfig, *, on_failed: Callable[[str], None] | None = None
    ) -> None:
        self.workers = config.workers
        self.failed: str | None = None
        """Why the model cannot start, once `start_failures_max` was reached."""
        self._config = config
        self._on_failed = on_failed
        self._seats = [Seat(index) for index in range(config.workers)]
        self._closing = False
        self._sampler: asyncio.TimerHandle | None = None
        self._sampled_s = 0.0
        self._sink: WorkerSink
        self._loop: asyncio.AbstractEventLoop
        self._all_gone: asyncio.Future[None] | None = None
        self._next_measure = 0

    # -- the port ---------------------------------------------------------------------------

    def start(self, sink: WorkerSink) -> None:
        """Begin starting workers. Call on the event loop that will run them."""
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        for seat in self._seats:
            self._spawn(seat)
        self._sampled_s = self._loop.time()
        self._sampler = self._loop.call_later(SAMPLE_S, self._sample)

    def run(self, batch: Batch) -> None:
        """Hand a batch to `batch.worker`; to a lost worker it is lost too, and said to be."""
        seat = self._seats[batch.worker]
        process = seat.process
        if process is None or seat.info is None or seat.told:
            return  # `worker_lost` is on its way, or was heard
        requests = batch.requests
        bodies = [r.payload for r in requests]
        codecs = bytes([r.codec for r in requests])
        extra = None
        if codecs.count(0) != len(codecs) or seat.info.measures:
            extra = _side(requests, codecs, seat.info.measures)
        process.send(
            channel.pack(channel.RUN, bodies, ident=batch.id, number=batch.padded_rows, extra=extra)
        )

    def hear(self) -> None:
        """Report now what workers have said so far."""
        for seat in self._seats:
            if seat.process is not None:
                seat.process.hear()

    def cancel(self, worker: int, batch_id: int, index: int) -> None:
        """Tell a worker that nobody reads an item any more."""
        process = self._seats[worker].process
        if process is not None:
            process.send(channel.message(channel.CANCEL, ident=batch_id, number=index))

    def measure(self, requests: Sequence[Request]) -> None:
        """Ask a ready worker, in turn, for sizes. With none ready the assumed sizes come back."""
        ready = [seat for seat in self._seats if seat.info and not seat.told]
        if not ready:
            self._assume({r.id: r.size for r in requests})
            return
        self._next_measure += 1
        seat = ready[self._next_measure % len(ready)]
        assert seat.process is not None
        seat.measuring.update((r.id, r.size) for r in requests)
        codecs = bytes([r.codec for r in requests])
        extra = _side(requests, codecs, ids=True)
        bodies = [r.payload for r in requests]
        seat.process.send(channel.pack(channel.MEASURE, bodies, extra=extra))

    def restart(self, worker: int, code: str, message: str) -> None:
        """End a worker and start another after a pause. `worker_lost` comes in the next turn."""
        seat = self._seats[worker]
        process = seat.process
        if process is None or seat.told:
            return
        seat.told = True
        self._loop.call_soon(self._tell_lost, seat, code, message)
        process.mute()
        process.kill()

    async def close(self) -> None:
        """End every worker: an idle one at once, a busy one within moments."""
        self._closing = True
        if self._sampler is not None:
            self._sampler.cancel()
        self._all_gone = asyncio.get_running_loop().create_future()
        for seat in self._seats:
            if seat.timer is not None:
                seat.timer.cancel()
            if seat.process is not None:
                seat.told = True
                process = seat.process
                process.hang_up()
                self._loop.call_later(HANG_UP_S, process.kill)
        self._check_gone()
        await self._all_gone

    # -- beside the port --------------------------------------------------------------------

    def silent_s(self, worker: int) -> float:
        """Seconds since a worker's process last showed that it runs (busy or not).

        Up to 0.5 s is normal: workers show it every 0.25 s and are looked at as often.
        """
        seat = self._seats[worker]
        if seat.process is None:
            return 0.0
        self._look(seat)
        return self._loop.time() - seat.beat_at_s

    def pids(self) -> list[int]:
        """Process ids of the workers that exist."""
        return [seat.process.pid for seat in self._seats if seat.process is not None]

    # -- life -------------------------------------------------------------------------------

    def _spawn(self, seat: Seat) -> None:
        seat.timer = None
        seat.told = False
        seat.info = None
        seat.reason = ""
        seat.beat_at_s = self._loop.time()
        try:
            process = Process(self._loop, self._config.threads)
        except OSError as error:  # no memory or no process to be had: perhaps later
            self._again(seat, f"no worker could be started: {error}", was_ready=False)
            return
        seat.process = process
        process.watch(
            lambda frames: self._heard(seat, frames),
            lambda: self._gone(seat, process),
        )
        process.send(channel.message(channel.CONFIG, msgspec.msgpack.encode(self._config)))

    def _gone(self, seat: Seat, process: Process) -> None:
        """A process has ended: say so once, and fill its seat again."""
        if seat.process is not process:
            return
        seat.process = None
        was_ready, reason = seat.info is not None, seat.reason
        if not seat.told:
            code = "worker_crashed" if was_ready else "worker_start_failed"
            self._tell_lost(seat, code, reason or f"the worker {process.ending()}")
        seat.info = None
        if self._closing:
            self._check_gone()
            return
        text = reason or f"the worker {process.ending()} while starting"
        self._again(seat, text, was_ready=was_ready)

    def _again(self, seat: Seat, reason: str, *, was_ready: bool) -> None:
        """Start a worker in this seat after a pause, or give the model up."""
        if was_ready:
            if self._loop.time() - seat.ready_at_s >= GOOD_S:
                seat.losses = 0
        else:
            seat.start_failures += 1
            # While another worker serves, this one is tried again: better few than none.
            alone = all(other.info is None for other in self._seats)
            if alone and seat.start_failures >= self._config.start_failures_max:
                self._give_up(reason)
                return
        pause = min(BACKOFF_S * 2**seat.losses, self._config.restart_backoff_s_max)
        seat.losses = min(seat.losses + 1, 30)
        seat.timer = self._loop.call_later(pause, self._spawn, seat)

    def _tell_lost(self, seat: Seat, code: str, message: str) -> None:
        seat.told = True
        assumed, seat.measuring = seat.measuring, {}
        if assumed:
            self._assume(assumed)
        self._sink.worker_lost(seat.index, code, message)

    def _assume(self, sizes: dict[int, float]) -> None:
        self._loop.call_soon(self._sink.measured, list(sizes), list(sizes.values()))

    def _give_up(self, message: str) -> None:
        self.failed = message
        if self._on_failed is not None:
            self._on_failed(message)

    def _check_gone(self) -> None:
        gone = all(seat.process is None for seat in self._seats)
        if gone and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _sample(self) -> None:
        now, limit_s = self._loop.time(), self._config.run_s_max
        stood_still = now - self._sampled_s > STOOD_STILL_S
        self._sampled_s = now
        for seat in self._seats:
            self._look(seat)
            if stood_still:
                seat.beat_at_s = now  # perhaps the worker stood still with us
            elif seat.info is not None and now - seat.beat_at_s > limit_s:
                # Not ready, it gets no work, so no limit on a batch would ever end it.
                text = f"the worker showed no sign of life for {limit_s:g} s (run_s_max)"
                self.restart(seat.index, "worker_stalled", text)
        self._sampler = self._loop.call_later(SAMPLE_S, self._sample)

    def _look(self, seat: Seat) -> None:
        if seat.process is None:
            return
        beat = seat.process.beats()
        if beat != seat.beat:
            seat.beat, seat.beat_at_s = beat, self._loop.time()

    # -- what workers say -------------------------------------------------------------------

    def _heard(self, seat: Seat, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.kind == channel.DONE:
                self._sink.batch_done(frame.ident, batch_result(frame))
            elif frame.kind == channel.CHUNK:
                body = frame.data[frame.pos : frame.end]
                self._sink.chunk(frame.ident, frame.number, body)
            else:
                self._heard_rare(seat, frame)

    def _heard_rare(self, seat: Seat, frame: Frame) -> None:
        body = frame.data[frame.pos : frame.end]
        if frame.kind == channel.ITEM_END:
            self._sink.item_done(frame.ident, frame.number, _item.decode(body))
        elif frame.kind == channel.MEASURED:
            ids, sizes = _measured.decode(body)
            for ident in ids:
                seat.measuring.pop(ident, None)
            self._sink.measured(ids, sizes)
        elif frame.kind == channel.PHASE:
            self._sink.worker_phase(seat.index, *_phase.decode(body))
        elif frame.kind == channel.READY:
            seat.info = _info.decode(body)
            seat.start_failures = 0
            seat.ready_at_s = self._loop.time()
            self._sink.worker_ready(seat.index, seat.info)
        else:
            assert frame.kind == channel.FAILED
            message, hint = _failed.decode(body)
            seat.reason = f"{message} ({hint})" if hint else message


def batch_result(frame: Frame) -> BatchResult:
    """A DONE frame as the driver wants it."""
    run_s, decode_s, encode_s = TIMES.unpack_from(frame.data, frame.pos)
    read = channel.unpack(frame, TIMES.size)
    if read.extra is None:
        return BatchResult([ItemResult(200, b) for b in read.bodies], run_s, decode_s, encode_s)
    items = [
        ItemResult(status, body, kind, code, hint, None, size)
        for body, (status, kind, code, hint, size) in zip(
            read.bodies, _extra.decode(read.extra), strict=True
        )
    ]
    return BatchResult(items, run_s, decode_s, encode_s)


def _side(requests: Sequence[Request], codecs: bytes, ids: bool) -> bytes:
    """What a frame says of its items beside their bodies."""
    types = [r.content_type for r in requests]
    return msgspec.msgpack.encode((codecs, types, [r.id for r in requests] if ids else ()))
