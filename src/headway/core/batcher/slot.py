"""The compute slot: models of different kinds that share one device take turns on it.

Knows who holds the device and who waits for it; must not know batches or costs.
"""

from __future__ import annotations

from math import inf

ACTIVE_S = 10.0
"""A model that had a request this recently counts as sharing the device."""


class ComputeSlot:
    """One device. A model takes the slot for one batch and gives it back when that batch ends.

    Of those who wait the one that has had the least device time goes first, so that a model of
    many short batches is not kept to one of them for each long batch of another (as in virtual
    token counters, OSDI 2024). Nobody is ahead by more than the longest batch.
    """

    def __init__(self) -> None:
        self._seen_s: dict[str, float] = {}
        self._waits_since_s: dict[str, float] = {}
        self._used_s: dict[str, float] = {}
        """Device time of each model, level at the moment it came back from being idle."""
        self._busy: set[str] = set()
        """Models that wait or run, without a pause since they were levelled."""
        self._taken_s = 0.0
        self.holder: str | None = None
        self.shared = False
        """More than one model lives here."""

    def join(self, name: str) -> None:
        """A model lives on this device."""
        self._seen_s[name] = -inf
        self._used_s[name] = 0.0
        self.shared = len(self._seen_s) > 1

    def saw(self, name: str, now: float) -> None:
        """A request for this model arrived."""
        self._seen_s[name] = now

    def contended(self, name: str, now: float) -> bool:
        """Has another model used the device lately, so that long batches would make it wait?"""
        return any(now - s <= ACTIVE_S for other, s in self._seen_s.items() if other != name)

    def try_take(self, name: str, now: float) -> bool:
        """Take the slot if it is free and nobody who waits for it has had less of the device."""
        mine = self._line_up(name, now)
        if self.holder is not None:
            return False
        if any(self._rank(other) < mine for other in self._waits_since_s if other != name):
            return False
        del self._waits_since_s[name]
        self.holder = name
        self._taken_s = now
        return True

    def give_back(self, name: str, now: float) -> None:
        """The batch ended, however it ended."""
        assert self.holder == name, f"{name} gave back a slot held by {self.holder}"
        self.holder = None
        self._used_s[name] += now - self._taken_s

    def withdraw(self, name: str) -> None:
        """This model does not want the device now."""
        self._waits_since_s.pop(name, None)
        if self.holder != name:
            self._busy.discard(name)

    def wanted(self, name: str) -> bool:
        """Is the device free while another model waits for it? That one must be asked."""
        return self.holder is None and any(other != name for other in self._waits_since_s)

    def _line_up(self, name: str, now: float) -> tuple[float, float]:
        self._waits_since_s.setdefault(name, now)
        if name not in self._busy:
            # Time it did not ask for while idle is not saved up: it starts level with the others.
            others = [self._used_s[other] for other in self._busy]
            self._used_s[name] = max([self._used_s[name], *([min(others)] if others else [])])
            self._busy.add(name)
        return self._rank(name)

    def _rank(self, name: str) -> tuple[float, float]:
        return self._used_s[name], self._waits_since_s[name]
