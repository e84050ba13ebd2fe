"""The compute slot: models of different kinds that share one device take turns on it.

Knows who holds the device and who waits for it; must not know batches or costs.
"""

from __future__ import annotations

from math import inf

ACTIVE_S = 10.0
"""A model that had a request this recently counts as sharing the device."""


class ComputeSlot:
    """One device. A model takes the slot for one batch and gives it back when that batch ends."""

    def __init__(self) -> None:
        self._seen_s: dict[str, float] = {}
        self._waits_since_s: dict[str, float] = {}
        self.holder: str | None = None
        self.shared = False
        """More than one model lives here."""

    def join(self, name: str) -> None:
        """A model lives on this device."""
        self._seen_s[name] = -inf
        self.shared = len(self._seen_s) > 1

    def saw(self, name: str, now: float) -> None:
        """A request for this model arrived."""
        self._seen_s[name] = now

    def contended(self, name: str, now: float) -> bool:
        """Has another model used the device lately, so that long batches would make it wait?"""
        return any(now - s <= ACTIVE_S for other, s in self._seen_s.items() if other != name)

    def try_take(self, name: str, now: float) -> bool:
        """Take the slot if it is free and nobody has waited longer; otherwise wait for it."""
        mine_s = self._waits_since_s.setdefault(name, now)
        if self.holder is not None:
            return False
        if any(s < mine_s for other, s in self._waits_since_s.items() if other != name):
            return False
        del self._waits_since_s[name]
        self.holder = name
        return True

    def give_back(self, name: str) -> None:
        """The batch ended, however it ended."""
        assert self.holder == name, f"{name} gave back a slot held by {self.holder}"
        self.holder = None

    def withdraw(self, name: str) -> None:
        """Nothing waits for this model any more."""
        self._waits_since_s.pop(name, None)
