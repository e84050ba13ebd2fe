"""What a Headway server says of the batches a load run made it form.

Reads `GET /metrics` before and after the run, and advice from `GET /debug/batches`. Knows those
pages; must not know how batches are decided.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Counts = dict[tuple[str, str], float]
"""Metric and one label (a reason, a bucket's edge, or empty) -> value, summed over models."""

_LINE = re.compile(rb"^(headway_\w+)\{([^}]*)\} (\S+)$", re.M)
_LABEL = re.compile(rb'(?:reason|le)="([^"]*)"')


@dataclass(slots=True)
class BatchStory:
    """Batches of one run."""

    batches: int
    rows_mean: float
    sizes: dict[str, int]
    """Rows in a batch, as a range -> how many batches."""
    reasons: dict[str, int]
    """Why batches closed -> how many."""
    padding_waste: float
    """Share of computed size units that carried no data."""
    run_ms_mean: float
    wait_ms_mean: float
    advice: list[str]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def read_metrics(body: bytes) -> Counts:
    """Headway's counters and histograms on the page; empty if there are none."""
    counts: defaultdict[tuple[str, str], float] = defaultdict(float)
    for name, labels, value in _LINE.findall(body):
        label = _LABEL.search(labels)
        counts[name.decode(), label[1].decode() if label else ""] += float(value)
    return dict(counts)


def read_advice(body: bytes) -> list[str]:
    """Advice on the page `/debug/batches`; empty if it is not that page."""
    try:
        return [f"{a['model']}: {a['text']}" for a in json.loads(body)["advice"]]
    except (ValueError, TypeError, KeyError):
        return []


def tell(
    before: Mapping[tuple[str, str], float], after: Counts, advice: list[str]
) -> BatchStory | None:
    """What happened between two readings; None without a batch."""
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}

    def mean(name: str) -> float:
        count = grown.get((f"{name}_count", ""), 0.0)
        return grown.get((f"{name}_sum", ""), 0.0) / count if count else 0.0

    reasons = {
        label: int(n) for (name, label), n in grown.items() if name == "headway_batches_total" and n
    }
    batches = sum(reasons.values())
    if not batches:
        return None
    padded = grown.get(("headway_padded_size_total", ""), 0.0)
    useful = grown.get(("headway_useful_size_total", ""), 0.0)
    return BatchStory(
        batches=batches,
        rows_mean=grown.get(("headway_rows_total", ""), 0.0) / batches,
        sizes=_sizes(grown),
        reasons=dict(sorted(reasons.items(), key=lambda entry: -entry[1])),
        padding_waste=max(0.0, 1 - useful / padded) if padded > 0 else 0.0,
        run_ms_mean=mean("headway_run_seconds") * 1e3,
        wait_ms_mean=mean("headway_queue_wait_seconds") * 1e3,
        advice=advice,
    )


def _sizes(grown: Counts) -> dict[str, int]:
    """Cumulative buckets as separate ranges."""
    buckets = sorted(
        (float(edge), n) for (name, edge), n in grown.items() if name == "headway_batch_rows_bucket"
    )
    found: dict[str, int] = {}
    low, seen = 1, 0.0
    for edge, n in buckets:
        if n > seen:
            single = edge == low
            last = f"{low}+" if edge == float("inf") else f"{low}-{edge:g}"
            found[f"{low}" if single else last] = int(n - seen)
        seen = n
        low = int(edge) + 1 if edge != float("inf") else low
    return found


def story_rows(story: BatchStory) -> list[tuple[str, str]]:
    """Lines of the table: name and value."""
    lines = [
        ("batches", f"{story.batches}, {story.rows_mean:.1f} rows each"),
        ("batch sizes", "  ".join(f"{rows}: {n}" for rows, n in story.sizes.items())),
        ("closed by", ", ".join(f"{reason} {n}" for reason, n in story.reasons.items())),
        ("padding waste", f"{story.padding_waste:.1%}"),
        ("on average", f"waited {story.wait_ms_mean:.2f} ms, ran {story.run_ms_mean:.2f} ms"),
    ]
    return lines + [("advice", text) for text in story.advice]
