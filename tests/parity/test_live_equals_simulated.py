"""The live driver on a virtual clock decides exactly as the simulator does.

Live: asyncio's own event loop, the server's own clock, one ordered inbox. Simulated: `sim.world`.
Both get the same load, and every batch and every answer must be the same, to the last bit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from headway.core.config import ModelConfig
from headway.core.ports import ModelInfo
from headway.server.clock import LoopClock
from headway.sim.arrivals import Arrival, ClosedLoop, Marks, log_uniform, poisson, tied
from headway.sim.replica import Crashes, Log, Replica, warm_runs
from headway.sim.run_time import ServiceTime
from tests.parity.virtual_loop import Inbox, InboxTimer, VirtualLoop

SEEDS = range(50)
POLICIES = ("greedy", "deadline", "static")
GRID_S = 0.004
"""Tied arrivals fall on multiples of it, and service times are multiples of it too, so that
arrivals, answers and timers meet at the very same moments."""
UNTIL_S = 0.4


class UnfairInbox(Inbox):
    """Lets the newest of several inputs of equal time go first, as no live driver may."""

    def key(self, sequence: int) -> int:
        return -sequence


@dataclass(slots=True)
class Case:
    """One load and one model, from a seed."""

    seed: int
    policy: str
    ties: bool
    closed: bool = False

    def replica(self, **where: object) -> Replica:
        rng = random.Random(f"{self.seed} model")
        exact = self.ties
        form = rng.choice(["list", "padded"])
        service = ServiceTime(
            2 * GRID_S,
            0.0 if exact else 0.0007,
            0.0 if exact else 2e-6,
            form,
            ((1.0, 0.8), (2.0, 0.2)),
            random.Random(f"{self.seed} service"),
        )
        cap = rng.choice([4, 8, 16])
        workers = rng.choice([1, 1, 2])
        config = ModelConfig(
            name="m",
            policy=self.policy,
            max_batch_size=cap,
            workers=workers,
            objective="p99<60ms" if self.policy == "deadline" or rng.random() < 0.3 else "",
            batch_window_ms=GRID_S * 2e3 if self.policy == "static" else 100.0,
            queue_requests_max=rng.choice([16, 64, 1024]),
            queue_wait_s_max=rng.choice([0.05, 30.0]),
            timeout_action=rng.choice(["reject", "delay"]),
            crash_retries=rng.choice([0, 1]),
        )
        warm = warm_runs(service, cap, 64.0) if rng.random() < 0.5 else []
        info = ModelInfo(name="m", form=form, warm=warm)
        replica = Replica(config, service, info=info, crashes=self._crashes(workers), **where)
        replica.executor.hop_s = 0.0 if exact else rng.choice([0.0, 0.0005])
        return replica

    def load(self) -> list[Arrival] | ClosedLoop:
        rng = random.Random(f"{self.seed} load")
        rate = rng.choice([100.0, 300.0, 900.0])
        if self.closed:
            think_s = rng.choice([0.0, 0.003])
            return ClosedLoop(rng.choice([1, 5, 24]), UNTIL_S, think_s)
        times = (
            tied(rate, UNTIL_S, rng, grid_s=GRID_S) if self.ties else poisson(rate, UNTIL_S, rng)
        )
        return list(self.marks().put_on(times, random.Random(f"{self.seed} marks")))

    def marks(self) -> Marks:
        return Marks(
            sizes=log_uniform(16, 512),
            rows=(1, 1, 1, 2, 3),
            priorities=(0, 1),
            deadlines_s=(float("inf"), float("inf"), 0.04, 10 * GRID_S),
            leave_s=0.5,
        )

    def _crashes(self, workers: int) -> Crashes | None:
        if self.seed % 3:
            return None
        rng = random.Random(f"{self.seed} crashes")
        return Crashes.seeded(rng, every_s=0.2, until_s=UNTIL_S, workers=workers, away_s=0.05)


def simulated(case: Case) -> Log:
    return case.replica().play(case.load(), marks=case.marks(), seed=case.seed)


def live(case: Case, inbox: Inbox | None = None) -> Log:
    inbox = inbox or Inbox()
    loop = VirtualLoop(inbox)
    clock = LoopClock(loop, now=lambda: inbox.time_s, timer=InboxTimer(inbox))
    replica = case.replica(timeline=inbox, scheduler=clock)
    try:
        loop.call_soon(lambda: replica.begin(case.load(), marks=case.marks(), seed=case.seed))
        loop.play()
    finally:
        clock.close()
        loop.close()
    return replica.end()


Decisions = tuple[list[tuple[object, ...]], list[tuple[object, ...]]]


def decisions(log: Log) -> Decisions:
    """Every batch and every answer."""
    batches = [(e.now, e.ids, e.worker, str(e.reason)) for e in log.closed]
    answers = [(r.id, r.arrival_s, r.end_s, r.status, r.code) for r in log.requests]
    return batches, answers


def check_same(case: Case) -> Log:
    expected, found = simulated(case), live(case)
    for name, a, b in zip(("batch", "answer"), decisions(expected), decisions(found), strict=True):
        for n, (x, y) in enumerate(zip(a, b, strict=False)):
            assert x == y, f"{case}: {name} {n} differs"
        assert len(a) == len(b), f"{case}: {len(a)} against {len(b)} of {name}"
    return expected


@pytest.mark.parametrize("ties", [False, True], ids=["random", "tied"])
@pytest.mark.parametrize("policy", POLICIES)
def test_live_driver_decides_as_the_simulator(policy: str, ties: bool) -> None:
    batches, codes = 0, set()
    for seed in SEEDS:
        log = check_same(Case(seed, policy, ties))
        batches += len(log.closed)
        codes |= {r.code for r in log.requests}
    # The comparison must have had something to compare: refusals, crashes and hang-ups, too.
    assert batches > 500
    assert {"", "cancelled", "worker_crashed", "queue_full"} <= codes


@pytest.mark.parametrize("policy", POLICIES)
def test_live_driver_decides_as_the_simulator_for_closed_loop_clients(policy: str) -> None:
    for seed in SEEDS:
        check_same(Case(seed, policy, seed % 2 == 0, closed=True))


def test_comparison_fails_when_ties_are_reordered() -> None:
    differ = 0
    for seed in SEEDS:
        case = Case(seed, "greedy", ties=True)
        differ += decisions(simulated(case)) != decisions(live(case, UnfairInbox()))
    assert differ >= 20, f"only {differ} of {len(SEEDS)} seeds noticed"


def test_reordering_goes_unnoticed_without_ties() -> None:
    """What the test above finds is the order of ties and nothing else."""
    for seed in range(10):
        case = Case(seed, "greedy", ties=False)
        assert decisions(simulated(case)) == decisions(live(case, UnfairInbox()))
