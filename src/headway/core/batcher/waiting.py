"""The waiting room: requests that wait, by urgency and by size, with every count admission needs.

Knows order, sizes and expiry; must not know workers, policies or costs.

Requests of like size share a class (sizes within 19 %), each class is a heap by (level, due,
arrival), so that the most urgent request overall and the most urgent of a like size are both found
without looking at the queue. A request that leaves from the middle stays in the heaps as a stale
entry; they are rebuilt when stale entries outnumber live ones by far.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf, log2

from headway.core.request import Request, State

WAITING = State.WAITING
CLASSES_PER_DOUBLING = 4
"""Size classes between a size and twice that size."""

STALE_MIN = 64
"""Stale entries always tolerated."""
STALE_PER_REQUEST = 4
"""Stale entries tolerated per waiting request, so that a rebuild costs little per removal."""

Entry = tuple[int, float, int, Request]
Timed = tuple[float, int, Request]


def size_class(size: float) -> int:
    """Index of the class of a size; sizes below one share class 0."""
    return 0 if size <= 1.0 else 1 + int(log2(size) * CLASSES_PER_DOUBLING)


class WaitingRoom:
    """Requests that wait. One owner: whoever takes one out runs it, refuses it or drops it."""

    __slots__ = (
        "_ages",
        "_classes",
        "_deadlines",
        "_ranks",
        "bytes",
        "class_rows",
        "classed",
        "requests",
        "rows",
        "size",
        "wait_s_max",
    )

    def __init__(
        self, *, classed: bool = False, wait_s_max: float = inf, ranked: bool = False
    ) -> None:
        self.classed = classed
        self.wait_s_max = wait_s_max
        self.requests = 0
        self.rows = 0
        self.bytes = 0
        self.size = 0.0
        self.class_rows: defaultdict[int, int] = defaultdict(int)
        self._classes: dict[int, list[Entry]] = {}
        self._ranks: list[tuple[int, float]] | None = [] if ranked else None
        """(level, due) of everyone in order, where somebody asks how many are ahead."""
        self._ages: list[Timed] = []
        self._deadlines: list[Timed] = []

    def add(self, request: Request, level: int, due_s: float) -> None:
        """Let a request wait. Lower `level` goes first, then the earlier `due_s`, then arrival."""
        request.state = WAITING
        request.level = level
        request.due_s = due_s
        key = request.place = size_class(request.size) if self.classed else 0
        heap = self._classes.get(key)
        if heap is None:
            heap = self._classes[key] = []
        heappush(heap, (level, due_s, request.id, request))
        if request.expires_s < inf:
            heappush(self._deadlines, (request.expires_s, request.id, request))
        # By arrival: one that returns from a lost worker takes its old place.
        heappush(self._ages, (request.arrival_s, request.id, request))
        self.requests += 1
        if self._ranks is not None:
            insort(self._ranks, (level, due_s))
        if self.classed:
            self.class_rows[request.place] += request.rows
        self.rows += request.rows
        self.bytes += len(request.payload)
        self.size += request.size * request.rows

    def rows_like(self, request: Request) -> int:
        """Rows that wait in the size class of a waiting request, its own included."""
        return self.class_rows[request.place] if self.classed else self.rows

    def heap(self, key: int) -> list[Entry]:
        """The entries of one class, the most urgent first. Whoever pops one says so with `left`."""
        return self._classes.get(key, [])

    def left(self, requests: list[Request], rows: int, size: float) -> None:
        """These were popped from their heaps; together they have so many rows and so much size."""
        self.requests -= len(requests)
        self.rows -= rows
        self.size -= size
        self.bytes -= sum([len(request.payload) for request in requests])
        if self.classed:
            for request in requests:
                self.class_rows[request.place] -= request.rows
        if self._ranks is not None:
            for request in requests:
                _unrank(self._ranks, request)
        if self.requests == 0:
            self._clear()
        else:
            self._tidy()

    def remove(self, request: Request, state: State) -> None:
        """Take one out of wherever it waits, into `state`."""
        request.state = state
        self.requests -= 1
        self.rows -= request.rows
        self.bytes -= len(request.payload)
        self.size -= request.size * request.rows
        if self.classed:
            self.class_rows[request.place] -= request.rows
        if self._ranks is not None:
            _unrank(self._ranks, request)
        if self.requests == 0:
            self._clear()
        else:
            self._tidy()

    def resize(self, request: Request, size: float) -> None:
        """A waiting request turned out to have another size."""
        self.size += (size - request.size) * request.rows
        moved = self.classed and size_class(size) != size_class(request.size)
        request.size = size
        if moved:
            self.class_rows[request.place] -= request.rows
            self._push(request)
            self.class_rows[request.place] += request.rows
            self._tidy()

    def demote(self, request: Request, level: int) -> None:
        """Serve it only after everyone of a lower level; it no longer expires."""
        request.demoted = True
        if self._ranks is not None:
            _unrank(self._ranks, request)
            insort(self._ranks, (level, request.due_s))
        request.level = level
        request.expires_s = inf
        self._push(request)
        self._tidy()

    def requests_before(self, level: int, due_s: float) -> int:
        """How many wait that go before one of this level and time; only where `ranked`."""
        assert self._ranks is not None
        return bisect_right(self._ranks, (level, due_s))

    @property
    def mean_size(self) -> float:
        """Mean size per row of what waits."""
        return self.size / self.rows if self.rows else 0.0

    def reclass(self, *, classed: bool) -> None:
        """Sort by size from now on, or no more."""
        if classed != self.classed:
            waiting = list(self)
            self.classed = classed
            self._resort(waiting)
            self.class_rows.clear()
            for request in waiting:
                self.class_rows[request.place] += request.rows

    def head(self) -> Request | None:
        """The most urgent request."""
        best: Entry | None = None
        for key in list(self._classes):
            entry = self._top(key)
            if entry is not None and (best is None or entry < best):
                best = entry
        return None if best is None else best[3]

    def head_of(self, key: int) -> Request | None:
        """The most urgent request of one size class."""
        entry = self._top(key)
        return None if entry is None else entry[3]

    def key(self, size: float) -> int:
        """The class a size belongs to here."""
        return size_class(size) if self.classed else 0

    def near(self, key: int) -> Iterator[int]:
        """Other classes that have entries, the most alike first; of two, the smaller,
        since a smaller item adds no padding to the others."""
        others = [k for k in self._classes if k != key]
        others.sort(key=lambda k: (abs(k - key), k > key))
        return iter(others)

    def oldest(self) -> Request | None:
        """The request that arrived first, of those that may still expire."""
        ages = self._ages
        while ages and ages[0][2].state is not State.WAITING:
            heappop(ages)
        return ages[0][2] if ages else None

    def expired(self, now: float) -> list[Request]:
        """Requests that may wait no longer. They stay until removed or demoted."""
        # By id: one that came back has an entry for each time it was let in.
        out: dict[int, Request] = {}
        heap = self._deadlines
        while heap and (heap[0][0] <= now or heap[0][2].state is not State.WAITING):
            request = heappop(heap)[2]
            if request.state is State.WAITING and request.expires_s <= now:
                out[request.id] = request
        # The same sum as in `next_expiry_s`: a difference would round otherwise, and at that very
        # moment nobody would be too old yet.
        ages, wait_s_max = self._ages, self.wait_s_max
        while ages and (ages[0][0] + wait_s_max <= now or ages[0][2].state is not State.WAITING):
            request = heappop(ages)[2]
            if request.state is State.WAITING:
                out[request.id] = request
        return list(out.values())

    def next_expiry_s(self) -> float:
        """When `expired` will next have something to say, `inf` for never."""
        heap = self._deadlines
        while heap and heap[0][2].state is not State.WAITING:
            heappop(heap)
        first_s = heap[0][0] if heap else inf
        oldest = self.oldest()
        if oldest is not None:
            first_s = min(first_s, oldest.arrival_s + self.wait_s_max)
        return first_s

    def __iter__(self) -> Iterator[Request]:
        """Everyone who waits, in no order."""
        seen: set[int] = set()
        for heap in self._classes.values():
            for entry in heap:
                request = entry[3]
                if _live(entry) and request.id not in seen:
                    seen.add(request.id)
                    yield request

    def _push(self, request: Request) -> None:
        key = size_class(request.size) if self.classed else 0
        request.place = key
        heap = self._classes.get(key)
        if heap is None:
            heap = self._classes[key] = []
        heappush(heap, (request.level, request.due_s, request.id, request))

    def _top(self, key: int) -> Entry | None:
        heap = self._classes.get(key)
        if heap is None:
            return None
        while heap:
            entry = heap[0]
            request = entry[3]
            if (
                request.state is State.WAITING
                and request.place == key
                and request.level == entry[0]
            ):
                return entry
            heappop(heap)
        del self._classes[key]
        return None

    def _clear(self) -> None:
        self.size = 0.0
        self._classes.clear()
        self._ages.clear()
        self._deadlines.clear()

    def _tidy(self) -> None:
        """Drop stale entries once there are too many of them."""
        most = STALE_MIN + (1 + STALE_PER_REQUEST) * self.requests
        if sum(map(len, self._classes.values())) > most:
            self._resort(list(self))
        if len(self._ages) > most:
            self._ages = _waiting(self._ages)
        if len(self._deadlines) > most:
            self._deadlines = _waiting(self._deadlines)

    def _resort(self, waiting: list[Request]) -> None:
        self._classes.clear()
        for request in waiting:
            self._push(request)


def _unrank(ranks: list[tuple[int, float]], request: Request) -> None:
    del ranks[bisect_left(ranks, (request.level, request.due_s))]


def _waiting(heap: list[Timed]) -> list[Timed]:
    """Those entries whose request still waits, once each, as a heap."""
    live = {entry[1]: entry for entry in heap if entry[2].state is State.WAITING}
    out = list(live.values())
    heapify(out)
    return out


def _live(entry: Entry) -> bool:
    request = entry[3]
    return request.state is State.WAITING and request.level == entry[0]
