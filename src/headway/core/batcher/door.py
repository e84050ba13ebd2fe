"""The door of the waiting room: who may wait, who has waited too long, who would be late.

Knows the queue, predicted times and the promise; must not know which batch runs next.
"""

from __future__ import annotations

from math import inf

from headway.core.batcher.lanes import Lanes
from headway.core.batcher.sizing import Sizing
from headway.core.batcher.waiting import WaitingRoom
from headway.core.config import ModelConfig
from headway.core.errors import UserError
from headway.core.policy.admission import (
    LATE_BUDGET_MAX,
    LateBudget,
    QueueView,
    Reserve,
    check_item,
    check_queue,
    predicted_late,
    timed_out,
)
from headway.core.request import Request, State
from headway.core.slo import Objective


class Door:
    """Lets requests into the room, and shows out those who cannot be served in time."""

    def __init__(
        self,
        config: ModelConfig,
        room: WaitingRoom,
        lanes: Lanes,
        sizing: Sizing,
        *,
        objective: Objective | None,
        by_deadline: bool,
    ) -> None:
        self.config = config
        self.room = room
        self.lanes = lanes
        self.sizing = sizing
        self.objective = objective
        self.by_deadline = by_deadline
        self.budget = LateBudget(objective.late_share_max if objective is not None else 0.0)
        self.last_level = config.priority_levels + 1
        """Where those wait who may be served late."""
        self.reserve = Reserve()
        self.measures = False
        """Sizes are known only once a worker has measured them."""
        sizes = (config.item_size_max, config.batch_budget_size)
        self._item_size_max = min((s for s in sizes if s is not None), default=inf)

    def admit(self, request: Request, now: float, *, alone: bool) -> UserError | None:
        """Let a request wait, or say why not. One that meets nobody here is always let in."""
        rows = request.rows
        if rows > self.sizing.rows_max or request.size * rows > self._item_size_max:
            # Until a worker has measured it the size is a number of bytes: of the wrong unit.
            error = check_item(request, self.config, self.sizing.rows_max, sized=not self.measures)
            if error is not None:
                return error
        level = request.priority
        if not 1 <= level < self.last_level:
            level = self.last_level - 1
        due_s = self.due_s(request) if self.by_deadline else request.arrival_s
        if not alone:
            error = self._check_room(request, now)
            if error is not None:
                return error
            finish_s, spare_s = -inf, 0.0
            if self.by_deadline:
                finish_s, spare_s = self.outlook(request, level, due_s, now)
            if finish_s + spare_s > due_s:
                if finish_s <= due_s or not self._may_be_late(request, finish_s):
                    self.reserve.refused(now, waited_share=0.0)
                    return predicted_late(finish_s + spare_s, due_s)
                level, due_s, request.demoted = self.last_level, inf, True
        self.room.add(request, level, due_s)
        return None

    def resize(self, request: Request, size: float) -> UserError | None:
        """A waiting request was measured: let it stay, or say why not."""
        self.room.resize(request, size)
        if size * request.rows <= self._item_size_max:
            return None
        self.room.remove(request, State.DONE)
        return check_item(request, self.config, self.sizing.rows_max)

    def due_s(self, request: Request) -> float:
        """When a request must be answered to be on time."""
        due_s = request.deadline_s
        if self.objective is not None:
            # A promise shorter than the request itself takes is no reason to refuse it (B16).
            limit_s = max(self.objective.limit_s, 2.0 * self.own_s(request))
            due_s = min(due_s, request.arrival_s + limit_s)
        return due_s

    def own_s(self, request: Request) -> float:
        """Predicted run time of a request by itself."""
        size = request.size
        return self.sizing.curve.predict(request.rows, size, size * request.rows)

    def drain_s(self, now: float) -> float:
        """Predicted time until all that waits and runs is done."""
        return self._free_s(now) + self._queue_s(self.room.rows)

    def outlook(
        self, request: Request, level: int, due_s: float, now: float
    ) -> tuple[float, float]:
        """Predicted time of its answer, and the reserve to keep before its due time: the running
        batch, full batches of those who are more urgent than this level and time, then its own."""
        room, rows = self.room, request.rows
        mean = room.mean_size or request.size
        ahead = room.requests_before(level, due_s)
        if ahead:
            ahead = ahead * room.rows // room.requests
        cap, _ = self.sizing.steady(request.size, mean, self.objective)
        joins = ahead % cap
        wait_s = self._free_s(now) + self._queue_s(ahead - joins)
        rows = max(min(joins + rows, cap), rows)
        run_s = self.sizing.batch_s(rows, request.size, mean)
        spare_s = self.reserve.seconds(now, self.sizing.curve.sigma(rows), wait_s, run_s)
        return now + wait_s + run_s, spare_s

    def latest_s(self, head: Request, cap: int) -> float:
        """When the next batch must leave for its head to be on time."""
        if not self.by_deadline:
            return inf
        rows = max(min(cap, self.room.rows), head.rows)
        run_s = self.sizing.batch_s(rows, head.size, self.room.mean_size)
        return head.due_s - run_s - 2.0 * self.lanes.hop_s

    def start_s(self, free_s: float, now: float) -> float | None:
        """When a batch that leaves now begins; None where nobody has a time to keep."""
        if not self.by_deadline:
            return None
        return max(now, free_s) if free_s < inf else now

    def too_late(self, request: Request, now: float) -> UserError | None:
        """Bound to miss its time: back in to be served last if the promise allows, else refused."""
        if self._may_be_late(request, now + self.own_s(request)):
            request.demoted = True
            self.room.add(request, self.last_level, inf)
            return None
        request.state = State.DONE
        waited_share = (now - request.arrival_s) / max(request.due_s - request.arrival_s, 1e-9)
        self.reserve.refused(now, waited_share=waited_share)
        finish_s, _ = self.outlook(request, request.level, request.due_s, now)
        return predicted_late(max(finish_s, request.due_s), request.due_s)

    def expire(self, request: Request, now: float) -> UserError | None:
        """It has waited as long as it may: refused, or under DELAY served after everyone else."""
        deadline = request.deadline_s <= now
        if self.config.timeout_action == "delay" and not deadline:
            self.room.demote(request, self.last_level)
            return None
        self.room.remove(request, State.DONE)
        limit = "the request's own deadline" if deadline else "queue_wait_s_max"
        return timed_out(now - request.arrival_s, limit)

    def settle(self, on_time: int, late: int) -> None:
        """Answers went out: on-time ones earn lateness for others, unforeseen late ones use it
        up."""
        self.budget.earn(on_time)
        self.budget.owe(late)

    def _may_be_late(self, request: Request, finish_s: float) -> bool:
        """Does the promise allow this one to be late, and its client? Those who wait to be served
        last are bounded too: in a long overload nobody gets to them."""
        room = self.room
        last = room.requests - room.requests_before(self.last_level - 1, inf)
        return finish_s <= request.deadline_s and last < LATE_BUDGET_MAX and self.budget.spend()

    def _free_s(self, now: float) -> float:
        """Predicted time until a worker is free; 0 where nobody can tell."""
        free_s = min((lane.free_s for lane in self.lanes.all.values() if lane.up), default=now)
        return max(free_s - now, 0.0) if free_s < inf else 0.0

    def _queue_s(self, rows: int) -> float:
        """Predicted time until that many waiting rows have run. Run time is a line in size, so the
        mean size stands for all."""
        return rows * self.sizing.row_s(self.room.mean_size) / max(self.lanes.up, 1)

    def _check_room(self, request: Request, now: float) -> UserError | None:
        room, config = self.room, self.config
        if (
            room.requests < config.queue_requests_max
            and room.rows + request.rows <= config.queue_rows_max
            and room.bytes + len(request.payload) <= config.queue_bytes_max
            and config.queue_size_max is None
        ):
            return None
        queue = QueueView(room.requests, room.rows, room.bytes, room.size, self.drain_s(now))
        return check_queue(request, queue, config)
