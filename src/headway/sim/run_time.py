"""How long a batch runs, in the simulator: a time model with its spread.

Knows rows and sizes; must not know queues or policies.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from headway.core.batch import Batch, Form
from headway.core.errors import ConfigError

_TERM = re.compile(r"(\d+(?:\.\d+)?)(?:\*?([bs]))?")


@dataclass(slots=True)
class ServiceTime:
    """Run time `fixed_s + row_s x rows + size_s x padded size`, times a random factor.

    `factors` are (factor, probability) pairs; empty means no spread.
    """

    fixed_s: float
    row_s: float = 0.0
    size_s: float = 0.0
    form: Form = "list"
    factors: tuple[tuple[float, float], ...] = ()
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __call__(self, batch: Batch) -> float:
        """Seconds this batch runs."""
        rows = batch.rows + batch.padded_rows
        mean_s = self.fixed_s + self.row_s * rows + self.size_s * batch.padded(self.form)
        if not self.factors:
            return mean_s
        draw = self.rng.random()
        for factor, probability in self.factors:
            draw -= probability
            if draw < 0:
                return mean_s * factor
        return mean_s * self.factors[-1][0]

    @classmethod
    def parse(cls, text: str, form: Form = "list") -> ServiceTime:
        """Read '8+1b' (milliseconds: 8 fixed, 1 a row) or '2+0.1s' (0.1 a unit of size).

        Raises ConfigError on anything else.
        """
        parts = [part.strip() for part in text.replace("ms", "").split("+")]
        totals = {"": 0.0, "b": 0.0, "s": 0.0}
        for part in parts:
            match = _TERM.fullmatch(part.replace(" ", ""))
            if match is None:
                raise ConfigError(
                    f"service time {text!r} is not understood",
                    param="service",
                    hint="write milliseconds like '8+1b' (b: rows) or '2+0.1s' (s: size)",
                )
            totals[match[2] or ""] += float(match[1]) / 1e3
        if sum(totals.values()) <= 0:
            raise ConfigError("the service time is zero", param="service", hint="like '8+1b'")
        return cls(totals[""], totals["b"], totals["s"], form)
