"""What a Headway server says of the batches a load run made it form.

Reads `GET /debug/batches`. Knows that page; must not know how batches are decided.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class BatchStory:
    """Batches of one run, or the most recent of them."""

    batches: int
    rows_mean: float
    sizes: dict[int, int]
    """Rows in a batch -> how many batches."""
    reasons: dict[str, int]
    """Why batches closed -> how many."""
    padding_waste: float
    """Mean share of computed size units that carried no data, weighted by run time."""
    run_ms_mean: float
    wait_ms_mean: float
    advice: list[str]

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def read_batches(body: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Records (newest first) and advice from the page; both empty if it is not that page."""
    try:
        document = json.loads(body)
        records = list(document["batches"])
        advice = [f"{a['model']}: {a['text']}" for a in document.get("advice", [])]
        return [r for r in records if "rows" in r and "reason" in r], advice
    except (ValueError, TypeError, KeyError):
        return [], []


def since(
    records: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Records that are not among the earlier ones."""
    last: dict[str, int] = {}
    for r in earlier:
        last[r["model"]] = max(last.get(r["model"], -1), r["batch_id"])
    return [r for r in records if r["batch_id"] > last.get(r["model"], -1)]


def tell(records: Sequence[Mapping[str, Any]], advice: Sequence[str]) -> BatchStory | None:
    """Sum records up; None without any."""
    if not records:
        return None
    rows = [int(r["rows"]) for r in records]
    waits = [w for r in records for w in r.get("waits_s", ())]
    done = [r for r in records if r.get("run_s")]
    run_s = sum(r["run_s"] for r in done)
    waste = sum(r["run_s"] * r.get("padding_waste", 0.0) for r in done)
    return BatchStory(
        batches=len(records),
        rows_mean=sum(rows) / len(rows),
        sizes=dict(sorted(Counter(rows).items())),
        reasons=dict(Counter(str(r["reason"]) for r in records).most_common()),
        padding_waste=waste / run_s if run_s else 0.0,
        run_ms_mean=run_s / len(done) * 1e3 if done else 0.0,
        wait_ms_mean=sum(waits) / len(waits) * 1e3 if waits else 0.0,
        advice=list(advice),
    )


def story_rows(story: BatchStory) -> list[tuple[str, str]]:
    """Lines of the table: name and value."""
    sizes = _bars(story.sizes)
    lines = [
        ("batches", f"{story.batches} (the latest), {story.rows_mean:.1f} rows each"),
        ("batch sizes", sizes),
        ("closed by", ", ".join(f"{reason} {n}" for reason, n in story.reasons.items())),
        ("padding waste", f"{story.padding_waste:.1%}"),
        ("in a batch", f"waited {story.wait_ms_mean:.2f} ms, ran {story.run_ms_mean:.2f} ms"),
    ]
    return lines + [("advice", text) for text in story.advice]


def _bars(sizes: Mapping[int, int]) -> str:
    """`1: 3  2-3: 10  4-7: 5`: sizes grouped by doubling."""
    groups: Counter[int] = Counter()
    for size, n in sizes.items():
        groups[max(size, 1).bit_length() - 1] += n
    shown = []
    for power, n in sorted(groups.items()):
        low, high = 2**power, 2 ** (power + 1) - 1
        shown.append(f"{low}: {n}" if low == high else f"{low}-{high}: {n}")
    return "  ".join(shown)
