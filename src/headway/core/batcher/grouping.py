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
    reason: Close = Close.IDLE

    def admit(self, request: Request) -> None:
        """Count one more member."""
        self.requests.append(request)
        self.rows += request.rows
        self.longest = max(self.longest, request.size)
        self.total += request.size * request.rows


def form_group(
    room: WaitingRoom,
    curve: ServiceCurve,
    limits: Limits,
    *,
    cap: int,
    reason: Close,
    late_before_s: float = -inf,
) -> Group:
    """Take the most urgent request and its like out of the room, up to `cap` rows.

    Requests whose `due_s` is before `late_before_s` are left waiting and listed as late. Costs at
    most the batch and the size classes, never the queue.
    """
    group = Group(reason=reason)
    head = room.head()
    while head is not None and head.due_s < late_before_s:
        _set_aside(room, head, group)
        head = room.head()
    if head is None:
        return group
    _take(room, head, group)
    key = room.key(head.size)
    if not _fill(room, key, group, curve, limits, cap, late_before_s):
        return group
    if room.classed:
        for other in room.near(key):
            if not _fill(room, other, group, curve, limits, cap, late_before_s):
                return group
    return group


def _take(room: WaitingRoom, request: Request, group: Group) -> None:
    room.remove(request, State.RUNNING)
    group.admit(request)


def _set_aside(room: WaitingRoom, request: Request, group: Group) -> None:
    # Out of the heap so that the search goes on; the caller decides on it before anyone else looks.
    room.remove(request, State.NEW)
    group.late.append(request)


def _fill(
    room: WaitingRoom,
    key: int,
    group: Group,
    curve: ServiceCurve,
    limits: Limits,
    cap: int,
    late_before_s: float,
) -> bool:
    """Take members from one class; False when the batch is closed."""
    head_class = room.key(group.requests[0].size)
    while True:
        request = room.head_of(key)
        if request is None:
            return True
        if request.due_s < late_before_s:
            _set_aside(room, request, group)
            continue
        rows = group.rows + request.rows
        if rows > cap:
            return False
        longest = max(group.longest, request.size)
        total = group.total + request.size * request.rows
        size = rows * longest if limits.form == "padded" else total
        if size > limits.budget:
            group.reason = Close.BUDGET
            return key == head_class and limits.form == "padded"
        if key != head_class and not _pays(group, request, curve, limits, rows, longest, total):
            group.reason = Close.UNLIKE
            return True
        _take(room, request, group)


def _pays(
    group: Group,
    request: Request,
    curve: ServiceCurve,
    limits: Limits,
    rows: int,
    longest: float,
    total: float,
) -> bool:
    """Does one more row cost no more with the others than alone?"""
    if curve.knows(rows) and curve.knows(group.rows) and curve.knows(request.rows):
        together_s = curve.predict(rows, longest, total)
        apart_s = curve.predict(group.rows, group.longest, group.total)
        alone_s = curve.predict(request.rows, request.size, request.size * request.rows)
        return together_s <= apart_s + alone_s
    return padding_waste(rows * longest, total) <= limits.waste_max
