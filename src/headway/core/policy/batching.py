"""When a batch goes, and how large it may be.

A policy sees a `View` and the time and returns a value. It never acts, never keeps a clock and
never looks at single requests. Sources: static windows as in every serving framework; `greedy` is
the work-conserving rule that is within a few per cent of the optimum (Deb & Serfozo 1973; Xu, Zhou,
Niu 2023); `deadline` adds early drop with full batches (Nexus, SOSP 2019) and predicted-finish
admission (Clockwork, OSDI 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from headway.core.batch import Close
from headway.core.config import ModelConfig

HOLD_SHARE = 0.1
"""The hold after a reply lasts at most this share of the last batch's run time."""
HOLD_RUN_S_MIN = 100e-6
"""Batches shorter than this are never held for: a hold would cost more than it saves."""
EARLY_SHARE = 0.1
"""A full batch may leave for a busy worker this share of a run time early: predictions are not
exact, and a batch handed over sooner would only lock out whoever is more urgent."""
RETURN_GAIN_MIN = 0.25
"""Hold only for at least this many rows expected back within the hold for each one that waits."""


@dataclass(slots=True)
class View:
    """What a policy may know. Times are absolute seconds, row counts whole numbers."""

    waiting_rows: int = 0
    oldest_s: float = inf
    """Arrival of the request that has waited longest."""
    running_rows: int = 0
    """Rows that workers have."""
    cap_rows: int = 1
    """Most rows a batch may have now."""
    cap_reason: Close = Close.FULL
    """What set `cap_rows`: the hard maximum, b*, the budget or the compute slot."""
    free_s: float = -inf
    """Predicted time a worker is free; `-inf` when one is idle, `inf` when nobody can tell."""
    lead_s: float = 0.0
    """How long before a worker is free a batch must leave to be there in time."""
    finished_s: float = -inf
    """When the last batch was answered."""
    run_s: float = 0.0
    """How long it ran."""
    answered_rows: int = 0
    returned_rows: int = 0
    """Rows that arrived since then."""
    return_share: float = 0.0
    """Share of answered rows that lately came back within the hold: near 1 when clients are closed
    loops."""
    latest_s: float = inf
    """When the batch must leave for its most urgent member to be on time; `inf` for no matter."""
    draining: bool = False


@dataclass(slots=True)
class Dispatch:
    """Form a batch of at most `rows` now."""

    rows: int
    reason: Close


@dataclass(slots=True)
class Wait:
    """Nothing to do before `until_s` unless something arrives or ends."""

    until_s: float = inf


Decision = Dispatch | Wait
FOREVER = Wait()


class BatchingPolicy(Protocol):
    """Decides when a batch goes."""

    name: str
    pads: bool
    """Batches are filled up to the cap with copies."""

    def decide(self, view: View, now: float) -> Decision:
        """Called when something waits and a worker has room."""


def comes_back(view: View) -> bool:
    """Are enough of those just answered expected back at once to be worth a hold?"""
    expected_rows = view.return_share * view.answered_rows
    return expected_rows >= RETURN_GAIN_MIN * max(view.waiting_rows - view.returned_rows, 1)


def full_batch(view: View, now: float) -> Decision:
    """A full batch goes to an idle worker at once, to a busy one just before it is free."""
    early_s = view.lead_s + EARLY_SHARE * view.run_s
    until_s = view.free_s - early_s
    return Dispatch(view.cap_rows, view.cap_reason) if now >= until_s else Wait(until_s)


class Static:
    """Fixed size: a batch goes when it is full, or when its oldest member has waited for the
    window."""

    name = "static"

    def __init__(self, config: ModelConfig) -> None:
        self.window_s = config.batch_window_ms / 1e3
        self.pads = config.pad_batches

    def decide(self, view: View, now: float) -> Decision:
        if view.waiting_rows >= view.cap_rows:
            return full_batch(view, now)
        if now < view.free_s - view.lead_s:
            return Wait(view.free_s - view.lead_s)
        if view.draining:
            return Dispatch(view.cap_rows, Close.DRAIN)
        until_s = view.oldest_s + self.window_s
        return Dispatch(view.cap_rows, Close.WINDOW) if now >= until_s else Wait(until_s)


class Greedy:
    """Whatever waits goes when a worker is idle, up to the best size.

    A busy worker is given its next batch just before it is free. After a reply a partial batch is
    held for a moment while clients that were just answered come back, since closed-loop clients
    would otherwise split into two small alternating batches.
    """

    name = "greedy"
    pads = False

    def __init__(self, config: ModelConfig) -> None:
        self.holds = config.hold

    def decide(self, view: View, now: float) -> Decision:
        if view.waiting_rows >= view.cap_rows:
            return full_batch(view, now)
        loops = self.holds and not view.draining and comes_back(view)
        if view.free_s > -inf:
            decision = self._while_busy(view, now, loops)
            if decision is not None:
                return decision
        if view.draining:
            return Dispatch(view.cap_rows, Close.DRAIN)
        if not loops or view.run_s < HOLD_RUN_S_MIN:
            return Dispatch(view.cap_rows, Close.IDLE)
        until_s = view.finished_s + HOLD_SHARE * view.run_s
        if now >= until_s:
            return Dispatch(view.cap_rows, Close.HOLD)
        if view.returned_rows < view.answered_rows:
            return Wait(until_s)
        return Dispatch(view.cap_rows, Close.IDLE)

    def _while_busy(self, view: View, now: float, loops: bool) -> Decision | None:
        """What to do with a partial batch while every worker has one; None when one is as good as
        free."""
        if 0.0 < view.run_s < view.lead_s:
            # The way is longer than the work: two batches of equal size, one on its way and one
            # being filled, make the fewest trips that leave nobody idle.
            if view.waiting_rows >= view.running_rows:
                return Dispatch(view.cap_rows, Close.IDLE)
            return FOREVER
        if loops:
            # Clients that come back after a reply would miss a batch that left early.
            return FOREVER
        early_s = view.free_s - view.lead_s
        return Wait(early_s) if now < early_s else None


class Deadline(Greedy):
    """Greedy on requests in the order of their deadlines, with those that cannot make it left out.

    The batch stays as large as the objective allows: shrinking it to save a late request costs
    everyone. No hold outlasts the slack of the most urgent.
    """

    name = "deadline"

    def decide(self, view: View, now: float) -> Decision:
        decision = super().decide(view, now)
        idle = now >= view.free_s - view.lead_s
        if not idle or isinstance(decision, Dispatch) or decision.until_s <= view.latest_s:
            return decision
        if now >= view.latest_s:
            return Dispatch(view.cap_rows, Close.DEADLINE)
        return Wait(view.latest_s)
