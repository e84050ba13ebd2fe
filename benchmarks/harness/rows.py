"""A row of the table: a value, what a peer did, the bar, and whether it is met.

Knows how bars are written and checked and how rows are shown; must not know what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit: `>=` or `<=` or `<` a number, or that number times the peer's value."""

    op: str
    number: float
    times_peer: bool = False

    def __str__(self) -> str:
        return f"{self.op} {self.number:g}" + (" x peer" if self.times_peer else "")

    def met(self, value: float, peer_value: float | None = None) -> bool:
        """Does the value pass? A bar relative to a peer that gave no value is not met."""
        limit = self.number
        if self.times_peer:
            if peer_value is None:
                return False
            limit *= peer_value
        if self.op == ">=":
            return value >= limit
        return value <= limit if self.op == "<=" else value < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. Without a bar it is shown for comparison only."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    bar: Bar | None = None
    note: str = ""
    """Spread and whatever else explains the number; in the table only."""

    @property
    def ok(self) -> bool | None:
        """Is the bar met? None where there is none."""
        return None if self.bar is None else self.bar.met(self.value, self.peer_value)


def number(value: float | None) -> str:
    """Three significant digits, thousands grouped; empty for nothing."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(ours: float, theirs: float) -> str:
    """One value as a multiple of another, for a note; empty when the other is nothing."""
    return f"{ours / theirs:.2f} x; " if theirs > 0 else ""


def as_json(row: Row, command: str) -> str:
    """One JSON object: name, value, unit, peer, peer_value, bar, ok, command."""
    return json.dumps(
        {
            "name": row.name,
            "value": row.value,
            "unit": row.unit,
            "peer": row.peer,
            "peer_value": row.peer_value,
            "bar": str(row.bar) if row.bar else "",
            "ok": row.ok,
            "command": command,
        }
    )


_HEADS = ("row", "headway", "unit", "peer", "peer's", "bar", "", "note")


def cells(row: Row) -> tuple[str, ...]:
    """A row as the table shows it."""
    mark = {None: "", True: "ok", False: "MISSED"}[row.ok]
    bar = str(row.bar) if row.bar else ""
    value, theirs = number(row.value), number(row.peer_value)
    return (row.name, value, row.unit, row.peer, theirs, bar, mark, row.note)


def table(rows: Iterable[Row]) -> str:
    """A Markdown table, columns aligned."""
    lines = [_HEADS, *(cells(r) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADS))]
    out = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    out.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(out)
