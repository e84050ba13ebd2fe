"""Event records of a batch's life, built from what the batcher knows of it.

Knows batches and results; must not know policies or why anybody reads the records.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.batch import Batch, BatchResult, Form
from headway.core.events import BatchClosed, BatchFinished


def closed_event(batch: Batch) -> BatchClosed:
    """The record of a batch that was just formed."""
    now = batch.closed_s
    return BatchClosed(
        now=now,
        model=batch.model,
        batch_id=batch.id,
        worker=batch.worker,
        rows=batch.rows,
        requests=len(batch.requests),
        longest=batch.longest,
        total=batch.total,
        padded_rows=batch.padded_rows,
        opened_s=batch.opened_s,
        reason=batch.reason,
        predicted_s=batch.predicted_s,
        waiting_rows=batch.waiting_rows,
        ids=tuple([r.id for r in batch.requests]),
        waits_s=tuple([now - r.arrival_s for r in batch.requests]),
    )


def finished_event(
    batch: Batch, now: float, form: Form, latencies_s: Sequence[float], result: BatchResult | None
) -> BatchFinished:
    """The record of a batch that came back, or was lost (`result` None)."""
    times = result or BatchResult([], 0.0)
    return BatchFinished(
        now=now,
        model=batch.model,
        batch_id=batch.id,
        worker=batch.worker,
        rows=batch.rows,
        ok=result is not None,
        run_s=times.run_s,
        decode_s=times.decode_s,
        encode_s=times.encode_s,
        padded=batch.padded(form),
        useful=batch.total,
        errors=0,
        latencies_s=tuple(latencies_s),
        late=0,
    )


def measure_batch(batch: Batch, result: BatchResult) -> None:
    """Replace the sizes a batch was formed on by those its worker measured."""
    sizes = [item.size or r.size for r, item in zip(batch.requests, result.items, strict=True)]
    batch.longest = max(sizes)
    batch.total = sum(s * r.rows for s, r in zip(sizes, batch.requests, strict=True))
