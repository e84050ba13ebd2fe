"""A recorded load: a CSV file with a column `arrival_s` and a column of sizes.

Knows files and rows; must not know how a load is played.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path

from headway.core.errors import UserError
from headway.sim.arrivals import Arrival

SIZE_COLUMNS = ("size", "input_tokens", "tokens", "bytes")
"""Where sizes are looked for when no column is named: the first of these there is."""


@dataclass(slots=True)
class Trace:
    """Arrivals in the order of time, the first at 0."""

    arrivals: list[Arrival]
    warnings: list[str] = field(default_factory=list)

    @property
    def span_s(self) -> float:
        """Time from the first arrival to the last."""
        return self.arrivals[-1].at_s if self.arrivals else 0.0

    def scaled(self, rate: float) -> Trace:
        """The same arrivals with time compressed or stretched to a mean rate a second. Dropping
        rows instead would change how bursty they are."""
        if self.span_s <= 0.0:
            return self
        factor = (len(self.arrivals) - 1) / (rate * self.span_s)
        moved = [Arrival(a.at_s * factor, *_rest(a)) for a in self.arrivals]
        return Trace(moved, self.warnings)

    def until(self, until_s: float) -> Trace:
        """Only what arrives before then."""
        return Trace([a for a in self.arrivals if a.at_s < until_s], self.warnings)


def read_trace(path: str | Path, *, size_column: str = "") -> Trace:
    """Read a trace. Rows out of order are sorted, which `warnings` tells.

    `rows`, `priority` and `deadline_s` are read where there are such columns. Raises UserError
    naming the line of a row that makes no sense.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            return parse_trace(file, str(path), size_column=size_column)
    except OSError as error:
        raise _bad(f"cannot read {path}: {error.strerror}", hint="name a CSV file") from None
    except UnicodeDecodeError:
        raise _bad(f"{path} is not UTF-8 text", hint="name a CSV file") from None


def parse_trace(lines: Iterable[str], name: str, *, size_column: str = "") -> Trace:
    """Read a trace from lines of text; `name` is what errors call it."""
    rows = csv.DictReader(lines)
    columns = rows.fieldnames or ()
    if "arrival_s" not in columns:
        raise _bad(
            f"{name} has no column arrival_s", hint="its columns are: " + ", ".join(columns or "-")
        )
    if size_column and size_column not in columns:
        raise _bad(
            f"{name} has no column {size_column}", hint="its columns are: " + ", ".join(columns)
        )
    sizes = size_column or next((c for c in SIZE_COLUMNS if c in columns), "")
    found: list[Arrival] = []
    try:
        for row in rows:
            found.append(_arrival(row, sizes, f"{name}, line {rows.line_num}"))
    except csv.Error as error:
        raise _bad(f"{name}, line {rows.line_num}: {error}", hint="write plain CSV") from None
    if not found:
        raise _bad(f"{name} has no rows", hint="one row a request under the header")
    return _ordered(found, name)


def _ordered(found: list[Arrival], name: str) -> Trace:
    late = sum(b.at_s < a.at_s for a, b in pairwise(found))
    warnings = []
    if late:
        found.sort(key=lambda a: a.at_s)
        warnings.append(f"{name}: {late} rows were earlier than the row before; sorted by time")
    first_s = found[0].at_s
    for arrival in found:
        arrival.at_s -= first_s
    return Trace(found, warnings)


def _arrival(row: dict[str, str | None], sizes: str, where: str) -> Arrival:
    if None in row or None in row.values():
        raise _bad(f"{where}: it has another number of fields than the header")
    return Arrival(
        at_s=_number(row, "arrival_s", where, low=-inf),
        size=_number(row, sizes, where) if sizes else 1.0,
        rows=int(_number(row, "rows", where, low=1.0)) if "rows" in row else 1,
        priority=int(_number(row, "priority", where)) if "priority" in row else 0,
        deadline_s=_number(row, "deadline_s", where) if row.get("deadline_s") else inf,
    )


def _number(row: dict[str, str | None], column: str, where: str, *, low: float = 0.0) -> float:
    text = row[column] or ""
    try:
        value = float(text)
    except ValueError:
        raise _bad(f"{where}: {column} is {text!r}", hint="it must be a number") from None
    if not low <= value < inf or value == -inf:
        hint = "it must be finite" if low == -inf else f"it must be finite and at least {low:g}"
        raise _bad(f"{where}: {column} is {text!r}", hint=hint)
    return value


def _rest(a: Arrival) -> tuple[float, int, int, float, float]:
    return a.size, a.rows, a.priority, a.deadline_s, a.leave_s


def _bad(message: str, *, hint: str = "fix or remove that row") -> UserError:
    return UserError(400, "bad_trace", message, hint=hint, param="trace")
