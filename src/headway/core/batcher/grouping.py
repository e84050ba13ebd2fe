"""Which requests ride together: the most urgent one, and others that make the trip cheaper.

Knows sizes, the service curve and the limits of one batch; must not know workers or policies.

The rule has one quantity: another row joins when running it with the others is predicted to cost no
more device time than running it by itself. Like sizes, no batching at all and everything together
are all cases of it. Until the curve knows, the share of padding decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from headway.core.batch import Close, Form, padding_waste
from headway.core.batcher.waiting import WaitingRoom
from headway.core.estimate import ServiceCurve
from headway.core.request import Request, State


@dataclass(slots=True)
class Limits:
    """What one batch of this model may be."""

    rows_max: int
    """Hard: no batch has more rows, whoever asks (B15)."""
    form: Form
    budget: float = inf
    """Largest padded size (sum of sizes where nothing is padded)."""
    waste_max: float = 0.15
    """Largest share of padding while costs are unknown."""


@dataclass(slots=True)
class Group:
    """The requests picked for one batch, and why it closed where it did."""

    requests: list[Request] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    """Met on the way, bound to miss their time: still waiting, the caller refuses or demotes
    them."""
    rows: int = 0
    longest: float = 0.0
    total: float = 0.0
    due_s: float = inf
    """When the most urgent member must be answered."""
    reason: Close = Close.IDLE

    def admit(self, request: Request) -> None:
        """Count one more member."""
        self.requests.append(request)
        self.rows += request.rows
        self.longest = max(self.longest, request.size)
        self.total += request.size * request.rows
        self.due_s = min(self.due_s, request.due_s)


def form_group(
    room: WaitingRoom,
    curve: ServiceCurve,
    limits: Limits,
    *,
    cap: int,
    reason: Close,
    start_s: float | None = None,
) -> Group:
    """Take the most urgent request and its like out of the room, up to `cap` rows.

    With `start_s`, the time the batch would begin, requests that it would answer after their
    `due_s` are taken out and listed as late. Each that leaves may make the batch shorter, so no
    more are given up than the rest needs. Costs at most the batch and the size classes, never the
    queue; a request set aside is looked at once.
    """
    forming = _Forming(room, curve, limits, cap, start_s, Group(reason=reason))
    head = forming.lead()
    if head is None:
        return forming.group
    key = room.key(head.size)
    forming.key = key
    if forming.fill(key) and room.classed:
        for other in room.near(key):
            if not forming.fill(other):
                break
    return forming.group


@dataclass(slots=True)
class _Forming:
    """One batch while it is being put together."""

    room: WaitingRoom
    curve: ServiceCurve
    limits: Limits
    cap: int
    start_s: float | None
    group: Group
    key: int = 0
    """Size class of the first member."""
    late_before_s: float = -inf
    """Who is due before this cannot be answered in time by this batch."""

    def lead(self) -> Request | None:
        """The most urgent request that can be on time becomes the first member."""
        head = self.room.head()
        while head is not None and self.start_s is not None:
            self.late_before_s = self.start_s + self._run_s(head)
            if head.due_s >= self.late_before_s:
                break
            self._set_aside(head)
            head = self.room.head()
        if head is not None:
            self._take(head)
        return head

    def fill(self, key: int) -> bool:
        """Take members from one class; False when the batch is closed."""
        group, limits = self.group, self.limits
        while True:
            request = self.room.head_of(key)
            if request is None:
                return True
            if request.due_s < self.late_before_s:
                self._set_aside(request)
                continue
            rows = group.rows + request.rows
            if rows > self.cap:
                return False
            longest = max(group.longest, request.size)
            total = group.total + request.size * request.rows
            size = rows * longest if limits.form == "padded" else total
            if size > limits.budget:
                group.reason = Close.BUDGET
                return key == self.key and limits.form == "padded"
            if key != self.key and not self._pays(request, rows, longest, total):
                group.reason = Close.UNLIKE
                return True
            self._take(request)

    def _run_s(self, head: Request) -> float:
        """Predicted run time of the batch that a request would lead, of others like it."""
        like = self.room.class_rows[head.place]
        rows = max(min(self.cap, like), head.rows)
        mean = head.size if self.room.classed else self.room.mean_size
        return self.curve.predict(rows, head.size, head.size + (rows - 1) * mean)

    def _take(self, request: Request) -> None:
        self.room.remove(request, State.RUNNING)
        self.group.admit(request)

    def _set_aside(self, request: Request) -> None:
        # Out of the heap so that the search goes on; the caller decides on it before anyone else
        # looks.
        self.room.remove(request, State.NEW)
        self.group.late.append(request)

    def _pays(self, request: Request, rows: int, longest: float, total: float) -> bool:
        """Does one more row cost no more with the others than alone, and make nobody late?"""
        curve, group = self.curve, self.group
        if curve.knows(rows) and curve.knows(group.rows) and curve.knows(request.rows):
            together_s = curve.predict(rows, longest, total)
            apart_s = curve.predict(group.rows, group.longest, group.total)
            alone_s = curve.predict(request.rows, request.size, request.size * request.rows)
            due_s = min(group.due_s, request.due_s)
            if self.start_s is not None and self.start_s + together_s > due_s:
                return False
            return together_s <= apart_s + alone_s
        return padding_waste(rows * longest, total) <= self.limits.waste_max
