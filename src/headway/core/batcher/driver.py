"""The driver of a batcher: joins the machine, an executor and time.

The same driver runs under the HTTP server, `@headway.batch` and the simulator; each injects its own
clock and compute. It performs what the batcher decides and reports back what happened; it decides
nothing itself. One thread owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from headway.core.batch import Batch, BatchResult
from headway.core.batcher.batcher import Batcher
from headway.core.errors import UserError
from headway.core.events import Event
from headway.core.ports import Executor, ModelInfo, Scheduler
from headway.core.request import ItemResult, Request, State

LOOK_EVERY = 32
"""Requests of one loop turn after which workers and timers are looked at again."""


class BatchDriver:
    """One model served request by request. Implements the ports `Runtime` and `WorkerSink`."""

    def __init__(self, batcher: Batcher, executor: Executor, scheduler: Scheduler) -> None:
        self.batcher = batcher
        self.executor = executor
        self.scheduler = scheduler
        self.neighbours: list[BatchDriver] = []
        """Drivers of other models on the same device: they may go when this one's batch ends."""
        self.listeners: list[Callable[[Event], None]] = []
        self.on_phase: Callable[[int, str, float, str], None] = _ignore
        self._queue_max = batcher.config.queue_requests_max
        self._turn_due = False
        self._added = False
        """A request was let in since the last turn."""
        self._streak = 0
        """Requests since the last turn."""
        self._armed_s = inf
        self._measuring: dict[int, Request] = {}

    # Runtime: what a front end calls

    def submit(self, request: Request) -> None:
        """Serve it; `request.reply` hears the answer, or why there is none, once. Its
        `arrival_s` is the time now."""
        batcher = self.batcher
        now = request.arrival_s
        self._streak += 1
        if self._streak >= LOOK_EVERY or now >= self._armed_s:
            # One loop turn can bring hundreds of requests, and no worker is to idle meanwhile.
            self._streak = 0
            self.executor.hear()
            self._turn()
        elif self._added and batcher.room.requests >= self._queue_max:
            # Look at the workers before refusing; once, for a refusal changes nothing.
            self._turn()
        error = batcher.add(request, now)
        if error is not None:
            request.reply.done(refusal(error))
            self._drain_events()
            return
        self._added = True
        if batcher.info.measures:
            self._measuring[request.id] = request
            self.executor.measure((request,))
        if not self._turn_due:
            self._turn_due = True
            self.scheduler.soon(self._turn_soon)
        elif batcher.room.rows >= batcher.sizing.rows_max:
            self._turn()

    def cancel(self, request: Request) -> None:
        """Nobody waits for it any more. A no-op on a finished request."""
        batch = self.batcher.cancel(request, self.scheduler.now())
        self._measuring.pop(request.id, None)
        if batch is not None:
            self.executor.cancel(batch.worker, batch.id, request.index)
        else:
            self._turn_if_empty()

    def ready(self) -> bool:
        """Can a request be served now?"""
        return self.batcher.lanes.up > 0

    def saturating_rows(self) -> int:
        """Rows in flight that keep every worker busy: the batch it runs and the next one."""
        return 2 * self.batcher.sizing.rows_max * max(1, self.batcher.lanes.up)

    def drain(self) -> None:
        """Hold nothing back from now on."""
        self.batcher.drain()
        self._turn()

    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.batcher.running and not self.batcher.room.requests

    def events(self) -> list[Event]:
        """Records nobody listened to; bounded, the oldest are dropped."""
        records = list(self.batcher.events)
        self.batcher.events.clear()
        return records

    # WorkerSink: what an executor calls

    def worker_phase(self, worker: int, phase: str, share: float, detail: str) -> None:
        """Start-up moved on."""
        self.on_phase(worker, phase, share, detail)

    def worker_ready(self, worker: int, info: ModelInfo) -> None:
        """A worker may be given batches."""
        self.batcher.worker_up(worker, info, self.scheduler.now())
        self.on_phase(worker, "ready", 1.0, "")
        self._turn()

    def worker_lost(self, worker: int, code: str, message: str) -> None:
        """A worker died: what it ran fails (or runs again, where retries allow), the rest waits
        again."""
        now = self.scheduler.now()
        status = 504 if code == "timeout" else 500
        result = ItemResult(status, message.encode(), code=code, hint=_LOST_HINT.get(code, ""))
        for batch in self.batcher.worker_down(worker, now, code):
            for request in self.batcher.lose(batch, now):
                request.reply.done(result)
        # Sizes asked of that worker may never come.
        self._measuring = {i: r for i, r in self._measuring.items() if r.state is State.WAITING}
        self._turn_all()

    def batch_started(self, batch_id: int) -> None:
        """News that changes nothing yet."""

    def batch_done(self, batch_id: int, result: BatchResult) -> None:
        """A batch came back. The next one leaves before the answers are written."""
        now = self.scheduler.now()
        if batch_id not in self.batcher.running:
            return
        answers = self.batcher.finish(batch_id, result, now)
        self._turn_all()
        for request, item in answers:
            request.reply.done(item)
        self.batcher.tally.replied(self.scheduler.now())

    def chunk(self, batch_id: int, index: int, body: bytes) -> None:
        """One piece of a stream."""
        batch = self.batcher.running.get(batch_id)
        if batch is not None:
            self.batcher.chunk(batch_id, self.scheduler.now())
            request = batch.requests[index]
            if request.state is State.RUNNING:
                request.reply.chunk(body)

    def item_done(self, batch_id: int, index: int, result: ItemResult) -> None:
        """One stream ended and its row is free."""
        if batch_id in self.batcher.running:
            ok = result.status == 200
            request = self.batcher.finish_item(batch_id, index, self.scheduler.now(), ok=ok)
            if request is not None:
                request.reply.done(result)
            self._turn_all()

    def measured(self, request_ids: Sequence[int], sizes: Sequence[float]) -> None:
        """Sizes in the model's own unit."""
        now = self.scheduler.now()
        for request_id, size in zip(request_ids, sizes, strict=True):
            request = self._measuring.pop(request_id, None)
            error = None if request is None else self.batcher.resize(request, size, now)
            if request is not None and error is not None:
                request.reply.done(refusal(error))
                self._turn_if_empty()

    # Inside

    def _turn_soon(self) -> None:
        self._turn_due = False
        self._streak = 0
        self._turn()

    def _turn_all(self) -> None:
        self._turn()
        for driver in self.neighbours:
            driver._turn()

    def _turn_if_empty(self) -> None:
        # Its place in the line for the device is another model's now.
        if self.batcher.slot.shared and not self.batcher.room.requests:
            self._turn()

    def _turn(self) -> None:
        """Perform what the batcher decides now."""
        self._added = False
        actions = self.batcher.poll(self.scheduler.now())
        # Before anything that can bring on another turn, whose timer is then the one that counts.
        if actions.wake_s != self._armed_s:
            self._armed_s = actions.wake_s
            self.scheduler.at(actions.wake_s, self._wake)
        for batch in actions.run:
            self.executor.run(batch)
        for batch, index in actions.skip:
            self.executor.cancel(batch.worker, batch.id, index)
        for request, error in actions.refuse:
            request.reply.done(refusal(error))
        for batch in actions.overdue:
            self._replace(batch)
        self._drain_events()
        if actions.step_aside:
            for driver in self.neighbours:
                driver._turn()

    def _wake(self) -> None:
        self._armed_s = inf
        self._turn()

    def _replace(self, batch: Batch) -> None:
        config = self.batcher.config
        limit = "stream_gap_s_max" if self.batcher.info.streams else "run_s_max"
        message = f"the batch ran longer than {getattr(config, limit):g} s ({limit})"
        self.executor.restart(batch.worker, "timeout", message)

    def _drain_events(self) -> None:
        if self.listeners:
            events = self.batcher.events
            while events:
                event = events.popleft()
                for listener in self.listeners:
                    listener(event)


_LOST_HINT = {
    "timeout": "allow more time with run_s_max, or send less work in one request",
    "worker_stalled": "its process was stopped or stuck; a new one starts",
    "worker_crashed": "look for the cause in the server's log; crash_retries can run it again",
}


def refusal(error: UserError) -> ItemResult:
    """A refusal as an answer."""
    return ItemResult(
        error.status,
        error.message.encode(),
        code=error.code,
        hint=error.hint,
        retry_after_s=error.retry_after_s,
    )


def _ignore(worker: int, phase: str, share: float, detail: str) -> None:
    """Nobody asked about start-up."""
