"""The request-level machine: requests in, batches out.

Inputs are `add`, `cancel`, `resize`, `chunk`, `finish`, `finish_item`, `worker_up`, `worker_down`
and `lose`, each with the time; `poll` says what to do now. No I/O, no clock, no randomness: the
live server and the simulator drive the same object. It belongs to one thread.
"""

from __future__ import annotations

from collections import deque
from math import inf

from headway.core.batch import Batch, BatchResult, Close
from headway.core.batcher.actions import Actions
from headway.core.batcher.door import Door
from headway.core.batcher.grouping import Group, form_group
from headway.core.batcher.lanes import Lane, Lanes
from headway.core.batcher.patience import Patience
from headway.core.batcher.records import closed_event, finished_event, measure_batch
from headway.core.batcher.sizing import Sizing
from headway.core.batcher.slot import ComputeSlot
from headway.core.batcher.tally import Tally
from headway.core.batcher.waiting import WaitingRoom
from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.core.estimate import ServiceCurve
from headway.core.events import Cancelled, Event, Refused, WorkerChanged
from headway.core.policy.admission import timed_out
from headway.core.policy.batching import Dispatch, View
from headway.core.policy.catalog import BATCHING
from headway.core.ports import ModelInfo
from headway.core.request import ItemResult, Request, State
from headway.core.slo import Objective

RUNNING, DONE = State.RUNNING, State.DONE
DEPTH = 2
"""Batches a worker may hold: the one that runs and the one that follows it."""
EVENTS_MAX = 4096
"""Records kept for a driver that does not drain them."""


