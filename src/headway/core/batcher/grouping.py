"""Which requests ride together: the most urgent one, and others that make the trip cheaper.

Knows sizes, the service curve and the limits of one batch; must not know workers or policies.

The rule has one quantity: another row joins when running it with the others is predicted to cost no
more device time than running it by itself. Like sizes, no batching at all and everything together
are all cases of it. Until the curve knows, the share of padding decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop
from math import inf

from headway.core.batch import Close, Form, padding_waste
from headway.core.batcher.waiting import WaitingRoom
from headway.core.estimate import ServiceCurve
from headway.core.request import Request, State

RUNNING, WAITING = State.RUNNING, State.WAITING


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
    group = Group(reason=reason)
    rule = _Rule(curve, limits, cap, start_s)
    head = _lead(room, group, rule)
    if head is None:
        return group
    rule.head_key = room.key(head.size)
    if _fill(room, rule.head_key, group, rule) and room.classed:
        for key in room.near(rule.head_key):
            if not _fill(room, key, group, rule):
                break
    room.left(group.requests, group.rows, group.total)
    return group


@dataclass(slots=True)
class _Rule:
    """What one batch is formed by."""

    curve: ServiceCurve
    limits: Limits
    cap: int
    start_s: float | None
    late_before_s: float = -inf
    """Who is due before this cannot be answered in time by this batch."""
    head_key: int = 0
    """Size class of the most urgent member."""


def _lead(room: WaitingRoom, group: Group, rule: _Rule) -> Request | None:
    """The most urgent request that can still be on time."""
    head = room.head()
    while head is not None and rule.start_s is not None:
        rule.late_before_s = rule.start_s + _run_s(room, head, rule)
        if head.due_s >= rule.late_before_s:
            break
        # Out of the room so that the search goes on; the caller decides on it.
        room.remove(head, State.NEW)
        group.late.append(head)
        head = room.head()
    return head


def _run_s(room: WaitingRoom, head: Request, rule: _Rule) -> float:
    """Predicted run time of the batch that a request would lead, of others like it."""
    rows = max(min(rule.cap, room.rows_like(head)), head.rows)
    mean = head.size if room.classed else room.mean_size
    return rule.curve.predict(rows, head.size, head.size + (rows - 1) * mean)


def _fill(room: WaitingRoom, key: int, group: Group, rule: _Rule) -> bool:
    """Take members from one class; False when the batch is closed."""
    heap = room.heap(key)
    limits, cap, late_before_s = rule.limits, rule.cap, rule.late_before_s
    other = key != rule.head_key
    padded = limits.form == "padded"
    members, rows, longest, total = group.requests, group.rows, group.longest, group.total
    is_open = True
    while heap:
        level, due_s, _, request = heap[0]
        if request.state is not WAITING or request.place != key or request.level != level:
            heappop(heap)
            continue
        if due_s < late_before_s:
            room.remove(request, State.NEW)
            group.late.append(request)
            continue
        if rows + request.rows > cap and members:
            is_open = False
            break
        size = request.size
        all_rows = rows + request.rows
        all_longest = size if size > longest else longest
        all_total = total + size * request.rows
        if (all_rows * all_longest if padded else all_total) > limits.budget and members:
            group.reason = Close.BUDGET
            # A smaller class may still fit where padding made this one too large.
            is_open = padded and not other
            break
        if other and not _pays(group, request, rule, all_rows, all_longest, all_total):
            group.reason = Close.UNLIKE
            break
        heappop(heap)
        request.state = RUNNING
        members.append(request)
        group.rows, group.longest, group.total = rows, longest, total = (
            all_rows,
            all_longest,
            all_total,
        )
        group.due_s = min(group.due_s, due_s)
    return is_open


def _pays(
    group: Group, request: Request, rule: _Rule, rows: int, longest: float, total: float
) -> bool:
    """Does one more row cost no more with the others than alone, and make nobody late?"""
    curve = rule.curve
    if curve.knows(rows) and curve.knows(group.rows) and curve.knows(request.rows):
        together_s = curve.predict(rows, longest, total)
        due_s = min(group.due_s, request.due_s)
        if rule.start_s is not None and rule.start_s + together_s > due_s:
            return False
        apart_s = curve.predict(group.rows, group.longest, group.total)
        alone_s = curve.predict(request.rows, request.size, request.size * request.rows)
        return together_s <= apart_s + alone_s
    return padding_waste(rows * longest, total) <= rule.limits.waste_max
