"""A latency promise as a person states it: 'p99 < 200 ms'.

Knows how to read one and how much lateness it allows; must not know how it is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.core.errors import ConfigError

_FORM = re.compile(
    r"\s*p(\d{1,2}(?:\.\d+)?)\s*(?:<|<=|under)\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", re.I
)
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Objective:
    """At least `quantile` of requests are answered within `limit_s`."""

    quantile: float
    limit_s: float

    @property
    def late_share_max(self) -> float:
        """Share of requests that may be late without breaking the promise."""
        return 1.0 - self.quantile

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Read 'p99<200ms', 'p95 under 1.5 s'. Raises ConfigError naming the form expected."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"objective {text!r} is not understood",
                param="objective",
                hint="write it like 'p99<200ms' or 'p95<1.5s'",
            )
        quantile, limit_s = float(match[1]) / 100, float(match[2]) * _UNIT_S[match[3].lower()]
        if not 0 < quantile < 1 or limit_s <= 0:
            raise ConfigError(
                f"objective {text!r} cannot be met by anyone",
                param="objective",
                hint="the percentile lies between 0 and 100 and the limit is more than 0",
            )
        return cls(quantile, limit_s)

    def __str__(self) -> str:
        return f"p{self.quantile * 100:g} < {self.limit_s * 1000:g} ms"