class Batcher:
    """One model's queue and the decisions on it."""

    def __init__(self, config: ModelConfig, slot: ComputeSlot | None = None) -> None:
        self.config = config
        self.name = config.name
        self.slot = slot or ComputeSlot()
        self.slot.join(self.name)
        self.objective = Objective.parse(config.objective) if config.objective else None
        self.policy_name = config.policy or ("deadline" if self.objective else "greedy")
        self.policy = BATCHING[self.policy_name](config)
        self.info = ModelInfo(name=config.name)
        self.curve = ServiceCurve()
        self.sizing = Sizing(config, self.curve)
        timed = self.policy_name == "deadline"
        self.room = WaitingRoom(wait_s_max=config.queue_wait_s_max, ranked=timed)
        self.lanes = Lanes()
        self.door = Door(
            config, self.room, self.lanes, self.sizing, objective=self.objective, by_deadline=timed
        )
        self.tally = Tally()
        self.patience = Patience(config.request_s_max or inf)
        self.running: dict[int, Batch] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.draining = False
        self._view = View()
        self._last_id = 0

    # Inputs

    def worker_up(self, worker: int, info: ModelInfo, now: float) -> None:
        """A worker is loaded and warm; what it measured joins the curve."""
        self.info = info
        self.curve.reform(info.form)
        for run in info.warm:
            self.curve.observe(run.rows, run.longest, run.total, run.run_s)
        self.sizing.learn(info)
        self.door.measures = info.measures
        self.room.reclass(classed=info.form == "padded")
        self.lanes.lane(worker).up = True
        self.tally.progressed(now)
        self.events.append(WorkerChanged(now, self.name, worker, True, "ready"))

    def worker_down(self, worker: int, now: float, reason: str) -> list[Batch]:
        """A worker is gone. What it ran is returned for the driver to `lose`; a batch that had not
        begun waits again, every request in its old place."""
        lane = self.lanes.lane(worker)
        lane.up = False
        self.events.append(WorkerChanged(now, self.name, worker, False, reason))
        batches = list(lane.batches)
        begun = len(batches) if self.info.streams else 1
        for batch in batches[begun:]:
            self._release(batch, now)
            for request in batch.requests:
                self._put_back(request)
        return batches[:begun]

    def lose(self, batch: Batch, now: float) -> list[Request]:
        """Give up a batch whose worker is gone; returns who still waits for an answer. Members with
        retries left wait again instead."""
        self._release(batch, now)
        failed: list[Request] = []
        for request in batch.requests:
            if not self.info.streams and request.attempts <= self.config.crash_retries:
                self._put_back(request)
            elif request.state is State.RUNNING:
                request.state = State.DONE
                failed.append(request)
        self._note_finished(batch, now, failed, ok=False)
        return failed

    def add(self, request: Request, now: float) -> UserError | None:
        """A request arrives. Returns why it may not wait, or None when it does."""
        alone = not self.room.requests and not self.running
        error = self.door.admit(request, now, alone=alone)
        if error is not None:
            request.state = State.DONE
            self.events.append(Refused(now, self.name, request.id, error.code, 0.0))
            return error
        self.tally.arrived(request.rows, now, alone=alone)
        if self.patience.limit_s < inf:
            self.patience.watch(request)
        if self.slot.shared:
            self.slot.saw(self.name, now)
        return None

    def cancel(self, request: Request, now: float) -> Batch | None:
        """Nobody waits for it any more. Returns the batch it runs in, for the driver to tell the
        worker. A no-op on a request that has ended (B11)."""
        if request.state is State.WAITING:
            self.room.remove(request, State.CANCELLED)
            self.events.append(Cancelled(now, self.name, request.id, False))
        elif request.state is State.RUNNING:
            # Its place in the batch is taken until the work truly stops (C8).
            request.state = State.CANCELLED
            self.events.append(Cancelled(now, self.name, request.id, True))
            return self.running.get(request.batch_id)
        return None

    def resize(self, request: Request, size: float, now: float) -> UserError | None:
        """A worker measured a waiting request. Returns why it may wait no longer, if so."""
        if request.state is not State.WAITING or not 0.0 < size < inf:
            return None
        error = self.door.resize(request, size)
        if error is not None:
            waited_s = now - request.arrival_s
            self.events.append(Refused(now, self.name, request.id, error.code, waited_s))
        return error

    def finish(
        self, batch_id: int, result: BatchResult, now: float
    ) -> list[tuple[Request, ItemResult]]:
        """A batch came back. Returns the answers somebody still waits for."""
        batch = self.running[batch_id]
        service_s = result.run_s + result.decode_s + result.encode_s
        if self._release(batch, now):
            self.lanes.saw_hop(now - batch.closed_s - service_s)
            self.curve.trip_s = self.lanes.hop_s
        wanted: list[tuple[Request, ItemResult]] = []
        for request, item in zip(batch.requests, result.items, strict=True):
            if request.state is RUNNING:
                request.state = DONE
                wanted.append((request, item))
        errors = sum([item.status != 200 for item in result.items])
        if self.info.measures:
            measure_batch(batch, result)
        if errors < len(batch.requests):
            rows = batch.rows + batch.padded_rows
            self.curve.observe(rows, batch.longest, batch.total, service_s)
        self.tally.answered(batch.rows, service_s, now)
        self._note_finished(batch, now, [r for r, _ in wanted], result=result, errors=errors)
        return wanted

    def chunk(self, batch_id: int, now: float) -> None:
        """A stream said something."""
        self.lanes.lane(self.running[batch_id].worker).chunk_s = now
        self.tally.progressed(now)

    def finish_item(
        self, batch_id: int, index: int, now: float, *, ok: bool = True
    ) -> Request | None:
        """The stream of one member ended and frees its row (B24). Returns it if still wanted."""
        batch = self.running[batch_id]
        request = batch.requests[index]
        wanted = request.state is State.RUNNING
        if wanted:
            request.state = State.DONE
            request.ended_s = now
            batch.errors += not ok
        batch.remaining_rows -= request.rows
        self.tally.progressed(now)
        if batch.remaining_rows == 0:
            self._release(batch, now)
            ended = BatchResult(items=[], run_s=now - batch.closed_s)
            answered = [r for r in batch.requests if r.state is State.DONE]
            self._note_finished(batch, now, answered, result=ended, errors=batch.errors)
        return request if wanted else None

    def drain(self) -> None:
        """Hold nothing back from now on."""
        self.draining = True

    # Output

    def poll(self, now: float) -> Actions:
        """Batches to run, requests to refuse, batches overdue, and when to ask again."""
        actions = Actions()
        for request in self.room.expired(now):
            self._refuse(request, self.door.expire(request, now), now, actions)
        for request in self.patience.spent(now):
            self._give_up(request, now, actions)
        wants_slot = False
        while self.room.requests:
            found = self._find_lane()
            if found is None:
                break
            lane, free_s, rows_free = found
            decision = self.policy.decide(self._look(rows_free, free_s, now), now)
            if not isinstance(decision, Dispatch):
                actions.wake_s = decision.until_s
                break
            if self.slot.shared and not self.slot.try_take(self.name, now):
                wants_slot = True
                break
            self._dispatch(lane, free_s, decision, now, actions)
        if self.slot.shared:
            # Whoever holds a place in the line without using it would block the others.
            if not wants_slot:
                self.slot.withdraw(self.name)
            actions.step_aside = self.slot.wanted(self.name)
        gap_s_max = self.config.stream_gap_s_max if self.info.streams else None
        actions.overdue, late_s = self.lanes.overdue(now, self.config.run_s_max, gap_s_max)
        due_s = min(late_s, self.room.next_expiry_s(), self.patience.next_s())
        actions.wake_s = min(actions.wake_s, due_s)
        return actions

    def stalled_s(self, now: float) -> float:
        """How long work has been pending without any progress; 0 when nothing is pending."""
        pending = self.running or self.room.requests
        return now - self.tally.progress_s if pending else 0.0

    def advice(self) -> str | None:
        """One sentence on how batches form here, when there is something to say (B3, B20, O8)."""
        hint = self.sizing.advice(self.room.mean_size or 1.0)
        return hint or self.tally.advice(self.sizing.rows_max)

    # Inside

    def _find_lane(self) -> tuple[Lane, float, int] | None:
        """A worker with room, when it is free, and the rows it can take."""
        if self.info.streams:
            found = self.lanes.pick_rows(self.sizing.rows_max)
            return None if found is None else (found[0], -inf, found[1])
        lane = self.lanes.pick(1 if self.slot.shared else DEPTH)
        return None if lane is None else (*lane, self.sizing.rows_max)

    def _look(self, rows_free: int, free_s: float, now: float) -> View:
        """The view a policy decides on; one object, refreshed."""
        view, tally = self._view, self.tally
        head, oldest = self.room.head(), self.room.oldest()
        assert head is not None
        cap, reason = self.sizing.cap(
            head.size,
            self.room.mean_size,
            objective=self.objective,
            contended=self.slot.shared and self.slot.contended(self.name, now),
        )
        view.waiting_rows = self.room.rows
        view.running_rows = self.lanes.rows
        view.oldest_s = (oldest or head).arrival_s
        # A cap below the head's own rows would lock it out: it goes alone.
        view.cap_rows = max(min(cap, rows_free), head.rows)
        view.cap_reason = reason
        view.free_s = free_s
        view.lead_s = 2.0 * self.lanes.hop_s
        view.finished_s = tally.finished_s
        view.run_s = tally.run_s
        view.answered_rows = tally.answered_rows
        view.returned_rows = tally.returned_rows
        view.return_share = tally.return_share
        view.latest_s = self.door.latest_s(head, view.cap_rows)
        view.draining = self.draining
        return view

    def _dispatch(
        self, lane: Lane, free_s: float, decision: Dispatch, now: float, actions: Actions
    ) -> None:
        """Form a batch and hand it over, unless nobody who waits can be on time."""
        rows, reason = decision.rows, decision.reason
        if self.sizing.allowed:
            rows, down = self.sizing.round(min(rows, self.room.rows), self.room.mean_size)
            reason = Close.BUCKET if down else reason
        group = form_group(
            self.room,
            self.curve,
            self.sizing.limits,
            cap=rows,
            reason=reason,
            start_s=self.door.start_s(free_s, now),
        )
        for request in group.late:
            self._refuse(request, self.door.too_late(request, now), now, actions)
        if group.requests:
            actions.run.append(self._close(lane, group, now))
        elif self.slot.shared:
            self.slot.give_back(self.name, now)

    def _close(self, lane: Lane, group: Group, now: float) -> Batch:
        self._last_id += 1
        fill = self.sizing.rows_max if self.policy.pads else group.rows
        padded_rows = self.sizing.allowed_up(fill) - group.rows
        rows = group.rows + padded_rows
        batch = Batch(
            id=self._last_id,
            model=self.name,
            worker=lane.worker,
            requests=group.requests,
            rows=group.rows,
            longest=group.longest,
            total=group.total,
            opened_s=min([r.arrival_s for r in group.requests]),
            closed_s=now,
            reason=group.reason,
            predicted_s=self.curve.predict(rows, group.longest, group.total),
            waiting_rows=self.room.rows,
            padded_rows=padded_rows,
            remaining_rows=group.rows,
        )
        for index, request in enumerate(group.requests):
            request.batch_id = batch.id
            request.index = index
            request.started_s = now
            request.attempts += 1
        self.running[batch.id] = batch
        self.lanes.give(lane, batch, now)
        self.tally.closed(batch.rows, now, batch.reason)
        self.sizing.closed(batch.reason)
        self.events.append(closed_event(batch))
        return batch

    def _refuse(
        self, request: Request, error: UserError | None, now: float, actions: Actions
    ) -> None:
        """The door decided on a request that waited: None lets it stay, to be served late."""
        if error is not None:
            waited_s = now - request.arrival_s
            self.events.append(Refused(now, self.name, request.id, error.code, waited_s))
            actions.refuse.append((request, error))

    def _give_up(self, request: Request, now: float, actions: Actions) -> None:
        """It has taken as long as it may in all. Its place in a batch is taken until that ends."""
        if request.state is State.WAITING:
            self.room.remove(request, State.DONE)
        else:
            request.state = State.CANCELLED
            actions.skip.append((self.running[request.batch_id], request.index))
        error = timed_out(now - request.arrival_s, "request_s_max")
        self._refuse(request, error, now, actions)

    def _release(self, batch: Batch, now: float) -> bool:
        """The one place where a batch gives back its worker and its slot. Did it begin at once?"""
        del self.running[batch.id]
        if self.slot.shared:
            self.slot.give_back(self.name, now)
        return self.lanes.end(batch, now)

    def _put_back(self, request: Request) -> None:
        if request.state is State.RUNNING:
            self.room.add(request, request.level, request.due_s)

    def _note_finished(
        self,
        batch: Batch,
        now: float,
        answered: list[Request],
        *,
        result: BatchResult | None = None,
        errors: int = 0,
        ok: bool = True,
    ) -> None:
        """Settle the promise and record how the batch ended."""
        ends = [r.ended_s if r.ended_s >= 0.0 else now for r in answered]
        latencies = [end_s - r.arrival_s for r, end_s in zip(answered, ends, strict=True)]
        limit_s = self.objective.limit_s if self.objective is not None else inf
        late = [
            request
            for request, end_s in zip(answered, ends, strict=True)
            if end_s - request.arrival_s > limit_s or end_s > request.deadline_s
        ]
        unforeseen = sum(not request.demoted for request in late)
        self.door.settle(len(answered) - len(late), unforeseen)
        record = finished_event(batch, now, self.info.form, latencies, result)
        record.ok, record.late = ok, len(late)
        record.errors = errors if ok else len(answered)
        self.events.append(record)
