"""Order, expiry and counts of the requests that wait."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.batcher.waiting import WaitingRoom, size_class
from headway.core.request import Request, State
from tests.core.stage import Answer, Stage

STAGE = Stage(start=False)


def request(
    id: int, *, arrival_s: float = 0.0, size: float = 1.0, expires_s: float = inf
) -> Request:
    return Request(
        id=id, payload=b"", arrival_s=arrival_s, reply=Answer(STAGE), size=size, expires_s=expires_s
    )


def room_of(*requests: Request, classed: bool = False, wait_s_max: float = inf) -> WaitingRoom:
    room = WaitingRoom(classed=classed, wait_s_max=wait_s_max)
    for r in requests:
        room.add(r, 1, r.arrival_s)
    return room


def test_level_then_due_then_arrival() -> None:
    room = WaitingRoom(classed=False)
    for id, level, due_s in ((1, 2, 0.0), (2, 1, 5.0), (3, 1, 4.0), (4, 1, 4.0)):
        room.add(request(id), level, due_s)
    order = []
    while (head := room.head()) is not None:
        order.append(head.id)
        room.remove(head, State.RUNNING)
    assert order == [3, 4, 2, 1]
    assert room.oldest() is None and room.head_of(0) is None


def test_like_sizes_share_a_class_and_classes_are_no_wider_than_19_per_cent() -> None:
    for size in (2.0, 10.0, 100.0, 5000.0):
        assert size_class(size) != size_class(size * 1.2)
        assert size_class(size * 1.01) - size_class(size) <= 1
    assert size_class(0.0) == size_class(1.0) == 0


def test_near_classes_come_first_and_of_two_the_smaller() -> None:
    room = room_of(*[request(i, size=2.02 * 2.0 ** (i / 4)) for i in range(-3, 5)], classed=True)
    key = room.key(2.0)
    distances = [other - key for other in room.near(key)]
    assert distances[:4] == [-1, 1, -2, 2]
    assert room.key(2.0) == size_class(2.0) and WaitingRoom(classed=False).key(2.0) == 0


def test_how_many_are_ahead_counts_level_then_due() -> None:
    room = WaitingRoom(classed=False, ranked=True)
    everyone = [request(i) for i in range(4)]
    for r, level, due_s in zip(everyone, (1, 2, 2, 2), (9.0, 3.0, 5.0, inf), strict=True):
        room.add(r, level, due_s)
    assert [room.requests_before(2, due_s) for due_s in (1.0, 4.0, 5.0, inf)] == [1, 2, 3, 4]
    room.left([everyone[0]], 1, 1.0)
    room.remove(everyone[2], State.CANCELLED)
    assert room.requests_before(2, 7.0) == 1 and room.requests_before(1, inf) == 0


def test_expiry_by_its_own_time_and_by_the_queues() -> None:
    own = request(1, arrival_s=0.0, expires_s=3.0)
    old = request(2, arrival_s=1.0)
    young = request(3, arrival_s=9.0)
    room = room_of(own, old, young, wait_s_max=5.0)
    assert room.next_expiry_s() == 3.0
    assert room.expired(2.9) == []
    assert room.expired(3.0) == [own]
    room.remove(own, State.DONE)
    assert room.next_expiry_s() == 6.0
    assert room.expired(6.0) == [old]
    room.remove(old, State.DONE)
    assert room.next_expiry_s() == 14.0


def test_one_that_is_late_by_both_clocks_is_named_once() -> None:
    both = request(1, expires_s=1.0)
    room = room_of(both, request(2, arrival_s=9.0), wait_s_max=1.0)
    assert room.expired(1.0) == [both]


@pytest.mark.parametrize("arrival_s", [0.1, 0.3, 1.1, 123.456, 86400.7])
def test_the_time_named_is_the_time_it_expires(arrival_s: float) -> None:
    for wait_s_max in (0.1, 0.2, 0.7, 30.0):
        waits = request(1, arrival_s=arrival_s)
        room = room_of(waits, wait_s_max=wait_s_max)
        assert room.expired(room.next_expiry_s()) == [waits]


def test_one_that_left_does_not_expire() -> None:
    gone = request(1, expires_s=1.0)
    room = room_of(gone, request(2, arrival_s=0.5), wait_s_max=5.0)
    room.remove(gone, State.CANCELLED)
    assert room.next_expiry_s() == 5.5
    assert room.expired(2.0) == []
    room = room_of(gone := request(1, expires_s=1.0), request(2), wait_s_max=inf)
    room.remove(gone, State.CANCELLED)
    assert room.expired(2.0) == [] and room.next_expiry_s() == inf


def test_the_demoted_go_last_and_no_longer_expire() -> None:
    late, other = request(1, expires_s=1.0), request(2, arrival_s=0.5)
    room = WaitingRoom(classed=False, wait_s_max=1.0, ranked=True)
    for r in (late, other):
        room.add(r, 1, r.arrival_s)
    assert room.expired(1.0) == [late]
    room.demote(late, 3)
    assert room.head() is other and late.demoted
    assert room.requests_before(1, inf) == 1 and room.requests_before(3, inf) == 2
    assert room.expired(1.4) == [] and room.next_expiry_s() == 1.5
    room.remove(other, State.DONE)
    assert room.head() is late and room.expired(99.0) == []


def test_one_that_returns_from_a_lost_worker_takes_its_old_place() -> None:
    first, second = request(1, arrival_s=0.0), request(2, arrival_s=1.0)
    room = room_of(first, second, wait_s_max=10.0)
    room.remove(first, State.RUNNING)
    assert room.oldest() is second
    room.add(first, first.level, first.due_s)
    assert room.head() is first and room.oldest() is first
    assert room.next_expiry_s() == 10.0


def test_sorting_by_size_can_be_switched_while_requests_wait() -> None:
    small, large = request(1, size=2.0), request(2, size=500.0)
    room = room_of(small, large)
    assert room.rows_like(small) == room.rows_like(large) == 2
    room.reclass(classed=True)
    room.reclass(classed=True)
    assert room.head_of(size_class(500.0)) is large
    assert room.rows_like(small) == room.rows_like(large) == 1
    room.remove(small, State.DONE)
    assert room.head() is large and room.mean_size == 500.0


def test_a_request_of_another_size_moves_and_is_found_once() -> None:
    moved, other = request(1, size=2.0), request(2, size=3.0)
    room = room_of(moved, other, classed=True)
    room.resize(moved, 500.0)
    room.resize(moved, 2.0)
    room.resize(moved, 2.01)
    assert sorted(r.id for r in room) == [1, 2]
    assert room.head() is moved and room.size == pytest.approx(5.01)


def test_many_that_leave_from_the_middle_cost_no_lasting_memory() -> None:
    everyone = [request(i, arrival_s=i, expires_s=1e9 + i) for i in range(1000)]
    room = room_of(*everyone, classed=True, wait_s_max=1e6)
    for r in everyone[1:]:
        room.remove(r, State.CANCELLED)
    assert list(room) == [everyone[0]]
    assert len(room._ages) + len(room._deadlines) <= 2 * (64 + 6)
    assert room.head() is everyone[0] is room.oldest()


def test_one_that_was_let_in_twice_expires_once() -> None:
    again = request(1, expires_s=1.0)
    room = room_of(again, request(2, arrival_s=9.0), wait_s_max=1.0)
    room.remove(again, State.NEW)
    room.add(again, 3, inf)
    assert room.expired(1.0) == [again]
