"""Runs batches on a model in the thread it is called from, streams included.

Knows `predict` and its possible results; must not know where batches come from or answers go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from headway.core.request import ItemResult
from headway.executor.adapt import Served
from headway.executor.items import ItemCodec, Job, cancelled, check_results, failure
from headway.executor.model import END, ItemError


class Out(Protocol):
    """Where answers go."""

    def done(
        self,
        job: Job,
        bodies: list[bytes],
        items: list[ItemResult] | None,
        times: tuple[float, float, float],
    ) -> None:
        """A batch that does not stream; `times` are run, decode and encode in seconds."""

    def chunk(self, job: Job, index: int, body: bytes) -> None:
        """One piece of a stream."""

    def item_done(self, job: Job, index: int, item: ItemResult) -> None:
        """A stream ended."""


class Runner:
    """Decode, predict, encode. `finish` may be replaced to encode and send somewhere else."""

    def __init__(self, served: Served, codec: ItemCodec, out: Out) -> None:
        self.served = served
        self.codec = codec
        self.out = out
        self.finish: Callable[[Callable[[], None]], None] = _now

    def decode(self, job: Job) -> None:
        """Decode a batch (once)."""
        begin = perf_counter()
        self.codec.decode(job)
        job.decode_s = perf_counter() - begin

    def begin(self, job: Job) -> Stream | None:
        """Run a batch; a batch that streams comes back, to be stepped."""
        if job.rows is None:
            self.decode(job)
        if not job.rows:
            self.fail(job, ItemError(500, "no item was decoded"))
            return None
        rows = self.codec.padded(job)
        begin = perf_counter()
        try:
            results = self.served.predict(rows)
        except Exception as error:
            self.fail(job, error, perf_counter() - begin)
            return None
        return self.took(job, results, len(rows), perf_counter() - begin)

    def took(self, job: Job, results: Any, count: int, run_s: float) -> Stream | None:
        """Judge what `predict` returned for `count` rows."""
        plain = self.codec.is_plain(results)
        if not plain and hasattr(results, "__next__"):
            return StepStream(self, job, results)
        try:
            results = check_results(results, count)
        except ItemError as error:
            self.fail(job, error, run_s)
            return None
        if not plain and any(hasattr(result, "__next__") for result in results):
            return ItemStreams(self, job, results)
        self.finish(partial(self.encode_and_send, job, results, plain, run_s))
        return None

    def encode_and_send(self, job: Job, results: Any, plain: bool, run_s: float) -> None:
        """Encode the results of a batch and let them go."""
        begin = perf_counter()
        bodies, items = self.codec.encode(job, results, plain)
        self.out.done(job, bodies, items, (run_s, job.decode_s, perf_counter() - begin))

    def fail(self, job: Job, error: BaseException, run_s: float = 0.0) -> None:
        """Every item of a batch that has not failed by itself fails with `error`."""
        items = self.codec.fail_all(job, failure(error, "predict"))
        bodies = [item.body for item in items]
        times = (run_s, job.decode_s, 0.0)
        self.finish(partial(self.out.done, job, bodies, items, times))


def _now(work: Callable[[], None]) -> None:
    work()


class Stream:
    """A batch whose answers come in pieces. Ends its items one by one."""

    def __init__(self, runner: Runner, job: Job) -> None:
        self.job = job
        self._runner = runner
        live = range(len(job.payloads)) if job.simple else job.live
        self._open = set(live)
        for index, failed in job.failed.items():
            runner.out.item_done(job, index, failed)

    def step(self) -> bool:
        """Advance once; False when every item has ended. Items without a reader are closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the generators."""

    def _piece(self, index: int, piece: Any) -> None:
        if piece is None:
            return
        if piece is END:
            self._end(index, ItemResult(200, b""))
        elif isinstance(piece, ItemError):
            self._end(index, failure(piece, "predict"))
        else:
            try:
                body, _ = self._runner.codec.body(piece)
            except Exception as error:
                self._end(index, failure(error, "encode"))
            else:
                self._runner.out.chunk(self.job, index, body)

    def _end(self, index: int, item: ItemResult) -> None:
        self._open.discard(index)
        self._runner.out.item_done(self.job, index, item)

    def _end_all(self, item: ItemResult) -> None:
        for index in sorted(self._open):
            self._end(index, item)


class StepStream(Stream):
    """One generator for the batch: each step yields one entry per row."""

    def __init__(self, runner: Runner, job: Job, steps: Any) -> None:
        super().__init__(runner, job)
        self._steps = steps
        self._places = places_of(job)
        self._told: set[int] = set()
        self._send = getattr(steps, "send", None)
        self._begun = False

    def step(self) -> bool:
        gone = self.job.gone - self._told
        for index in sorted(gone & self._open):
            self._end(index, cancelled())
        if not self._open:
            self.close()
            return False
        try:
            if gone and self._begun and self._send is not None:
                # `gone = yield step` tells the model which rows have no reader any more.
                entries = self._send([r for r, i in enumerate(self._places) if i in gone])
                self._told |= gone
            else:
                entries = next(self._steps)
            self._begun = True
            check_step(entries, len(self._places))
        except StopIteration:
            self._end_all(ItemResult(200, b""))
            return False
        except Exception as error:
            self._end_all(failure(error, "predict"))
            self.close()
            return False
        for row, index in enumerate(self._places):
            if index in self._open:
                self._piece(index, entries[row])
        if not self._open:
            self.close()
        return bool(self._open)

    def close(self) -> None:
        close = getattr(self._steps, "close", None)
        if close is not None:
            _close_quietly(close)


class ItemStreams(Stream):
    """One generator per item, advanced in turn; plain results among them end at once."""

    def __init__(self, runner: Runner, job: Job, results: Any) -> None:
        super().__init__(runner, job)
        self._streams: dict[int, Iterator[Any]] = {}
        for index, result in zip(sorted(self._open), results, strict=False):
            if hasattr(result, "__next__"):
                self._streams[index] = result
            else:
                self._piece(index, result)
                if index in self._open:
                    self._end(index, ItemResult(200, b""))

    def step(self) -> bool:
        for index in list(self._streams):
            if index in self.job.gone:
                self._drop(index)
                self._end(index, cancelled())
                continue
            try:
                self._piece(index, next(self._streams[index]))
            except StopIteration:
                self._end(index, ItemResult(200, b""))
            except Exception as error:
                self._end(index, failure(error, "predict"))
            if index not in self._open:
                self._drop(index)
        return bool(self._streams)

    def _drop(self, index: int) -> None:
        close = getattr(self._streams.pop(index), "close", None)
        if close is not None:
            _close_quietly(close)

    def close(self) -> None:
        for index in list(self._streams):
            self._drop(index)


def _close_quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception as error:
        failure(error, "closing a stream")


def check_step(entries: Any, rows: int) -> None:
    """One step of a streamed batch has one entry per row. Raises ItemError (500)."""
    if not isinstance(entries, (list, tuple)) or len(entries) < rows:
        got = len(entries) if isinstance(entries, (list, tuple)) else type(entries).__name__
        raise ItemError(
            500,
            f"predict yielded {got} for {rows} items",
            code="wrong_result_count",
            hint="yield a list with one entry per item: a piece, None, or headway.END",
        )


def places_of(job: Job) -> list[int]:
    """The item that each row belongs to."""
    if job.simple:
        return list(range(len(job.payloads)))
    return [i for i, rows in zip(job.live, job.counts, strict=True) for _ in range(rows)]
