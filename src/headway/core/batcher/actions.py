"""What a batcher tells its driver to do. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from headway.core.batch import Batch
from headway.core.errors import UserError
from headway.core.request import Request


@dataclass(slots=True)
class Actions:
    """What a driver does now."""

    run: list[Batch] = field(default_factory=list)
    refuse: list[tuple[Request, UserError]] = field(default_factory=list)
    skip: list[tuple[Batch, int]] = field(default_factory=list)
    """Members of running batches that were refused meanwhile, by position."""
    overdue: list[Batch] = field(default_factory=list)
    """Batches past their time limit: their workers are to be replaced."""
    wake_s: float = inf
    """Poll again by then, even if nothing happens."""
    step_aside: bool = False
    """The device is free and another model waits for it: poll that one."""
