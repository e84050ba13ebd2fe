"""Who asks when, and for how much: arrival processes of the simulator.

Knows times, sizes and random numbers; must not know queues, policies or service times. Everything
random takes a `random.Random`, so one seed gives one load.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import exp, inf, log
from typing import TypeVar

from headway.core.errors import ConfigError

T = TypeVar("T")

Sizes = Callable[[random.Random], float]
"""Draws the size of one request."""


@dataclass(slots=True)
class Arrival:
    """One request to come. `deadline_s` and `leave_s` count from its arrival."""

    at_s: float
    size: float = 1.0
    rows: int = 1
    priority: int = 0
    deadline_s: float = inf
    """Time the client gives; `inf` when it names none."""
    leave_s: float = inf
    """After this long without an answer the client hangs up."""


@dataclass(slots=True)
class Marks:
    """What requests carry besides their time. Each is drawn on its own."""

    sizes: Sizes | None = None
    """None: size 1."""
    rows: tuple[int, ...] = (1,)
    """Row counts, equally likely."""
    priorities: tuple[int, ...] = (0,)
    """Priorities, equally likely."""
    deadlines_s: tuple[float, ...] = (inf,)
    """Times clients give, equally likely."""
    leave_s: float = inf
    """Mean patience of a client, exponential; `inf` for clients that never hang up."""

    def draw(self, at_s: float, rng: random.Random) -> Arrival:
        """One request that arrives then."""
        return Arrival(
            at_s,
            1.0 if self.sizes is None else self.sizes(rng),
            _one(self.rows, rng),
            _one(self.priorities, rng),
            _one(self.deadlines_s, rng),
            inf if self.leave_s == inf else rng.expovariate(1.0 / self.leave_s),
        )

    def put_on(self, times_s: Iterable[float], rng: random.Random) -> Iterator[Arrival]:
        """A request at each time."""
        for at_s in times_s:
            yield self.draw(at_s, rng)


@dataclass(slots=True)
class ClosedLoop:
    """Clients that ask, wait for the answer, think, and ask again until `until_s`."""

    clients: int
    until_s: float
    think_s: float = 0.0
    """Mean of an exponential pause; 0 asks again at once."""


def poisson(rate: float, until_s: float, rng: random.Random) -> Iterator[float]:
    """Times of independent arrivals, `rate` a second on average."""
    at_s = rng.expovariate(rate)
    while at_s < until_s:
        yield at_s
        at_s += rng.expovariate(rate)


def even(rate: float, until_s: float) -> Iterator[float]:
    """Evenly spaced times, the first one gap after zero."""
    n = 1
    while n / rate < until_s:
        yield n / rate
        n += 1


def bursty(
    rate: float,
    until_s: float,
    rng: random.Random,
    *,
    on_share: float = 0.2,
    period_s: float = 1.0,
) -> Iterator[float]:
    """On and off in turn, each exponential in length: Poisson at `rate / on_share` while on.

    `period_s` is the mean length of one on and one off together; `rate` holds over many periods.
    """
    begin_s = rng.expovariate(1.0 / (period_s * (1.0 - on_share)))
    while begin_s < until_s:
        end_s = begin_s + rng.expovariate(1.0 / (period_s * on_share))
        at_s = begin_s + rng.expovariate(rate / on_share)
        while at_s < min(end_s, until_s):
            yield at_s
            at_s += rng.expovariate(rate / on_share)
        begin_s = end_s + rng.expovariate(1.0 / (period_s * (1.0 - on_share)))


def tied(
    rate: float, until_s: float, rng: random.Random, *, together_max: int = 8, grid_s: float = 0.0
) -> Iterator[float]:
    """Groups of 1 to `together_max` arrivals at exactly the same time, `rate` a second in all.

    With `grid_s` the groups fall on multiples of it, so that they also meet timers and answers.
    """
    groups = rate / ((1 + together_max) / 2)
    at_s = rng.expovariate(groups)
    while at_s < until_s:
        when_s = round(at_s / grid_s) * grid_s if grid_s else at_s
        for _ in range(rng.randint(1, together_max)):
            yield when_s
        at_s += rng.expovariate(groups)


def constant(size: float) -> Sizes:
    """Every request has this size."""
    return lambda _: size


def log_uniform(low: float, high: float) -> Sizes:
    """Sizes between `low` and `high`, each doubling equally likely."""
    a, b = log(low), log(high)
    return lambda rng: exp(rng.uniform(a, b))


def parse_sizes(text: str) -> Sizes:
    """Read '128' (constant) or '16:512' (log-uniform). Raises ConfigError on anything else."""
    parts = text.split(":")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if len(values) not in {1, 2} or not all(0 < v < inf for v in values) or values[0] > values[-1]:
        raise ConfigError(
            f"size {text!r} is not understood",
            param="size",
            hint="write one size like '128' or a range like '16:512'",
        )
    return constant(values[0]) if len(values) == 1 else log_uniform(values[0], values[1])


def _one(values: tuple[T, ...], rng: random.Random) -> T:
    return values[0] if len(values) == 1 else values[rng.randrange(len(values))]
